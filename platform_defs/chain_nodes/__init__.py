"""Node types of chains that need another system, and the list of all node types: above the systems."""
