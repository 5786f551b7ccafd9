"""Notification of subscribers after a successful execution: affected KPIs, subscriptions to them, and the message."""
