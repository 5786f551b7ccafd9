"""The demo: a small shop that shows all four systems, written through the doors that users have, and its removal."""
