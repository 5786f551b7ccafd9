"""One module per migration, numbered in their order."""
