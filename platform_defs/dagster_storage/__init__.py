"""Dagster's own storages, changed to keep one SQLAlchemy engine per process instead of one per statement."""
