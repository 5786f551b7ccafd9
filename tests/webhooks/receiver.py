"""A receiver on loopback that records what it is sent, and the rows that make something be sent to it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Engine, insert, select

from platform_defs.arrivals.notify import subscriptions
from platform_defs.arrivals.notify.kpi_message import notify_subscribers
from platform_defs.arrivals.notify.subscriptions import NewSubscription, Subscription
from platform_defs.store.tables.arrivals import metrics_kpi
from platform_defs.webhooks import deliveries
from platform_defs.webhooks.deliveries import Delivery
from platform_defs.webhooks.encryption import Encryption
from platform_defs.webhooks.sender import Sender
from tests.waiting import PATIENCE_S

LOOPBACK = (ip_network("127.0.0.0/8"),)
SHANGHAI = ZoneInfo("Asia/Shanghai")
EVENT = datetime(2025, 12, 19, 8, 0, tzinfo=UTC)

Reply = Callable[["Received"], tuple[int, bytes]]


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


class Receiver:
    """Answers what `reply` says; `received` has every request in order."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.received: list[Received] = []
        self.more_headers: dict[str, str] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                request = Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                receiver.received.append(request)
                status, content = receiver.reply(request)
                self.send_response(status)
                for name, value in receiver.more_headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                # the sender reads no more than it keeps, and may be gone by now
                with_the_rest(self.wfile.write, content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


def with_the_rest(write: Callable[[bytes], Any], content: bytes) -> None:
    try:
        write(content)
    except ConnectionError:
        return


@contextmanager
def receiving(reply: Reply = lambda request: (200, b"ok")) -> Iterator[Receiver]:
    receiver = Receiver(reply)
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.server.shutdown()
        thread.join()
        receiver.server.server_close()


def answers(*statuses: int) -> Reply:
    """These statuses, one after the other; the last one for ever."""
    rest = list(statuses)
    return lambda request: (rest.pop(0) if len(rest) > 1 else rest[0], b"noted")


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, moment: datetime = EVENT) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        return self.moment

    def advance(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@contextmanager
def sending(engine: Engine, home: Path, **options: Any) -> Iterator[Sender]:
    given = {"encryption": Encryption(home), "allow": LOOPBACK, "owner": "test", "attempt_s": PATIENCE_S} | options
    sender = Sender(engine, **given)
    try:
        yield sender
    finally:
        sender.close()


def with_kpis(engine: Engine, computed: dict[str, list[str]] | None = None) -> None:
    """KD1001 and KD1002 of MODEL-01, and computed ones that build on them."""
    rows = [
        {"kpi_id": kpi, "kpi_type": "EXTENDED", "model_id": "MODEL-01", "expression": "COUNT(*)", "depends_on": None}
        for kpi in ("KD1001", "KD1002")
    ]
    rows += [
        {"kpi_id": kpi, "kpi_type": "COMPUTED", "model_id": None, "expression": "x", "depends_on": names}
        for kpi, names in (computed or {}).items()
    ]
    with engine.begin() as connection:
        connection.execute(insert(metrics_kpi).values(rows))


def subscribe(engine: Engine, home: Path, url: str, kpi: str = "KD1001", **wanted: Any) -> Subscription:
    return subscriptions.add(engine, NewSubscription(kpi, url, **wanted), encryption=Encryption(home), allow=LOOPBACK)


def notify(engine: Engine, task_id: int = 1, at: datetime = EVENT, kpis: Sequence[str] = ("KD1001", "KD1002")) -> int:
    """What the end of a task of MODEL-01 does."""
    with engine.begin() as connection:
        return notify_subscribers(
            connection,
            task_id=task_id,
            model_id="MODEL-01",
            op_time="20251219",
            kpi_ids=kpis,
            at=at,
            zone=SHANGHAI,
        )


def only(engine: Engine) -> Delivery:
    (delivery,) = deliveries.list_newest(engine)
    return delivery


def row_of(engine: Engine, table: Any) -> Any:
    with engine.connect() as connection:
        return connection.execute(select(table)).one()
