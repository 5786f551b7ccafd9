"""Extraction for Gravitino: each event is a metadata operation, which the name of its job tells."""
