"""Models: the file that defines them, their rows in the database, and the query that computes a batch."""
