"""The source as the executor sees it: renders, authenticates, sends through the door, and grades what comes back."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import orjson
from sqlalchemy import Engine

from platform_defs.canonical import sha256_hex
from platform_defs.http_door.door import Door
from platform_defs.http_door.errors import Cancelled, DoorError, Exhausted, HeldBack, Refused, TransientError
from platform_defs.http_door.policy import Passage, Redirects, RetryPolicy, Route, Timeouts
from platform_defs.ingest.codes import AuthType, ErrorLevel
from platform_defs.ingest.errors import HELD_BACK, ResponseError
from platform_defs.ingest.execution.progress import EXPIRED_TOKEN
from platform_defs.ingest.execution.task_ends import CANCELLED
from platform_defs.ingest.fetching.reading import check_body
from platform_defs.ingest.fetching.source import Fetched
from platform_defs.ingest.spec.model import CallSpec, RateSpec, RetrySpec, Spec
from platform_defs.ingest.transport.credentials import Credential
from platform_defs.ingest.transport.refusals import reason_given
from platform_defs.ingest.transport.requests import CompiledCall, request_digest
from platform_defs.logs import mask_secrets
from platform_defs.rate_gate.policy import RatePolicy
from platform_defs.rate_gate.signals import Outcome

# Who may not ask at all: the credential is wrong, or the source has blocked us. Nothing that we try again helps.
FATAL_STATUSES = (401, 403)
_SAMPLE_BYTES = 1024


class HttpSource:
    """Requests of one spec; thread-safe, so that slices of a plan share it."""

    def __init__(
        self,
        spec: Spec,
        door: Door,
        engine: Engine,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        deadline_s: float = 300.0,
    ) -> None:
        self.spec = spec
        self._door = door
        self._now = now
        calls = [call for call in (spec.search, spec.detail) if call is not None]
        passage = _passage(spec, deadline_s)
        credential = Credential(engine, spec.auth, door, passage)
        self._calls = {
            id(call): (CompiledCall.of(call, spec), _passage_of(call, spec, passage, credential)) for call in calls
        }

    def fetch(
        self, call: CallSpec, names: Mapping[str, Any], *, url: str | None = None, cancel: threading.Event
    ) -> Fetched:
        (compiled, passage), now = self._calls[id(call)], self._now()
        request = compiled.request(names, now) if url is None else compiled.next_page(url, names, now)
        digest, body = request_digest(request, now), _BodyReader(call)
        try:
            exchange = self._door.send(request, replace(passage, judge=body.judge, cancel=cancel))
        except DoorError as error:
            raise self._graded(error, call, names, request) from None
        document = body.document_of(exchange.response)
        facts, content = exchange.facts, exchange.response.content
        latency = sum(attempt.latency_s for attempt in facts.attempts)
        return Fetched(
            document,
            request_digest=digest,
            response_digest={
                "status": exchange.response.status_code,
                "sample": f"sha256:{sha256_hex(content[:_SAMPLE_BYTES].decode('utf-8', 'replace'))}",
                **facts.digest(),
            },
            counts={**facts.counts(), "latencyMs": round(latency * 1000), "bytes": len(content)},
        )

    def _graded(
        self, error: DoorError, call: CallSpec, names: Mapping[str, Any], rendered: httpx.Request
    ) -> ResponseError:
        """L1 may pass, L2 is this request's fault, L4 is everybody's: see the seed's 12.1."""
        answer = error.response if isinstance(error, Exhausted | Refused) else None
        message = mask_secrets(str(error)) + reason_given(answer, rendered)
        match error:
            case HeldBack() if error.is_answer:
                status = error.facts.attempts[-1].status
                code = "NO_ANSWER" if status is None else f"HTTP_{status}"
                return ResponseError(ErrorLevel.TRANSIENT, code, message, not_before=error.until)
            case HeldBack():
                return ResponseError(
                    ErrorLevel.TRANSIENT, f"{HELD_BACK}{error.reason}", message, not_before=error.until
                )
            case Exhausted():
                body_says = _body_error(call, error.response)
                code = "NO_ANSWER" if error.status is None else f"HTTP_{error.status}"
                return body_says or ResponseError(ErrorLevel.TRANSIENT, code, message)
            case Cancelled():
                return ResponseError(ErrorLevel.TRANSIENT, CANCELLED, message, not_before=self._now())
            case TransientError():
                return ResponseError(ErrorLevel.TRANSIENT, "TRANSIENT", message)
            case Refused() if error.status in FATAL_STATUSES:
                return ResponseError(ErrorLevel.FATAL, f"HTTP_{error.status}", message)
            case Refused() if error.status == 404 and (names.get("page") or {}).get("token"):
                return ResponseError(ErrorLevel.REQUEST, EXPIRED_TOKEN, message)
            case Refused():
                return ResponseError(ErrorLevel.REQUEST, f"HTTP_{error.status}", message)
        return ResponseError(ErrorLevel.REQUEST, type(error).__name__.upper(), message)


def read_document(call: CallSpec, response: httpx.Response) -> Any:
    """The body as JSON; raises ResponseError where it is none, or where it says that it is an error."""
    document = _parse_json(response)
    check_body(call, document)
    return document


def rate_key(spec: Spec) -> str:
    """Which requests share a limit: of the source or the endpoint, and of one credential where the source counts so."""
    parts = ["ingest", spec.provenance_code]
    if not spec.rate.shared_across_endpoints:
        parts.append(spec.endpoint_name)
    if spec.rate.per_credential and spec.auth.credential_alias:
        parts.append(spec.auth.credential_alias)
    return ":".join(parts)


def rate_policy(rate: RateSpec, retry: RetrySpec) -> RatePolicy:
    return RatePolicy(
        refill_per_s=rate.refill_per_s,
        burst=rate.burst,
        warmup_s=rate.warmup_s,
        demote_rate=rate.demote_rate,
        r_min=rate.min_rate_per_s,
        quota_hourly=rate.quota_hourly,
        quota_daily=rate.quota_daily,
        max_concurrent=rate.max_concurrent,
        respects_headers=rate.header_adaptive,
        circuit_threshold=retry.circuit_threshold or 0,
        circuit_cool_s=(retry.circuit_cooldown_ms or 60_000) / 1000,
    )


def _passage(spec: Spec, deadline_s: float) -> Passage:
    retry = spec.retry
    return Passage(
        rate_key(spec),
        rate=rate_policy(spec.rate, retry),
        retry=RetryPolicy(
            max_attempts=retry.max_attempts,
            initial_s=retry.initial_delay_ms / 1000,
            max_s=retry.max_delay_ms / 1000,
            multiplier=retry.multiplier,
            jitter=retry.jitter_ratio,
            retry_statuses=frozenset(retry.retry_statuses),
            give_up_statuses=frozenset(retry.give_up_statuses),
            on_network_error=retry.retry_on_network_error,
            retry_after_cap_s=None if retry.retry_after_cap_ms is None else retry.retry_after_cap_ms / 1000,
        ),
        deadline_s=deadline_s,
    )


def _passage_of(call: CallSpec, spec: Spec, passage: Passage, credential: Credential) -> Passage:
    http = call.http
    return replace(
        passage,
        timeouts=Timeouts(http.connect_timeout_ms / 1000, http.read_timeout_ms / 1000, http.total_timeout_ms / 1000),
        route=Route(http.tls_verify, http.proxy_url),
        redirects=Redirects() if http.redirects else None,
        cost=call.permit_cost,
        # a search that is sent as a form changes nothing at the source
        is_repeatable=True,
        prepare=credential.prepare,
        renews_on_401=spec.auth.type is AuthType.OAUTH2,
    )


class _BodyReader:
    """Reads the body of an answer once, for the door that judges it and for the executor that wants it."""

    def __init__(self, call: CallSpec) -> None:
        self._call = call
        self._last: tuple[httpx.Response, Any] | None = None

    def judge(self, response: httpx.Response) -> Outcome | None:
        """A body that is an error with status 200 counts as what it says: the door then tries again."""
        try:
            self._last = response, read_document(self._call, response)
        except ResponseError as error:
            return Outcome.RATE_LIMITED if "rate limit" in str(error).lower() else Outcome.TRANSIENT
        return None

    def document_of(self, response: httpx.Response) -> Any:
        if self._last is not None and self._last[0] is response:
            return self._last[1]
        return read_document(self._call, response)


def _body_error(call: CallSpec, response: httpx.Response | None) -> ResponseError | None:
    if response is None or response.status_code >= 300:
        return None
    try:
        read_document(call, response)
    except ResponseError as error:
        return error
    return None


def _parse_json(response: httpx.Response) -> Any:
    """The body as JSON; NCBI writes line breaks inside of texts, which the strict reader refuses."""
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.loads(_without_control_characters(response.content))
    except orjson.JSONDecodeError:
        kind = response.headers.get("content-type", "no content type")
        raise ResponseError(
            ErrorLevel.TRANSIENT, "NOT_JSON", f"expected JSON, got {kind} of {len(response.content)} bytes"
        ) from None


def _without_control_characters(content: bytes) -> bytes:
    return bytes(byte if byte >= 0x20 else 0x20 for byte in content)
