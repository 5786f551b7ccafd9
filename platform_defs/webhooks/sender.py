"""The sender: claims attempts that are due, makes several at a time, and settles each by its answer."""

import logging
import socket
import ssl
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime

import h11
import httpx
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.errors import PlatformError
from platform_defs.settings import Settings
from platform_defs.store.engine import read, transact
from platform_defs.store.metadata import now
from platform_defs.webhooks import attempts
from platform_defs.webhooks.addresses import Network, Resolver, look_up, permitted_addresses, within
from platform_defs.webhooks.attempts import Claimed, Outcome
from platform_defs.webhooks.deliveries import DEAD
from platform_defs.webhooks.encryption import Vault, vault_of
from platform_defs.webhooks.http_post import KEPT_BYTES, Answer, Deadline, post
from platform_defs.webhooks.masking import scrubbed
from platform_defs.webhooks.message import outgoing
from platform_defs.webhooks.metrics import Measures
from platform_defs.webhooks.per_host import PER_HOST, chosen, host_of, per_host

log = logging.getLogger(__name__)

ATTEMPT_S = 10.0
# longer than an attempt and its two transactions; a killed sender's attempt is made again after it
LEASE_S = 30.0
THREADS = 16
# how far one look goes for a delivery whose turn it is, while hosts that hang hold the head of the queue
PAGE = 200
PAGES = 50
IDLE_S = 0.5
FULL_S = 0.05


class Sender:
    """Any number of them may work on one database; `owner` tells them apart in it."""

    def __init__(
        self,
        engine: Engine,
        *,
        vault: Vault,
        allow: Sequence[Network],
        owner: str,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], datetime] = now,
        resolver: Resolver = look_up,
        tls: ssl.SSLContext | None = None,
        attempt_s: float = ATTEMPT_S,
    ) -> None:
        self._engine = engine
        self._vault = vault
        self._allow = tuple(allow)
        self._owner = owner
        self._measures = Measures(registry)
        self._clock = clock
        self._resolver = resolver
        self._tls = httpx.create_ssl_context() if tls is None else tls
        self._attempt_s = attempt_s
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="webhook")
        self._lock = threading.Lock()
        self._busy: Counter[str] = Counter()

    def send_due(self) -> int:
        """Makes every attempt that is due, and returns when all have ended: how many there were."""
        made: list[Future[None]] = []
        while True:
            started, _ = self._start()
            made += started
            unfinished = [attempt for attempt in made if not attempt.done()]
            if not started and not unfinished:
                return len(made)
            if not started:
                wait(unfinished, return_when="FIRST_COMPLETED")

    def run(self, stop: threading.Event) -> None:
        """Until told to stop: an attempt starts when it is due, and the database may come and go."""
        while not stop.is_set():
            try:
                _, pause = self._start()
            except (PlatformError, SQLAlchemyError) as error:
                log.warning("webhooks wait for the database", extra={"problem": type(error).__name__})
                pause = IDLE_S
            except Exception:
                # a mistake of ours must not end the thread, which nobody would start again
                log.exception("webhooks could not be sent")
                pause = IDLE_S
            stop.wait(pause)

    def close(self) -> None:
        """Lets the attempts that are under way end; none takes longer than its time limit."""
        self._pool.shutdown(wait=True)

    def _start(self) -> tuple[list[Future[None]], float]:
        """Claims what there are threads for; with it comes how long it takes until there may be more to start."""
        moment = self._clock()
        # a look comes first: on SQLite a claim stops all other writers
        due = read(self._engine, lambda connection: attempts.next_due(connection, moment))
        if due is None or due > moment:
            return [], IDLE_S if due is None else min(IDLE_S, (due - moment).total_seconds())
        with self._lock:
            under_way = dict(self._busy)
        free = THREADS - sum(under_way.values())
        ids = self._whose_turn(moment, under_way, free) if free > 0 else []
        if not ids:
            return [], FULL_S
        lease = f"{self._owner[:200]}/{uuid.uuid4().hex}"
        claimed = transact(
            self._engine,
            lambda connection: attempts.claim_due(connection, ids, moment=moment, lease=lease, seconds=LEASE_S),
        )
        with self._lock:
            self._busy.update(one.message.callback_url for one in claimed)
        return [self._pool.submit(self._carry_out, one) for one in claimed], 0.0 if claimed else FULL_S

    def _whose_turn(self, moment: datetime, under_way: Mapping[str, int], limit: int) -> list[int]:
        """Deliveries that are due at hosts with room; what waits for a full host does not hide the others."""
        counts = per_host(under_way)
        without = {callback for callback in under_way if counts[host_of(callback)] >= PER_HOST}
        for _ in range(PAGES):
            page = self._waiting(moment, without)
            ids = chosen(page, under_way, limit)
            if ids or len(page) < PAGE:
                return ids
            without |= {callback for _, callback in page}
        return []

    def _waiting(self, moment: datetime, without: Collection[str]) -> list[tuple[int, str]]:
        return read(
            self._engine,
            lambda connection: attempts.waiting(connection, moment=moment, without=without, limit=PAGE),
        )

    def _carry_out(self, claimed: Claimed) -> None:
        try:
            outcome = self._attempt(claimed)
            ended = self._clock()
            verdict = transact(
                self._engine, lambda connection: attempts.settle(connection, claimed, outcome, ended=ended)
            )
        except Exception as error:
            # whatever it is, the lease runs out, and the attempt is made again
            log.error("a webhook attempt was not recorded", extra=_named(claimed) | {"problem": type(error).__name__})
            return
        finally:
            with self._lock:
                self._busy[claimed.message.callback_url] -= 1
                self._busy += Counter()
        self._report(claimed, outcome, verdict)

    def _attempt(self, claimed: Claimed) -> Outcome:
        started = time.perf_counter()

        def outcome(status: int | None, error: str | None, answer: str | None = None) -> Outcome:
            return Outcome(status, round((time.perf_counter() - started) * 1000), error, answer)

        try:
            deadline = Deadline(self._attempt_s)
            request = outgoing(claimed.message, self._vault, now=self._clock())
            resolver = within(deadline.left(), self._resolver)
            addresses = permitted_addresses(request.host, request.port, allow=self._allow, resolver=resolver)
            answer = post(request, addresses, tls=self._tls, deadline=deadline)
        except PlatformError as error:
            return outcome(None, str(error)[:1000])
        except (OSError, h11.ProtocolError, ValueError) as error:
            return outcome(None, _problem(error))
        return outcome(answer.status, _refusal(answer.status), _kept(answer, request.forms))

    def _report(self, claimed: Claimed, outcome: Outcome, verdict: attempts.Verdict | None) -> None:
        self._measures.attempts.labels("succeeded" if outcome.succeeded else "failed").inc()
        self._measures.seconds.observe(outcome.latency_ms / 1000)
        facts = _named(claimed) | {"httpStatus": outcome.http_status, "latencyMs": outcome.latency_ms}
        if outcome.succeeded:
            log.info("webhook delivered", extra=facts)
        elif verdict is not None and verdict.status == DEAD:
            self._measures.dead.inc()
            log.warning("webhook given up", extra=facts | {"problem": outcome.error})
        else:
            log.info("webhook attempt failed", extra=facts | {"problem": outcome.error})


def open_sender(
    settings: Settings, engine: Engine, *, owner: str = "", registry: CollectorRegistry | None = None
) -> Sender:
    """A sender as the settings have it."""
    return Sender(
        engine,
        vault=vault_of(settings),
        allow=settings.webhook_networks,
        owner=owner or socket.gethostname(),
        registry=registry,
    )


def _named(claimed: Claimed) -> dict[str, object]:
    """What identifies an attempt in a log: never the URL, whose query may hold what is nobody's business."""
    return {"webhookId": claimed.message.webhook_id, "delivery": claimed.delivery_id, "attempt": claimed.attempt_no}


def _problem(error: Exception) -> str:
    """In our own words: those of libraries may quote what they choked on."""
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


def _refusal(status: int) -> str | None:
    if 200 <= status < 300:
        return None
    return f"answered {status}" + ("; redirects are not followed" if 300 <= status < 400 else "")


def _kept(answer: Answer, forms: Sequence[str]) -> str | None:
    text = scrubbed(answer.content.decode("utf-8", "replace"), forms, cut=answer.cut)
    return text.encode()[:KEPT_BYTES].decode("utf-8", "ignore") or None
