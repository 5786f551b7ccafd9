"""Rows of work and what every process knows of them: kinds, runners, processes, the wake-up. Knows no Dagster."""
