"""Dagster's own storages with one engine per process: as they come, they open another for nearly every statement."""
