"""The OpenLineage sink: events in, raw rows and an asset graph out; the graph is a function of the set of events."""
