"""What the sink keeps in the database beside the graph: events, what names mean, how often each SQL ran."""
