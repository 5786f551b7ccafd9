"""The sender against real receivers: spacing, takeover, giving up, and what it never does."""

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, select, update
from sqlalchemy.engine import URL

from platform_defs.arrivals.notify import subscriptions
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from platform_defs.store.tables.webhooks import metrics_webhook_delivery, metrics_webhook_subscription
from platform_defs.webhooks import deliveries
from platform_defs.webhooks.attempts import AttemptResult, DeliveryDecision, decide_delivery
from platform_defs.webhooks.deliveries import Message
from platform_defs.webhooks.errors import NotRedeliverable
from platform_defs.webhooks.per_host import Host, choose_deliveries, host_of
from platform_defs.webhooks.recipients import Recipient
from platform_defs.webhooks.sender import THREADS, open_sender
from tests.needs import ROOT
from tests.waiting import PATIENCE_S, until
from tests.webhooks.receiver import (
    EVENT,
    Clock,
    Received,
    answers,
    notify,
    only,
    receiving,
    sending,
    subscribe,
    with_kpis,
)

sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
SIGNING = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


def test_a_receiver_that_fails_twice_gets_three_equal_attempts_after_one_and_two_seconds(
    engine: Engine, tmp_path: Path
) -> None:
    with_kpis(engine)
    clock = Clock()
    with receiving(answers(500, 503, 204)) as receiver:
        subscribe(engine, tmp_path, receiver.url(), signing_secret=SIGNING)
        notify(engine)
        for pause in (0, 1, 2):
            # another sender for every attempt: as after a crash in between
            with sending(engine, tmp_path, clock=clock) as sender:
                if pause:
                    clock.advance(pause - 0.001)
                    assert sender.send_due() == 0
                    clock.advance(0.001)
                assert sender.send_due() == 1
        clock.advance(3600)
        with sending(engine, tmp_path, clock=clock) as sender:
            assert sender.send_due() == 0
    assert len(receiver.received) == 3
    assert len({(request.id, request.body) for request in receiver.received}) == 1
    assert len({request.headers["webhook-signature"] for request in receiver.received}) == 1
    delivery = only(engine)
    assert (delivery.status, delivery.last_error) == ("DELIVERED", None)
    assert [(a.attempt_no, a.http_status, a.outcome) for a in delivery.attempts] == [
        (1, 500, "FAILED"),
        (2, 503, "FAILED"),
        (3, 204, "SUCCEEDED"),
    ]
    started = [attempt.started_at for attempt in delivery.attempts]
    assert started == [EVENT, EVENT + timedelta(seconds=1), EVENT + timedelta(seconds=3)]
    assert all(attempt.latency_ms is not None for attempt in delivery.attempts)


@sqlite
def test_a_running_sender_keeps_the_spacing(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    stop, clock = threading.Event(), Clock()
    looks: list[datetime] = []

    def look() -> datetime:
        looks.append(clock())
        return looks[-1]

    def outcomes() -> list[str]:
        return [attempt.outcome for attempt in only(engine).attempts]

    with receiving(answers(500, 500, 200)) as receiver, sending(engine, tmp_path, clock=look) as sender:
        subscribe(engine, tmp_path, receiver.url())
        notify(engine)
        thread = threading.Thread(target=sender.run, args=[stop])
        thread.start()
        try:
            for made, pause in enumerate((1, 2), start=1):
                until("a failed attempt", lambda: outcomes()[made - 1 :] == ["FAILED"])  # noqa: B023
                clock.advance(pause - 0.001)
                # the second one proves that the first has ended
                until("looks that find nothing due", lambda: looks[-2:] == [clock()] * 2)
                assert outcomes() == ["FAILED"] * made
                clock.advance(0.001)
            until("the delivery", lambda: only(engine).status == "DELIVERED")
        finally:
            stop.set()
            thread.join()
    started = [attempt.started_at for attempt in only(engine).attempts]
    assert started == [EVENT, EVENT + timedelta(seconds=1), EVENT + timedelta(seconds=3)]


def test_the_delay_doubles_up_to_an_hour_and_counts_the_retries() -> None:
    failed = AttemptResult(500, 1)
    delays = [decide_delivery(failed, failed_before=n, retry_num=100).delay_s for n in range(14)]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]
    assert decide_delivery(failed, failed_before=3, retry_num=3) == DeliveryDecision("DEAD")
    assert decide_delivery(failed, failed_before=0, retry_num=0) == DeliveryDecision("DEAD")
    assert decide_delivery(AttemptResult(410, 1), failed_before=0, retry_num=3) == DeliveryDecision(
        "DEAD", disable_subscriptions=True
    )
    assert decide_delivery(AttemptResult(299, 1), failed_before=9, retry_num=3) == DeliveryDecision("DELIVERED")
    assert decide_delivery(AttemptResult(None, 1), failed_before=0, retry_num=1) == DeliveryDecision("PENDING", 1)


# a lease that ends when the test says so, not while a busy machine still ends the process
LEASE_S = 3600
_PROCESS = f"""
import sys, threading
from ipaddress import ip_network
from pathlib import Path
from platform_defs.webhooks import sender
from platform_defs.webhooks.sender import Sender
from platform_defs.webhooks.encryption import Encryption
from platform_defs.store.engine import open_engine
engine = open_engine(sys.argv[1])
allow, sender.LEASE_S = (ip_network("127.0.0.0/8"),), {LEASE_S}
given = {{"encryption": Encryption(Path(sys.argv[2])), "allow": allow, "owner": "killed", "attempt_s": {LEASE_S}}}
Sender(engine, **given).run(threading.Event())
"""


def test_a_sender_that_is_killed_between_attempts_and_in_one_loses_nothing(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    hanging, release = threading.Event(), threading.Event()

    def reply(request: Received) -> tuple[int, bytes]:
        if len(receiver.received) == 2:
            hanging.set()
            release.wait(PATIENCE_S)
        return (500 if len(receiver.received) == 1 else 200), b""

    with receiving(reply) as receiver:
        subscribe(engine, tmp_path, receiver.url(), secret="Header,X-Key,across processes", retry_num=1)
        notify(engine, at=datetime.now(UTC))
        url = engine.url.render_as_string(hide_password=False)
        process = subprocess.Popen([sys.executable, "-c", _PROCESS, url, str(tmp_path)], cwd=ROOT)
        try:
            assert hanging.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
            release.set()
        clock = Clock(only(engine).attempts[-1].started_at)
        with sending(engine, tmp_path, clock=clock) as sender:
            assert sender.send_due() == 0, "the lease of the killed one still holds"
            clock.advance(LEASE_S + 1)
            assert sender.send_due() == 1
    assert len({(request.id, request.body) for request in receiver.received}) == 1
    assert {request.headers["x-key"] for request in receiver.received} == {"across processes"}
    delivery = only(engine)
    assert delivery.status == "DELIVERED"
    outcomes = [(attempt.attempt_no, attempt.outcome) for attempt in delivery.attempts]
    assert outcomes == [(1, "FAILED"), (2, "LOST"), (3, "SUCCEEDED")]


_STOPPED = f"""
import sys, threading
from ipaddress import ip_network
from pathlib import Path
from platform_defs.webhooks import sender
from platform_defs.webhooks.sender import Sender
from platform_defs.webhooks.encryption import Encryption
from platform_defs.store.engine import open_engine
engine = open_engine(sys.argv[1])
allow, stop, sender.LEASE_S = (ip_network("127.0.0.0/8"),), threading.Event(), {LEASE_S}
given = {{"encryption": Encryption(Path(sys.argv[2])), "allow": allow, "owner": "stopped", "attempt_s": {LEASE_S}}}
running = Sender(engine, **given)
thread = threading.Thread(target=running.run, args=[stop])
thread.start()
sys.stdin.read()
stop.set()
thread.join()
running.close()
"""


def test_a_sender_ends_while_a_receiver_hangs_and_the_next_one_makes_the_attempt_again(
    engine: Engine, tmp_path: Path
) -> None:
    with_kpis(engine)
    hanging, release = threading.Event(), threading.Event()

    def reply(request: Received) -> tuple[int, bytes]:
        if len(receiver.received) == 1:
            hanging.set()
            release.wait(2 * PATIENCE_S)
        return 200, b""

    with receiving(reply) as receiver:
        subscribe(engine, tmp_path, receiver.url(), retry_num=0)
        notify(engine, at=datetime.now(UTC))
        url = engine.url.render_as_string(hide_password=False)
        command = [sys.executable, "-c", _STOPPED, url, str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) as process:
            try:
                assert hanging.wait(PATIENCE_S)
                process.communicate(timeout=PATIENCE_S)
                assert process.returncode == 0
            finally:
                process.kill()
                release.set()
        delivery = only(engine)
        assert (delivery.status, [attempt.outcome for attempt in delivery.attempts]) == ("PENDING", ["STARTED"])
        clock = Clock(delivery.attempts[-1].started_at)
        with sending(engine, tmp_path, clock=clock) as sender:
            assert sender.send_due() == 0, "the lease of the one that ended still holds"
            clock.advance(LEASE_S + 1)
            assert sender.send_due() == 1
    assert len({(request.id, request.body) for request in receiver.received}) == 1
    delivery = only(engine)
    outcomes = [(attempt.attempt_no, attempt.outcome) for attempt in delivery.attempts]
    assert (delivery.status, outcomes) == ("DELIVERED", [(1, "LOST"), (2, "SUCCEEDED")])


def test_attempts_that_cannot_be_begun_take_nobodys_place_and_are_made_when_their_leases_have_run_out(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with_kpis(engine)
    clock = Clock()
    with receiving(answers(200)) as receiver, sending(engine, tmp_path, clock=clock) as sender:
        subscribe(engine, tmp_path, receiver.url())
        notify(engine)
        with monkeypatch.context() as exhausted:
            exhausted.setattr(threading.Thread, "start", no_thread_left)
            for _ in range(THREADS + 1):
                assert sender.send_due() == 1
                assert not receiver.received
                clock.advance(LEASE_S + 3600)
        assert sender.send_due() == 1
    assert only(engine).status == "DELIVERED"


def test_two_senders_never_make_the_same_attempt(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    with receiving() as receiver:
        for number in range(3):
            subscribe(engine, tmp_path, receiver.url(f"/{number}"))
        for task in range(10):
            notify(engine, task_id=task)
        with (
            sending(engine, tmp_path, owner="one", clock=Clock()) as one,
            sending(engine, tmp_path, owner="two", clock=Clock()) as two,
            ThreadPoolExecutor(2) as pool,
        ):
            made = list(pool.map(lambda sender: sender.send_due(), [one, two]))
    assert sum(made) == 30
    assert len({request.id for request in receiver.received}) == len(receiver.received) == 30
    assert {delivery.status for delivery in deliveries.list_newest(engine)} == {"DELIVERED"}


@pytest.mark.parametrize("engine", [pytest.param("mysql", marks=pytest.mark.needs("mysql"))], indirect=True)
def test_what_another_sender_has_locked_for_a_moment_is_sent_all_the_same(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform_defs.webhooks.sender.TRIES_WHEN_BEATEN", 10_000)
    with_kpis(engine)
    looks: list[datetime] = []

    def clock() -> datetime:
        looks.append(EVENT)
        return EVENT

    with receiving() as receiver, sending(engine, tmp_path, clock=clock) as sender, ThreadPoolExecutor(1) as pool:
        subscribe(engine, tmp_path, receiver.url())
        notify(engine)
        with engine.begin() as connection:
            connection.execute(select(metrics_webhook_delivery).with_for_update())
            sent = pool.submit(sender.send_due)
            until("a second look", lambda: len(looks) > 1 or sent.done())
        assert sent.result(PATIENCE_S) == 1


def test_a_sender_that_lost_its_lease_does_not_overrule_the_one_that_took_over(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    hanging, release = threading.Event(), threading.Event()

    def reply(request: Received) -> tuple[int, bytes]:
        if len(receiver.received) == 1:
            hanging.set()
            release.wait(PATIENCE_S)
        return (200 if len(receiver.received) == 3 else 500), b""

    clock = Clock()
    with (
        receiving(reply) as receiver,
        sending(engine, tmp_path, clock=clock) as slow,
        sending(engine, tmp_path, clock=clock) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        subscribe(engine, tmp_path, receiver.url(), retry_num=1)
        notify(engine)
        late = pool.submit(slow.send_due)
        assert hanging.wait(PATIENCE_S)
        clock.advance(31)
        assert other.send_due() == 1
        due = only(engine).next_attempt_at
        clock.advance(0.5)
        release.set()
        assert late.result() == 1
        assert (only(engine).status, only(engine).next_attempt_at) == ("PENDING", due)
        clock.advance(0.5)
        assert other.send_due() == 1
    delivery = only(engine)
    assert delivery.status == "DELIVERED"
    assert [attempt.outcome for attempt in delivery.attempts] == ["FAILED", "FAILED", "SUCCEEDED"]


def test_what_is_given_up_is_a_dead_letter_that_is_sent_again_as_it_was(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    clock = Clock()
    with receiving(answers(500, 404, 302, 500, 200)) as receiver, sending(engine, tmp_path, clock=clock) as sender:
        subscription = subscribe(engine, tmp_path, receiver.url(), retry_num=1, signing_secret=SIGNING)
        notify(engine)
        for _ in range(5):
            sender.send_due()
            clock.advance(10)
        dead = only(engine)
        assert (dead.status, dead.last_error, len(dead.attempts)) == ("DEAD", "answered 404", 2)
        assert [one.id for one in deliveries.list_newest(engine, status="DEAD")] == [dead.id]
        # far enough ahead that what is asked for next is due, however slow the machine is
        clock.moment = datetime.now(UTC) + timedelta(hours=1)
        assert deliveries.redeliver(engine, dead.id).status == "PENDING"
        with pytest.raises(NotRedeliverable, match="not a dead letter"):
            deliveries.redeliver(engine, dead.id)
        for _ in range(2):
            sender.send_due()
            clock.advance(10)
        assert only(engine).status == "DEAD", "the attempts started anew: a first one and one retry"
        subscriptions.disable(engine, subscription.id, reason="test")
        with pytest.raises(NotRedeliverable, match="disabled or removed"):
            deliveries.redeliver(engine, dead.id)
        assert deliveries.redeliver_all(engine) == 0
        subscriptions.enable(engine, subscription.id)
        assert deliveries.redeliver_all(engine) == 1
        sender.send_due()
    assert [attempt.attempt_no for attempt in only(engine).attempts] == [1, 2, 3, 4, 5]
    assert only(engine).status == "DELIVERED"
    assert len({(request.id, request.body) for request in receiver.received}) == 1
    # a stock receiver refuses a timestamp that is five minutes old
    stated = [int(request.headers["webhook-timestamp"]) for request in receiver.received]
    assert stated[:2] == [int(EVENT.timestamp())] * 2
    assert stated[-1] == int(clock.moment.timestamp())


def test_gone_disables_the_subscriptions_and_what_waits_for_them_is_not_sent(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    clock = Clock()
    with receiving(answers(410)) as receiver, sending(engine, tmp_path, clock=clock) as sender:
        mine = subscribe(engine, tmp_path, receiver.url())
        other = subscribe(engine, tmp_path, receiver.url("/other"), team_name="other")
        subscriptions.disable(engine, other.id, reason="not now")
        notify(engine, task_id=1)
        assert sender.send_due() == 1
        found = subscriptions.find(engine, mine.id)
        assert (found.status, found.disabled_reason) == (
            "0",
            f"the receiver answered 410 to {only(engine).webhook_id}",
        )
        assert subscriptions.find(engine, other.id).disabled_reason == "not now"
        assert only(engine).status == "DEAD"
        assert notify(engine, task_id=2) == 0
    assert len(receiver.received) == 1


def test_gone_does_not_disable_a_subscription_that_has_another_callback_by_now(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    with receiving(answers(410)) as receiver, sending(engine, tmp_path, clock=Clock()) as sender:
        moved = subscribe(engine, tmp_path, receiver.url())
        notify(engine)
        with engine.begin() as connection:
            connection.execute(update(metrics_webhook_subscription).values(callback_url=receiver.url("/new")))
        assert sender.send_due() == 1
    assert only(engine).status == "DEAD"
    assert subscriptions.find(engine, moved.id).status == "1"


def test_a_delivery_is_sent_while_one_of_its_subscriptions_still_wants_it(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    with receiving() as receiver, sending(engine, tmp_path, clock=Clock()) as sender:
        first = subscribe(engine, tmp_path, receiver.url())
        second = subscribe(engine, tmp_path, receiver.url(), "KD1002")
        notify(engine, task_id=1)
        subscriptions.disable(engine, first.id, reason="test")
        assert sender.send_due() == 1
        subscriptions.enable(engine, first.id)
        notify(engine, task_id=2)
        subscriptions.remove(engine, first.id)
        subscriptions.disable(engine, second.id, reason="test")
        assert sender.send_due() == 0
    assert len(receiver.received) == 1
    unsent, sent = deliveries.list_newest(engine)
    assert (sent.status, unsent.status, unsent.attempts) == ("DELIVERED", "DEAD", ())
    assert unsent.last_error == "every subscription of it was disabled or removed"


@sqlite
def test_each_kind_of_secret_goes_where_it_belongs_and_the_signature_verifies(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    with receiving() as receiver, sending(engine, tmp_path, clock=Clock()) as sender:
        hooks = {
            "/query?a=1": "Query,token,a b&c,d",
            "/bare": "Query,token,abc123",
            "/header": "Header,Authorization,Bearer a,b",
            "/body": 'Body,json,{"appId":"x","nested":{"k":[1,"ü"]}}',
        }
        for path, secret in hooks.items():
            subscribe(engine, tmp_path, receiver.url(path), secret=secret, signing_secret=SIGNING)
        notify(engine)
        assert sender.send_due() == 4
    by_path = {request.path: request for request in receiver.received}
    assert set(by_path) == {"/query?a=1&token=a%20b%26c%2Cd", "/bare?token=abc123", "/header", "/body"}
    assert by_path["/header"].headers["authorization"] == "Bearer a,b"
    plain = by_path["/header"].body
    assert json.loads(by_path["/body"].body) == json.loads(plain) | {"appId": "x", "nested": {"k": [1, "ü"]}}
    assert list(json.loads(by_path["/body"].body))[:5] == list(json.loads(plain))
    for request in receiver.received:
        head = f"{request.id}.{request.headers['webhook-timestamp']}.".encode()
        digest = hmac.new(b"0123456789abcdef0123456789abcdef", head + request.body, hashlib.sha256).digest()
        assert request.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
        assert request.headers["webhook-timestamp"] == str(int(EVENT.timestamp()))
        assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
        assert request.headers["content-type"] == "application/json"


@sqlite
def test_a_host_that_hangs_does_not_keep_the_others_waiting_whatever_callbacks_it_has(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_kpis(engine)
    # a look of one page sees nothing but deliveries to the host that hangs
    monkeypatch.setattr("platform_defs.webhooks.sender.PAGE", 4)
    monkeypatch.setattr("platform_defs.webhooks.sender.LEASE_S", LEASE_S)
    release = threading.Event()

    def hang(request: Received) -> tuple[int, bytes]:
        release.wait(PATIENCE_S)
        return 200, b""

    registry = CollectorRegistry()
    stop = threading.Event()
    with (
        receiving(hang) as slow,
        receiving() as quick,
        sending(engine, tmp_path, registry=registry) as sender,
    ):
        for number in range(10):
            subscribe(engine, tmp_path, slow.url(f"/{number}"))
        for task in range(2):
            notify(engine, task_id=task)
        thread = threading.Thread(target=sender.run, args=[stop])
        thread.start()
        try:
            until("the slow host to be busy", lambda: len(slow.received) >= 4)
            subscribe(engine, tmp_path, quick.url())
            notify(engine, task_id=99)
            until("the quick host to be called", lambda: quick.received)
            assert len(slow.received) == 4
        finally:
            release.set()
        name, outcome = "platform_webhook_attempts_total", {"outcome": "succeeded"}
        until("all attempts to be recorded", lambda: registry.get_sample_value(name, outcome) == 31)
        assert len(slow.received) == 30
        stop.set()
        thread.join()


def test_callbacks_share_the_turns_of_their_host_and_port_however_they_are_spelled() -> None:
    same = [
        "https://Hooks.example/a",
        "https://hooks.example:443/b?c",
        "https://u@hooks.example./",
        "HTTPS://hooks.EXAMPLE",
    ]
    others = ["http://hooks.example/a", "https://hooks.example:8443/a", "https://other.example/a", "not a URL"]
    assert {host_of(url) for url in same} == {Host("hooks.example", 443)}
    assert len({host_of(url) for url in [*same, *others]}) == 5
    waiting = list(enumerate([*same, *same, *others]))
    assert choose_deliveries(waiting, {}, 16) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert choose_deliveries(waiting, {same[1]: 2, same[2]: 1, others[0]: 4}, 3) == [0, 9, 10]


def test_a_running_sender_survives_a_database_that_does_not_answer(
    database_url: URL, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_engine(database_url)
    stop = threading.Event()
    try:
        with receiving() as receiver, sending(engine, tmp_path) as sender:
            thread = threading.Thread(target=sender.run, args=[stop])
            thread.start()
            try:
                # no table is there yet: every look fails
                until("the complaint", lambda: "webhooks wait for the database" in caplog.text)
                migrate.upgrade(engine)
                with_kpis(engine)
                subscribe(engine, tmp_path, receiver.url())
                notify(engine)
                until("the delivery to be recorded", lambda: only(engine).status == "DELIVERED")
                assert len(receiver.received) == 1
            finally:
                stop.set()
                thread.join()
    finally:
        engine.dispose()


@sqlite
def test_a_network_that_any_system_may_reach_is_open_to_webhooks_too(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    with_kpis(engine)

    def send_due() -> int:
        sender = open_sender(Settings.load(), engine)
        try:
            return sender.send_due()
        finally:
            sender.close()

    with receiving() as receiver:
        subscribe(engine, tmp_path, receiver.url(), retry_num=0)
        notify(engine)
        assert (send_due(), receiver.received) == (1, [])
        monkeypatch.setenv("PLATFORM_HTTP_ALLOW", "127.0.0.0/8")
        assert deliveries.redeliver_all(engine) == 1
        assert (send_due(), len(receiver.received)) == (1, 1)


def test_any_system_has_its_own_message_delivered_without_a_subscription(engine: Engine, tmp_path: Path) -> None:
    message = Message(event_id=7, subject="pubmed", batch="2025-12-19", body='{"event":"HARVESTED"}', at=EVENT)
    with receiving(answers(500, 410, 200)) as receiver, sending(engine, tmp_path) as sender:
        recipient = Recipient("a" * 64, receiver.url(), None, None, retry_num=0, subscription_ids=())
        for _ in range(2):
            with engine.begin() as connection:
                deliveries.write(connection, message, [recipient])
        for status in ("DEAD", "DEAD", "DELIVERED"):
            assert sender.send_due() == 1
            assert only(engine).status == status
            deliveries.redeliver_all(engine)
    assert {request.body for request in receiver.received} == {b'{"event":"HARVESTED"}'}
