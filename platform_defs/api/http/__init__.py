"""What every path shares: authentication, bodies, errors, draining, the server."""
