"""Webhooks: who hears that KPIs changed, deliveries written as rows, and the attempts that carry them out."""
