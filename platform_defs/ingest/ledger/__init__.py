"""What the tables say of windows, plans and tasks: for assets, checks, metrics and commands."""
