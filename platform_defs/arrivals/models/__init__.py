"""Models: what a model file says, what is stored of it, and the query that computes a batch."""
