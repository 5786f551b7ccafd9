"""`platform keys` and `platform tenants`."""
