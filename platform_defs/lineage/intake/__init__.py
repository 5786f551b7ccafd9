"""From a request body to an item of the sink: tenant rules, known tenants, refused events."""
