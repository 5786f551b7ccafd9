"""The asset graph: one port for tenant-scoped batches (port.py), on Neo4j or in tables of the same database."""
