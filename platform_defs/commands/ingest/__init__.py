"""`platform ingest` and `platform registry`."""
