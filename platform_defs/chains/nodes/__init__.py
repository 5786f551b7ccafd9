"""Node types: what a node of a chain does when it is executed."""
