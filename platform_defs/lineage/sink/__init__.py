"""The sink: groups of prepared events are committed to the raw table and to the graph."""
