"""The built-in node types, one module each."""
