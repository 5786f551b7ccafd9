"""Prometheus metrics of the API process and the path /metrics that exports them."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

router = APIRouter(tags=["operations"])


class ApiMetrics:
    """The registry of the process, and the metrics of its requests.

    Labels are only route templates and known methods, so that a scanner of paths does not create time series.
    """

    def __init__(self) -> None:
        # a registry of its own: the default one of the library is shared by all apps of a process
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "platform_http_requests", "Requests answered.", ["route", "method", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "platform_http_request_seconds",
            "Time from the first byte to the last.",
            ["route", "method"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge("platform_http_requests_in_flight", "Requests in progress.", registry=self.registry)

    def record_request(self, route: str, method: str, status: int, seconds: float) -> None:
        method = method if method in METHODS else "OTHER"
        self.requests.labels(route, method, str(status)).inc()
        self.seconds.labels(route, method).observe(seconds)


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
def metrics(request: Request) -> Response:
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)
