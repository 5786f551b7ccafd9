"""Table arrival over HTTP."""
