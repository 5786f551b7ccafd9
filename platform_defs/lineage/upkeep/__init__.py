"""Recovery, rebuild and retention of what the sink stored."""
