"""The sender: claims deliveries that are due, makes several attempts at a time, and records the result of each."""

import logging
import socket
import ssl
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from datetime import datetime
from typing import NamedTuple

import h11
import httpx
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.errors import PlatformError, one_line
from platform_defs.logs import SparseLog
from platform_defs.settings import Settings
from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.webhooks import attempts
from platform_defs.webhooks.addresses import Network, Resolver, resolve_by_system
from platform_defs.webhooks.attempts import AttemptResult, ClaimedAttempt, DeliveryDecision
from platform_defs.webhooks.connection import Deadline, open_checked_connection
from platform_defs.webhooks.deliveries import DEAD
from platform_defs.webhooks.encryption import Encryption, encryption_from
from platform_defs.webhooks.http_post import KEPT_BYTES, Answer, post
from platform_defs.webhooks.masking import mask_spellings
from platform_defs.webhooks.metrics import SenderMetrics
from platform_defs.webhooks.per_host import PER_HOST, choose_deliveries, count_by_host, host_of
from platform_defs.webhooks.request import build_request

log = logging.getLogger(__name__)

ATTEMPT_S = 10.0
# Longer than an attempt and its two transactions; when it ends, another sender repeats a killed sender's attempt.
LEASE_S = 30.0
THREADS = 16
# While deliveries to busy hosts fill the head of the queue, a search for others reads at most this many pages.
PAGES = 50
PAGE = 200
# pauses while nothing is due or the database does not answer, and while all threads or hosts are busy
IDLE_S = 0.5
BUSY_S = 0.05
TRIES_WHEN_BEATEN = 20
# How long the end of a sender waits for the answers that are just coming.
CLOSE_S = 1.0


class _Begun(NamedTuple):
    """Attempts that were started, and the pause until the next look; `is_beaten`: others were faster at all of them."""

    attempts: list[Future[None]]
    pause_s: float
    is_beaten: bool = False


class Sender:
    """Any number of senders may share a database; `owner` tells their leases apart."""

    def __init__(
        self,
        engine: Engine,
        *,
        encryption: Encryption,
        allow: Sequence[Network],
        owner: str,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], datetime] = now,
        resolver: Resolver = resolve_by_system,
        tls: ssl.SSLContext | None = None,
        attempt_s: float = ATTEMPT_S,
    ) -> None:
        self._engine = engine
        self._encryption = encryption
        self._allow = tuple(allow)
        self._owner = owner
        self._metrics = SenderMetrics(registry)
        self._clock = clock
        self._resolver = resolver
        self._tls = httpx.create_ssl_context() if tls is None else tls
        self._attempt_s = attempt_s
        self._lock = threading.Lock()
        self._under_way: set[Future[None]] = set()
        # attempts under way by callback
        self._busy: Counter[str] = Counter()

    def send_due(self) -> int:
        """Makes every attempt that is due; returns their number when all have ended."""
        made: list[Future[None]] = []
        beaten = 0
        while True:
            begun = self._start_attempts()
            made += begun.attempts
            unfinished = [attempt for attempt in made if not attempt.done()]
            if begun.attempts:
                continue
            if unfinished:
                wait(unfinished, return_when="FIRST_COMPLETED")
            elif begun.is_beaten and beaten < TRIES_WHEN_BEATEN:
                # another sender may have locked them only to look at them
                beaten += 1
                time.sleep(begun.pause_s)
            else:
                return len(made)

    def run(self, stop: threading.Event) -> None:
        """Sends until told to stop; while the database does not answer, the sender waits for it."""
        failures = SparseLog(log)
        while not stop.is_set():
            try:
                pause = self._start_attempts().pause_s
            except (PlatformError, SQLAlchemyError) as error:
                failures.write(logging.WARNING, f"webhooks wait for the database: {one_line(error)}")
                pause = IDLE_S
            except Exception as error:
                # a bug must not end this thread, since nobody would start it again
                failures.write(logging.ERROR, f"webhooks could not be sent: {one_line(error)}", exc_info=error)
                pause = IDLE_S
            stop.wait(pause)

    def close(self) -> None:
        """Leaves the attempts that are under way, after a moment in which those that are answered now are recorded.

        A receiver that hangs must not keep the process from its end. Each attempt is a leased row: when the lease runs
        out, another sender marks it as lost and makes the next one.
        """
        with self._lock:
            under_way = list(self._under_way)
        if left := wait(under_way, timeout=CLOSE_S).not_done:
            log.info("webhook attempts without an answer are left to the next sender: %d", len(left))

    def _start_attempts(self) -> "_Begun":
        """Starts as many due attempts as there are free threads."""
        moment = self._clock()
        # a read comes first, because on SQLite a claim blocks all other writers even if nothing is due
        due = read(self._engine, lambda connection: attempts.next_due(connection, moment))
        if due is None or due > moment:
            return _Begun([], IDLE_S if due is None else min(IDLE_S, (due - moment).total_seconds()))
        with self._lock:
            under_way = dict(self._busy)
        free = THREADS - sum(under_way.values())
        ids = self._choose(moment, under_way, free) if free > 0 else []
        if not ids:
            return _Begun([], BUSY_S)
        lease = f"{self._owner[:200]}/{uuid.uuid4().hex}"
        claimed = transact(
            self._engine,
            lambda connection: attempts.claim_attempts(connection, ids, moment=moment, lease=lease, seconds=LEASE_S),
        )
        if not claimed:
            return _Begun([], BUSY_S, is_beaten=True)
        return _Begun([self._begin(one) for one in claimed], 0.0)

    def _begin(self, claimed: ClaimedAttempt) -> Future[None]:
        """Makes the attempt in a thread that ends with the process: Python would wait for one of an executor."""
        attempt: Future[None] = Future()

        def work() -> None:
            try:
                self._carry_out(claimed)
            finally:
                end()

        def end() -> None:
            with self._lock:
                self._under_way.discard(attempt)
                self._busy[claimed.content.callback_url] -= 1
                self._busy += Counter()
            attempt.set_result(None)

        with self._lock:
            self._under_way.add(attempt)
            self._busy[claimed.content.callback_url] += 1
        try:
            threading.Thread(target=work, name="webhook", daemon=True).start()
        except RuntimeError as error:
            # no more threads can be started; when the lease has run out, the attempt is made again
            log.error("a webhook attempt was not begun: %s", error, extra=_log_fields(claimed))
            end()
        return attempt

    def _choose(self, moment: datetime, under_way: Mapping[str, int], limit: int) -> list[int]:
        """Due deliveries whose hosts have room; deliveries to busy hosts at the head of the queue are passed over."""
        counts = count_by_host(under_way)
        without = {callback for callback in under_way if counts[host_of(callback)] >= PER_HOST}
        for _ in range(PAGES):
            page = self._due_page(moment, without)
            ids = choose_deliveries(page, under_way, limit)
            if ids or len(page) < PAGE:
                return ids
            without |= {callback for _, callback in page}
        return []

    def _due_page(self, moment: datetime, without: Collection[str]) -> list[tuple[int, str]]:
        return read(
            self._engine,
            lambda connection: attempts.due_deliveries(connection, moment=moment, without=without, limit=PAGE),
        )

    def _carry_out(self, claimed: ClaimedAttempt) -> None:
        try:
            result = self._attempt(claimed)
            ended = self._clock()
            decision = transact(
                self._engine, lambda connection: attempts.record_result(connection, claimed, result, ended=ended)
            )
        except Exception as error:
            # whatever the error is, the lease runs out and the attempt is repeated
            log.error(
                "a webhook attempt was not recorded", extra=_log_fields(claimed) | {"problem": type(error).__name__}
            )
            return
        self._report(claimed, result, decision)

    def _attempt(self, claimed: ClaimedAttempt) -> AttemptResult:
        started = time.perf_counter()

        def result(status: int | None, error: str | None, answer: str | None = None) -> AttemptResult:
            return AttemptResult(status, round((time.perf_counter() - started) * 1000), error, answer)

        try:
            deadline = Deadline(self._attempt_s)
            request = build_request(claimed.content, self._encryption, now=self._clock())
            with open_checked_connection(
                request.scheme,
                request.host,
                request.port,
                allow=self._allow,
                resolver=self._resolver,
                tls=self._tls,
                deadline=deadline,
            ) as connection:
                answer = post(connection, request, deadline)
        except PlatformError as error:
            return result(None, str(error)[:1000])
        except (OSError, h11.ProtocolError, ValueError) as error:
            return result(None, _problem(error))
        return result(
            answer.status, _problem_of_status(answer.status), _text_to_store(answer, request.secret_spellings)
        )

    def _report(self, claimed: ClaimedAttempt, result: AttemptResult, decision: DeliveryDecision | None) -> None:
        self._metrics.attempts.labels("succeeded" if result.succeeded else "failed").inc()
        self._metrics.seconds.observe(result.latency_ms / 1000)
        fields = _log_fields(claimed) | {"httpStatus": result.http_status, "latencyMs": result.latency_ms}
        if result.succeeded:
            log.info("webhook delivered", extra=fields)
        elif decision is not None and decision.status == DEAD:
            self._metrics.dead.inc()
            again = f"`platform webhooks redeliver {claimed.delivery_id}` sends it again"
            log.warning("webhook given up; %s", again, extra=fields | {"problem": result.error})
        else:
            log.info("webhook attempt failed", extra=fields | {"problem": result.error})


def open_sender(
    settings: Settings, engine: Engine, *, owner: str = "", registry: CollectorRegistry | None = None
) -> Sender:
    """A sender configured by the settings."""
    return Sender(
        engine,
        encryption=encryption_from(settings),
        allow=settings.webhook_networks,
        owner=owner or socket.gethostname(),
        registry=registry,
    )


def _log_fields(claimed: ClaimedAttempt) -> dict[str, object]:
    """Identifies an attempt in the log without its URL, whose query may hold a secret."""
    return {"webhookId": claimed.content.webhook_id, "delivery": claimed.delivery_id, "attempt": claimed.attempt_no}


def _problem(error: Exception) -> str:
    """The error in words of our own: messages of libraries may quote a part of the request."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"the certificate is not valid: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {error.reason}"
        case TimeoutError():
            return "no answer in time"
        case OSError():
            return f"no connection: {error.strerror or type(error).__name__}"
        case h11.RemoteProtocolError():
            return "the answer is not HTTP, or ended before its status"
    return f"the request could not be made: {type(error).__name__}"


def _problem_of_status(status: int) -> str | None:
    if 200 <= status < 300:
        return None
    return f"answered {status}" + ("; redirects are not followed" if 300 <= status < 400 else "")


def _text_to_store(answer: Answer, spellings: Sequence[str]) -> str | None:
    text = mask_spellings(answer.content.decode("utf-8", "replace"), spellings, cut=answer.cut)
    return text.encode()[:KEPT_BYTES].decode("utf-8", "ignore") or None
