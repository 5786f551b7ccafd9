"""Metrics of one runner: slots, time until a run starts, outcomes. The API shows them on /metrics."""

from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from platform_defs.work.rows import Status


class RunnerMetrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._slots = Gauge("platform_runner_slots", "Runs that may execute at a time", registry=self._registry)
        self._busy = Gauge("platform_runner_busy", "Runs that execute now", registry=self._registry)
        self._latency = Histogram(
            "platform_runner_start_seconds",
            "From the row of work to its process",
            buckets=(0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15, 60, 300),
            registry=self._registry,
        )
        self._finished = Counter(
            "platform_runner_finished", "Rows of work closed, by outcome", ["status"], registry=self._registry
        )

    def record_start(self, waited: timedelta) -> None:
        self._latency.observe(max(0.0, waited.total_seconds()))

    def record_finish(self, status: Status) -> None:
        self._finished.labels(status).inc()

    def record_slots(self, *, slots: int, busy: int) -> None:
        self._slots.set(slots)
        self._busy.set(busy)

    def exposition(self) -> str:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self._registry).decode()
