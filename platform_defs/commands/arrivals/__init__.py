"""`platform models` and `platform webhooks`."""
