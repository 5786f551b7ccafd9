"""The Registry: sources, endpoints and their configuration as effective-dated rows, loaded from YAML files."""
