"""Questions that people ask the asset graph: by name, up and down the lineage of a table or column, and its runs."""
