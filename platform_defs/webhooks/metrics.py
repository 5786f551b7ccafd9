"""Metrics of the sender: attempts, their duration, and deliveries that became dead letters."""

from prometheus_client import CollectorRegistry, Counter, Histogram

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class SenderMetrics:
    """No label names a callback: a tenant could otherwise create any number of time series."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.attempts = Counter(
            "platform_webhook_attempts", "Attempts by outcome: succeeded, failed.", ["outcome"], registry=registry
        )
        self.seconds = Histogram(
            "platform_webhook_attempt_seconds", "Time that an attempt takes.", buckets=BUCKETS, registry=registry
        )
        self.dead = Counter("platform_webhook_dead_letters", "Deliveries that were given up.", registry=registry)
