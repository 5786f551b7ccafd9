"""Upkeep of stored lineage: apply events that the graph lacks, rebuild graphs, delete old rows and tombstones."""
