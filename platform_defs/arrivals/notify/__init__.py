"""Who hears of a finished execution: affected KPIs, subscriptions to them, the message."""
