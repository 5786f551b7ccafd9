"""Rows of work and what every process needs around them: leases, runners, processes, the wake-up. Knows no Dagster."""
