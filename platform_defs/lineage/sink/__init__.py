"""Group commit of events into the raw table and the graph."""
