"""What a spec snapshot says: everything that planner and executor need, without any secret.

A plan stores it as JSON (`as_json`), and an executor reads it back (`from_json`): nothing is read from the Registry
while a plan is executed, except the secret that a credential refers to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from platform_defs.ingest.codes import (
    AuthType,
    EndpointRole,
    Location,
    NullPolicy,
    Operation,
    PaginationType,
    RepeatedToken,
)


@dataclass(frozen=True)
class HttpSpec:
    """How requests of one endpoint are made; templates are texts of `platform_defs.expressions`."""

    method: str
    base_url: str
    path_template: str
    headers_template: Mapping[str, str] = field(default_factory=dict)
    query_template: Mapping[str, str] = field(default_factory=dict)
    body_template: Any = None
    content_type: str | None = None
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 30_000
    total_timeout_ms: int = 120_000
    tls_verify: bool = True
    proxy_url: str | None = None
    compress: bool = True
    redirects: bool = False
    plain_http_allowed: bool = False
    # a GET whose URL grows beyond this is sent as a form POST; None means never
    post_above_url_length: int | None = None


@dataclass(frozen=True)
class AuthSpec:
    """Names the credential row; its secret reference is resolved when a request is made, never stored here."""

    type: AuthType = AuthType.NONE
    location: Location | None = None
    field_name: str | None = None
    credential_id: int | None = None
    credential_alias: str | None = None
    signing_hook: str | None = None
    required: bool = False


@dataclass(frozen=True)
class RequestParam:
    """A parameter by its standard key; the expression is rendered into the place that the provider wants."""

    std_key: str
    name: str
    location: Location
    expr: str | None = None
    default: str | None = None
    required: bool = False
    # a regular expression that the rendered value must match as a whole
    pattern: str | None = None


@dataclass(frozen=True)
class OutputField:
    """A field of the stored record and the JSONPath of its value in the item."""

    name: str
    path: str


@dataclass(frozen=True)
class ResponseSpec:
    """Where a response keeps its items, and each item its identity and its time."""

    items_path: str
    id_path: str
    # None where the time is the window's own: `updated_at_from_window`
    updated_at_path: str | None
    # the window that listed the record is its time: for sources whose items carry none (PubMed)
    updated_at_from_window: bool = False
    updated_at_formats: tuple[str, ...] = ()
    timezone: str = "UTC"
    # ids are equal whatever their case (DOIs)
    id_ignores_case: bool = False
    # values joined by ':' before the id, for ids that are unique only within something (Europe PMC's source)
    id_prefix_path: str | None = None
    # the body is an error although its status is 200 where one of these paths has a value
    error_paths: tuple[str, ...] = ()
    # a body without a value here is no answer, and is asked for again (Europe PMC's bare version object)
    required_paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class CallSpec:
    """One endpoint: how it is asked and how its answer is read."""

    endpoint_name: str
    role: EndpointRole
    http: HttpSpec
    params: tuple[RequestParam, ...]
    response: ResponseSpec
    permit_cost: int = 1


@dataclass(frozen=True)
class PaginationSpec:
    """How one page follows another, and where an answer tells it."""

    type: PaginationType
    page_size: int | None = None
    max_page: int | None = None
    initial_token: str | None = None
    next_token_path: str | None = None
    next_url_path: str | None = None
    has_more_path: str | None = None
    total_path: str | None = None
    base1: bool = True
    order_by: str | None = None
    order_direction: str | None = None
    # how many records of one query the source lets a client page through; a larger total splits the window
    result_cap: int | None = None
    repeated_token: RepeatedToken = RepeatedToken.ENDS
    # asks for the last page once more: after a missing next token, or because records may have moved onto it
    tail_probe: bool = False
    last_page_again: bool = False
    # the source forgets a token after this; a resumed slice then starts again from its window
    token_ttl: timedelta | None = None


@dataclass(frozen=True)
class WindowSpec:
    """How time is cut: sizes are whole multiples of the alignment, windows half-open and in UTC."""

    start: datetime
    size: timedelta
    min_size: timedelta
    max_size: timedelta
    align: str
    watermark_key: str
    safety_lag: timedelta = timedelta(minutes=10)
    supports_updated_since: bool = True
    # what the source's own filter can tell apart: a day where it filters by days; the executor filters again
    granularity: timedelta = timedelta(seconds=1)
    # both ends of the source's filter are included
    filter_is_inclusive: bool = False
    timezone: str = "UTC"
    boundary_policy: str = "[from,to)"


@dataclass(frozen=True)
class RetrySpec:
    """How the door repeats a request that failed (http_door/policy.py)."""

    max_attempts: int = 5
    policy: str = "exponential_jitter"
    initial_delay_ms: int = 100
    max_delay_ms: int = 30_000
    multiplier: float = 2.0
    jitter_ratio: float = 0.2
    retry_statuses: tuple[int, ...] = ()
    give_up_statuses: tuple[int, ...] = ()
    retry_on_network_error: bool = True
    retry_after_cap_ms: int | None = None
    circuit_threshold: int | None = None
    circuit_cooldown_ms: int | None = None


@dataclass(frozen=True)
class RateSpec:
    """How often all processes together may ask the source (rate_gate/policy.py)."""

    refill_per_s: float = 1.0
    burst: int = 1
    warmup_s: int = 0
    quota_hourly: int | None = None
    quota_daily: int | None = None
    max_concurrent: int | None = None
    demote_rate: float = 2.0
    min_rate_per_s: float = 0.1
    header_adaptive: bool = True
    shared_across_endpoints: bool = False
    per_credential: bool = False


@dataclass(frozen=True)
class BatchingSpec:
    """How records are asked for by their ids."""

    id_batch_size: int = 200
    ids_join: str = ","
    max_ids_per_slice: int = 500


@dataclass(frozen=True)
class ExprSpec:
    """How templates are rendered."""

    allowed_functions: tuple[str, ...] = ()
    timezone: str = "UTC"
    null_policy: NullPolicy = NullPolicy.OMIT
    time_format: str = "ISO"


@dataclass(frozen=True)
class Spec:
    """The snapshot of one (source, endpoint, operation).

    `search` enumerates (HARVEST, BACKFILL). `detail` asks for records by id: the second phase where the search lists
    ids alone, and what UPDATE uses. An endpoint without `detail` cannot be updated by id.
    """

    provenance_code: str
    endpoint_name: str
    operation: Operation
    search: CallSpec | None
    detail: CallSpec | None
    two_phase: bool
    auth: AuthSpec
    pagination: PaginationSpec
    window: WindowSpec
    retry: RetrySpec
    rate: RateSpec
    batching: BatchingSpec
    expr: ExprSpec
    output_fields: tuple[OutputField, ...] = ()
    # that one of the search's parameters which a range of ids narrows, where a window cannot get smaller; it is among
    # `search.params` and rendered there like the others (`idRange` is null while nothing was cut by ids)
    id_range_param: RequestParam | None = None
    # lowest and highest id, for cutting by id ranges
    id_range: tuple[int, int] | None = None
    stale_after: timedelta | None = None
    update_buckets: int = 16
    # most slices of this endpoint and operation that are fetched at a time
    max_concurrent_slices: int = 4
    # tasks that may wait before the planner stops adding: the plan is then PARTIAL
    stock_limit: int = 1000


@dataclass(frozen=True)
class CompiledSpec:
    """A spec with the origin of each of its values, and what had to be done without."""

    spec: Spec
    # path of a value, such as `window.size`, to the level and row that set it
    origins: Mapping[str, str] = field(default_factory=dict)
    # degradations of the seed's 3.6, such as a source that counts nothing
    warnings: tuple[str, ...] = ()
