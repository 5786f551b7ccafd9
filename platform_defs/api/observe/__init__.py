"""Health and metrics of the API process."""
