"""The lineage sink over HTTP."""
