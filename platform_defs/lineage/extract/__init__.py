"""What one event says about the asset graph, as facts."""
