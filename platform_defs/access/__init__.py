"""Access: who is calling and what they may do. Tenants, API keys and gateway assertions, without a web framework."""
