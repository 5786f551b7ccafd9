"""The tables of the lineage graph as Dagster shows them: their asset keys, which of them, and what they depend on."""
