"""The platform: one package for ingest, lineage, arrivals and chains, expressed in Dagster."""
