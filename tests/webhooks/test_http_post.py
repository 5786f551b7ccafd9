"""One attempt on the wire: the address it calls, what it makes of an answer, TLS by name, and its time limit."""

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy import Engine

from platform_defs.store.tables.webhooks import metrics_webhook_subscription
from platform_defs.webhooks import deliveries
from tests.waiting import PATIENCE_S
from tests.webhooks.receiver import (
    Clock,
    Receiver,
    answers,
    notify,
    only,
    receiving,
    sending,
    subscribe,
    with_kpis,
)

sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@sqlite
def test_a_redirect_is_a_failed_attempt_and_nothing_follows_it(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    with receiving() as inner, receiving(answers(307)) as receiver:
        receiver.more_headers["Location"] = inner.url("/metadata")
        subscribe(engine, tmp_path, receiver.url())
        notify(engine)
        with sending(engine, tmp_path, clock=Clock()) as sender:
            assert sender.send_due() == 1
    assert inner.received == []
    attempt = only(engine).attempts[0]
    assert (attempt.http_status, attempt.error) == (307, "answered 307; redirects are not followed")


@sqlite
def test_the_address_that_was_checked_is_the_one_that_is_called(engine: Engine, tmp_path: Path) -> None:
    """The name exists nowhere else: a second lookup by anybody would fail, or find the second answer."""
    with_kpis(engine)
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    clock = Clock()
    with receiving() as receiver:
        subscribe(engine, tmp_path, receiver.url(host="rebinding.invalid"))
        with sending(engine, tmp_path, clock=clock, resolver=rebinding) as sender:
            notify(engine, task_id=1)
            assert sender.send_due() == 1
            assert asked == ["rebinding.invalid"]
            assert receiver.received[0].headers["host"] == f"rebinding.invalid:{receiver.port}"
            notify(engine, task_id=2)
            assert sender.send_due() == 1
    assert len(receiver.received) == 1
    refused, delivered = deliveries.list_newest(engine)
    assert delivered.status == "DELIVERED"
    assert "169.254.169.254" in (refused.last_error or "")
    assert "PLATFORM_WEBHOOK_ALLOW" in (refused.last_error or "")


@sqlite
@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "localhost"])
def test_a_callback_inside_is_not_called_however_it_got_into_the_table(
    engine: Engine, tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_kpis(engine)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with receiving() as receiver:
        row = {"kpi_id": "KD1001", "callback_url": receiver.url(host=host), "retry_num": 0}
        with engine.begin() as connection:
            connection.execute(metrics_webhook_subscription.insert().values(row))
        notify(engine)
        with sending(engine, tmp_path, clock=Clock(), allow=()) as sender:
            assert sender.send_due() == 1
        assert receiver.received == []
        assert "is not a public address" in (only(engine).last_error or "")
        deliveries.redeliver(engine, only(engine).id)
        with sending(engine, tmp_path) as sender:
            sender.send_due()
        assert len(receiver.received) == 1, "allowed by the operator it is called, and no proxy is asked"


@contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Any:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)

        def accept() -> None:
            try:
                connection, _ = listener.accept()
                with connection:
                    serve(connection)
            except OSError:
                return

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends an accept that nobody has connected to
            thread.join()


@sqlite
def test_an_answer_that_drips_is_given_up_after_the_time_limit(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)

    def drip(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X-Drip: 1\r\n")
            time.sleep(0.05)

    with raw_server(drip) as port, sending(engine, tmp_path, clock=Clock(), attempt_s=0.4) as sender:
        subscribe(engine, tmp_path, f"http://127.0.0.1:{port}/")
        notify(engine)
        assert sender.send_due() == 1
    assert only(engine).attempts[0].error == "no answer in time"


@sqlite
@pytest.mark.parametrize(
    ("spoken", "error"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "the answer is not HTTP"),
        (b"", "the answer is not HTTP, or ended"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "the answer is not HTTP"),
    ],
)
def test_an_answer_that_is_none_is_a_failed_attempt(engine: Engine, tmp_path: Path, spoken: bytes, error: str) -> None:
    with_kpis(engine)

    def speak(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(spoken)

    with raw_server(speak) as port, sending(engine, tmp_path, clock=Clock()) as sender:
        subscribe(engine, tmp_path, f"http://127.0.0.1:{port}/")
        notify(engine)
        assert sender.send_due() == 1
    assert (only(engine).attempts[0].error or "").startswith(error)
    assert only(engine).status == "PENDING"


def test_at_most_a_kibibyte_of_an_answer_is_kept(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    with (
        receiving(lambda request: (500, "ü".encode() * 4_000_000)) as receiver,
        sending(engine, tmp_path, clock=Clock()) as sender,
    ):
        subscribe(engine, tmp_path, receiver.url())
        notify(engine)
        assert sender.send_due() == 1
    kept = only(engine).attempts[0].answer or ""
    assert set(kept) == {"ü"}
    assert 1000 < len(kept.encode()) <= 1024


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    moment = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(moment - timedelta(days=1))
        .not_valid_after(moment + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / "certificate.pem", folder / "key.pem"
    pem.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem, secret


def speak_tls(receiver: Receiver, pem: Path, key: Path) -> list[str | None]:
    """The receiver behind TLS; the list fills with the names that clients ask for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    names: list[str | None] = []
    context.sni_callback = lambda connection, name, context: names.append(name)
    # the handshake belongs into the handler's thread: one that fails must not end the server
    receiver.server.socket = context.wrap_socket(
        receiver.server.socket, server_side=True, do_handshake_on_connect=False
    )
    receiver.server.handle_error = lambda request, address: None  # type: ignore[method-assign]
    return names


@sqlite
def test_tls_is_verified_against_the_name_although_the_address_is_called(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    pem, key = certificate(tmp_path, "hooks.example")
    trusting = ssl.create_default_context(cafile=str(pem))
    options: dict[str, Any] = {"clock": Clock(), "resolver": lambda host, port: ["127.0.0.1"]}
    with receiving() as receiver:
        names = speak_tls(receiver, pem, key)
        for host in ("hooks.example", "other.example"):
            subscribe(engine, tmp_path, f"https://{host}:{receiver.port}/hook")
        notify(engine)
        with sending(engine, tmp_path, tls=trusting, **options) as sender:
            assert sender.send_due() == 2
        assert sorted(filter(None, names)) == ["hooks.example", "other.example"]
        by_url = {
            delivery.callback_url.split("/")[2].split(":")[0]: delivery for delivery in deliveries.list_newest(engine)
        }
        assert by_url["hooks.example"].status == "DELIVERED"
        assert "certificate is not valid" in (by_url["other.example"].last_error or "")
        notify(engine, task_id=2)
        with sending(engine, tmp_path, **options) as sender:
            sender.send_due()
    assert len(receiver.received) == 1, "without our CA nothing is sent at all"


def test_a_secret_that_cannot_be_read_is_a_failed_attempt_that_says_so(engine: Engine, tmp_path: Path) -> None:
    with_kpis(engine)
    with receiving() as receiver, sending(engine, tmp_path, clock=Clock()) as sender:
        subscribe(engine, tmp_path, receiver.url(), secret="Header,X-Key,env:NOT_SET_ANYWHERE")
        another = tmp_path / "another home"
        another.mkdir()
        subscribe(engine, another, receiver.url("/b"), secret="Header,X-Key,literal")
        notify(engine)
        assert sender.send_due() == 2
    assert receiver.received == []
    errors = sorted(delivery.last_error or "" for delivery in deliveries.list_newest(engine))
    assert errors[0] == "secret env:NOT_SET_ANYWHERE is not set"
    assert errors[1].startswith("the key of webhook secrets")
