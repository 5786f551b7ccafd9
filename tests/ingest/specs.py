"""Specs of sources that tests make up; each test changes what it is about with `dataclasses.replace`."""

from datetime import UTC, datetime, timedelta

from platform_defs.ingest.codes import EndpointRole, Location, Operation, PaginationType
from platform_defs.ingest.spec.model import (
    AuthSpec,
    BatchingSpec,
    CallSpec,
    ExprSpec,
    HttpSpec,
    PaginationSpec,
    RateSpec,
    RequestParam,
    ResponseSpec,
    RetrySpec,
    Spec,
    WindowSpec,
)


def paged_spec(base_url: str = "https://source.test", operation: Operation = Operation.HARVEST) -> Spec:
    """A source with offset pages, filtered by the second, whose items carry id and time."""
    search = CallSpec(
        endpoint_name="items",
        role=EndpointRole.SEARCH,
        http=HttpSpec("GET", base_url, "/items"),
        params=(
            RequestParam("from", "from", Location.QUERY, expr="${formatDateTime(window.from, 'ISO')}", required=True),
            RequestParam("to", "to", Location.QUERY, expr="${formatDateTime(window.to, 'ISO')}", required=True),
            RequestParam("offset", "offset", Location.QUERY, expr="${page.offset}"),
            RequestParam("limit", "limit", Location.QUERY, expr="${page.size}"),
        ),
        response=ResponseSpec("$.items", "$.id", "$.updated"),
    )
    return Spec(
        provenance_code="made_up",
        endpoint_name="items",
        operation=operation,
        search=search,
        detail=None,
        two_phase=False,
        auth=AuthSpec(),
        pagination=PaginationSpec(PaginationType.OFFSET, page_size=100, total_path="$.total"),
        window=WindowSpec(
            start=datetime(2026, 1, 1, tzinfo=UTC),
            size=timedelta(days=1),
            min_size=timedelta(hours=1),
            max_size=timedelta(days=7),
            align="hour",
            watermark_key="updated_at",
        ),
        retry=RetrySpec(),
        rate=RateSpec(),
        batching=BatchingSpec(),
        expr=ExprSpec(),
    )
