"""Warm runs: a fork server with Dagster loaded, one forked process per run, and rows of work that become runs."""
