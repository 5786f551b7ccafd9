"""Access: who may ask for what. Tenants, API keys and gateway assertions, without any web framework."""
