"""`platform lineage`."""
