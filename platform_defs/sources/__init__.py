"""Named data sources: read-only queries with a time limit on the platform's own database or on another one."""
