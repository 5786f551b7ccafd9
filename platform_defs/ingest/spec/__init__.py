"""The spec snapshot: Registry rows compiled into one immutable value that a plan keeps for its whole life."""
