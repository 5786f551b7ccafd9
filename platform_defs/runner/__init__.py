"""Executes Dagster runs without their start-up time: a process that has Dagster loaded forks one process per run."""
