"""Upkeep of stored lineage: apply events that the graph lacks, rebuild graphs, delete what is too old."""
