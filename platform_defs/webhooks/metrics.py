"""What the sender counts: attempts and how long they take, and deliveries that were given up."""

from prometheus_client import CollectorRegistry, Counter, Histogram

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Measures:
    """No label names a callback: what a tenant registers must not create time series."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.attempts = Counter(
            "platform_webhook_attempts", "Attempts by outcome: succeeded, failed.", ["outcome"], registry=registry
        )
        self.seconds = Histogram(
            "platform_webhook_attempt_seconds", "Time that an attempt takes.", buckets=BUCKETS, registry=registry
        )
        self.dead = Counter("platform_webhook_dead_letters", "Deliveries that were given up.", registry=registry)
