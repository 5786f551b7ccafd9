"""The door: permit, attempt, feedback, and again, until there is an answer or a reason why there is none."""

import logging
import random
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx

from platform_defs.http_door.body import ENCODINGS, CutOff, TooLarge, UnknownEncoding, read_beginning, read_body
from platform_defs.http_door.errors import (
    Cancelled,
    Exhausted,
    HeldBack,
    InvalidRequest,
    RedirectRefused,
    Refused,
    UnreadableResponse,
)
from platform_defs.http_door.facts import Attempt, Facts
from platform_defs.http_door.network import Budget, CancelHeard, Resolver
from platform_defs.http_door.passes import Passes
from platform_defs.http_door.policy import Passage, Route
from platform_defs.http_door.redirects import STATUSES, NotFollowed, origin_of, redirected_request, url_without_query
from platform_defs.http_door.transport import BUDGET, BoundedTransport
from platform_defs.rate_gate.decisions import Reason
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.leases import Lease
from platform_defs.rate_gate.signals import Outcome, Signal, outcome_of, signal_from

# of an answer that is an error only the beginning is read
_ERROR_BYTES = 64 * 1024
# a source that says so has not acted on the request
_NOT_ACTED = frozenset({429, 503})
_DROPPED_HEADERS = (b"content-encoding", b"content-length", b"transfer-encoding")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exchange:
    """An answer, whole and decoded, and what it took to get it."""

    response: httpx.Response
    facts: Facts


@dataclass(frozen=True)
class _Answer:
    """What one attempt led to: a response, or the error that there was instead."""

    outcome: Outcome
    signal: Signal
    response: httpx.Response | None = None
    error: httpx.TransportError | None = None


class Door:
    """Thread-safe: several requests may be under way at once, and share connections."""

    def __init__(
        self,
        gate: RateGate,
        *,
        user_agent: str = "platform-defs",
        transport: httpx.BaseTransport | None = None,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        seed: int | None = None,
        on_retry: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`resolver` refuses addresses that users' URLs may not reach; `transport` replaces the network.

        `on_retry` hears what went wrong with a request that is going to be repeated, in the thread that sends it.
        """
        self._gate = gate
        self._passes = Passes(gate)
        self._clock = gate.clock
        self._user_agent = user_agent
        self._transport = transport
        self._resolver = resolver
        self._tls = tls
        self._random = random.Random(seed)
        self._on_retry = on_retry
        self._lock = threading.Lock()
        self._transports: dict[Route, httpx.BaseTransport] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            transports, self._transports = list(self._transports.values()), {}
        for transport in transports:
            transport.close()

    def send(self, request: httpx.Request, passage: Passage) -> Exchange:
        """The source's answer with a status that counts as success; every other end is an error of errors.py."""
        request.read()
        facts = Facts(passage.key, passage.cost, passage.rate.burst)
        until = self._clock.monotonic() + passage.deadline_s
        last: httpx.Response | None = None
        is_renewed = False
        for number in range(1, passage.retry.max_attempts + 1):
            answer = self._attempt(request, passage, facts, until, last)
            last = answer.response
            if answer.outcome is Outcome.OK and last is not None:
                return Exchange(last, facts)
            if passage.renews_on_401 and not is_renewed and last is not None and last.status_code == 401:
                is_renewed = True
            elif not self._may_try_again(request, answer, passage):
                raise self._final_error(request, answer, facts)
            elif number < passage.retry.max_attempts:
                self._pause(request, answer, passage, facts, number, until)
        raise Exhausted(
            f"{_request_text(request)}: {_answer_text(answer)} after {_times(number)}", facts, response=last
        )

    def _attempt(
        self, request: httpx.Request, passage: Passage, facts: Facts, until: float, last: httpx.Response | None
    ) -> _Answer:
        """One attempt, with the redirects that it leads to: each of them is a request of its own to the gate."""
        origin, hops = origin_of(request.url), 0
        while True:
            with self._passes.leased(passage, facts, until) as lease:
                answer = self._exchange(request, passage, facts, until, last, lease, origin)
            if passage.redirects is None or answer.response is None or answer.response.status_code not in STATUSES:
                return answer
            hops += 1
            try:
                request = redirected_request(request, answer.response, passage.redirects, hops)
            except NotFollowed as error:
                message = f"{_request_text(request)}: redirect to {error.location} refused: {error}"
                raise RedirectRefused(message, facts, location=error.location) from None
            facts.redirects += 1

    def _exchange(
        self,
        request: httpx.Request,
        passage: Passage,
        facts: Facts,
        until: float,
        last: httpx.Response | None,
        lease: Lease | None,
        origin: str,
    ) -> _Answer:
        permit, said, waited_s = self._passes.wait_for_permit(passage, facts, until, lease)
        # after the wait: a signature has a time in it, and a token may have run out meanwhile
        prepared = self._prepared(request, passage, last, origin)
        while not self._gate.confirm(permit, passage.rate):
            permit, said, waited_s = self._passes.wait_for_permit(passage, facts, until, lease)
        began = self._clock.monotonic()
        answer = self._answer(prepared, passage, facts)
        response = answer.response
        facts.attempts.append(
            Attempt(
                status=None if response is None else response.status_code,
                error=None if answer.error is None else f"{type(answer.error).__name__}: {answer.error}",
                outcome=answer.outcome,
                decision=said,
                waited_s=waited_s,
                latency_s=self._clock.monotonic() - began,
                rate_per_s=permit.rate_per_s,
                limits=answer.signal.limits,
            )
        )
        reaction = self._gate.feedback(passage.key, passage.rate, answer.signal)
        facts.demotions += reaction.is_slower
        facts.cool_until = reaction.cool_until or facts.cool_until
        return answer

    def _prepared(
        self, request: httpx.Request, passage: Passage, last: httpx.Response | None, origin: str
    ) -> httpx.Request:
        headers = httpx.Headers({"User-Agent": self._user_agent, "Accept": "*/*", "Accept-Encoding": ENCODINGS})
        headers.update(request.headers)
        copy = httpx.Request(request.method, request.url, headers=headers, content=request.content)
        # a redirect to another origin sees no credential
        if passage.prepare is not None and origin_of(request.url) == origin:
            copy = passage.prepare(copy, last)
            copy.read()
        return copy

    def _answer(self, request: httpx.Request, passage: Passage, facts: Facts) -> _Answer:
        began = self._clock.monotonic()
        try:
            response = self._response(request, passage, facts)
        except CancelHeard:
            raise Cancelled(f"{_request_text(request)}: cancelled while it was under way", facts) from None
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:
            raise InvalidRequest(f"{_request_text(request)}: cannot be sent: {error}", facts) from None
        except httpx.TransportError as error:
            age_s = self._clock.monotonic() - began
            return _Answer(Outcome.NO_ANSWER, Signal(Outcome.NO_ANSWER, age_s=age_s), error=error)
        outcome = self._judged(response, passage)
        age_s = self._clock.monotonic() - began
        signal = signal_from(
            response.status_code, response.headers, now=self._clock.now(), age_s=age_s, outcome=outcome
        )
        return _Answer(outcome, signal, response)

    def _judged(self, response: httpx.Response, passage: Passage) -> Outcome:
        status = response.status_code
        if not response.is_success and status not in passage.accept_statuses:
            # a redirect that is not followed is no success
            return Outcome.OTHER if status < 400 else outcome_of(status)
        return (passage.judge(response) if passage.judge else None) or Outcome.OK

    def _response(self, request: httpx.Request, passage: Passage, facts: Facts) -> httpx.Response:
        """The whole answer; whatever cuts it off in the middle is an error of the network."""
        times = passage.timeouts
        request.extensions = {
            # the network keeps to the machine's clock, whatever clock the waiting goes by
            BUDGET: Budget(time.monotonic() + times.total_s, passage.cancel),
            "timeout": {"connect": times.connect_s, "read": times.read_s, "write": times.read_s, "pool": times.total_s},
        }
        response = self._transport_for(passage.route).handle_request(request)
        assert isinstance(response.stream, httpx.SyncByteStream)
        encoding = response.headers.get("content-encoding", "")
        is_error = response.status_code >= 400 and response.status_code not in passage.accept_statuses
        try:
            if is_error:
                body = read_beginning(response.stream, encoding, max_bytes=min(passage.max_bytes, _ERROR_BYTES))
            else:
                body = read_body(response.stream, encoding, max_bytes=passage.max_bytes)
        except TooLarge:
            message = f"{_request_text(request)}: expected at most {passage.max_bytes} bytes, got more"
            raise UnreadableResponse(message, facts) from None
        except UnknownEncoding as error:
            raise UnreadableResponse(f"{_request_text(request)}: {error}", facts) from None
        except CutOff:
            raise httpx.RemoteProtocolError("the compressed body ends in the middle") from None
        finally:
            response.close()
        facts.wire_bytes += body.wire_bytes
        kept = [(name, value) for name, value in response.headers.raw if name.lower() not in _DROPPED_HEADERS]
        return httpx.Response(response.status_code, headers=kept, content=body.content, request=request)

    def _transport_for(self, route: Route) -> httpx.BaseTransport:
        if self._transport is not None:
            return self._transport
        with self._lock:
            transport = self._transports.get(route)
            if transport is None:
                tls = self._tls or httpx.create_ssl_context(verify=route.tls_verify, trust_env=False)
                transport = BoundedTransport(tls=tls, proxy=route.proxy, resolver=self._resolver)
                self._transports[route] = transport
            return transport

    def _may_try_again(self, request: httpx.Request, answer: _Answer, passage: Passage) -> bool:
        if answer.error is not None:
            never_sent = isinstance(answer.error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            return passage.retry.on_network_error and (never_sent or passage.may_repeat(request))
        assert answer.response is not None
        status = answer.response.status_code
        if status in passage.retry.give_up_statuses:
            return False
        is_transient = answer.outcome in (Outcome.RATE_LIMITED, Outcome.TRANSIENT) or passage.retry.is_retried(status)
        has_not_acted = answer.outcome is Outcome.RATE_LIMITED or status in _NOT_ACTED or 400 <= status < 500
        return is_transient and (has_not_acted or passage.may_repeat(request))

    def _final_error(self, request: httpx.Request, answer: _Answer, facts: Facts) -> Exhausted | Refused:
        message = f"{_request_text(request)}: {_answer_text(answer)}"
        is_transient = answer.outcome in (Outcome.NO_ANSWER, Outcome.RATE_LIMITED, Outcome.TRANSIENT)
        if answer.response is None or is_transient:
            return Exhausted(f"{message}, and it is not sent again", facts, response=answer.response)
        return Refused(message, facts, response=answer.response)

    def _pause(
        self, request: httpx.Request, answer: _Answer, passage: Passage, facts: Facts, failures: int, until: float
    ) -> None:
        """Waits before the next attempt; a source that names the time itself is waited for at the gate."""
        cap_s, asked_s = passage.retry.retry_after_cap_s, answer.signal.limits.retry_after_s
        if asked_s is not None:
            if cap_s is not None and asked_s > cap_s and facts.cool_until is not None:
                pauses = f"asks for a pause of {asked_s:.0f} s, more than the {cap_s:.0f} s allowed"
                message = f"{_request_text(request)}: {pauses}"
                raise HeldBack(message, facts, reason=Reason.COOLING_DOWN, until=facts.cool_until)
            self._tell(f"{_request_text(request)}: {_answer_text(answer)}, and a pause of {asked_s:.0f} s is asked for")
            return
        pause_s = passage.retry.backoff_s(failures, self._random)
        if self._clock.monotonic() + pause_s > until:
            message = f"{_request_text(request)}: {_answer_text(answer)}, and no time for another attempt"
            raise Exhausted(message, facts, response=answer.response)
        self._tell(f"{_request_text(request)}: {_answer_text(answer)}, trying again in {pause_s:.1f} s")
        facts.waited_s += pause_s
        self._passes.wait(pause_s, passage, facts)

    def _tell(self, text: str) -> None:
        _logger.info("%s", text)
        self._on_retry(text)


def _request_text(request: httpx.Request) -> str:
    return f"{request.method} {url_without_query(request.url)}"


def _answer_text(answer: _Answer) -> str:
    if answer.response is None:
        return f"no answer ({str(answer.error) or type(answer.error).__name__})"
    if answer.response.is_success:
        return f"status {answer.response.status_code}, but its body says {answer.outcome}"
    return f"status {answer.response.status_code}"


def _times(number: int) -> str:
    return "1 attempt" if number == 1 else f"{number} attempts"
