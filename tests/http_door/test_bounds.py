"""Bounds of an exchange hold against servers that drip, flood, inflate, and send us elsewhere."""

import gzip
import socket
import ssl
import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from platform_defs.http_door.body import Body, read_body
from platform_defs.http_door.door import Door
from platform_defs.http_door.errors import Cancelled, Exhausted, RedirectRefused, UnreadableResponse
from platform_defs.http_door.policy import Redirects, RetryPolicy, Route
from tests.http_door.conftest import UNHURRIED, Opened, passage
from tests.http_door.source import Asked, Reply, answer, raw, serving

ONCE = RetryPolicy(max_attempts=1)


def get(url: str) -> httpx.Request:
    return httpx.Request("GET", url, headers={"X-Secret": "hunter2"})


def dripping(beginning: bytes, stop: threading.Event) -> Reply:
    """A byte now and then, for ever: each of them comes well within a read's own time limit."""

    def reply(asked: Asked, connection: socket.socket) -> None:
        connection.sendall(beginning)
        while not stop.wait(0.05):
            connection.sendall(b"x")

    return reply


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    stop = threading.Event()
    yield stop
    stop.set()


@pytest.mark.parametrize(
    "beginning", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Long: "]
)
def test_a_server_that_drips_is_left_when_the_total_time_is_over(
    opened: Opened, stop: threading.Event, beginning: bytes
) -> None:
    with serving(answer(200), dripping(beginning, stop)) as source:
        # a new connection has limits of its own, which a busy machine may miss first
        opened.door.send(get(source.url()), passage())
        with pytest.raises(Exhausted, match="whole request is over"):
            opened.door.send(get(source.url()), passage(retry=ONCE, timeouts=replace(UNHURRIED, total_s=0.5)))
        assert source.connections == 1


def test_a_server_that_is_silent_is_left_when_the_read_time_is_over(opened: Opened) -> None:
    with serving(raw(b"")) as source, pytest.raises(Exhausted, match="no byte within"):
        opened.door.send(get(source.url()), passage(retry=ONCE, timeouts=replace(UNHURRIED, read_s=0.5)))


def test_a_request_that_is_under_way_hears_that_the_caller_gave_up(opened: Opened) -> None:
    cancel = threading.Event()

    def reply(asked: Asked, connection: socket.socket) -> None:
        cancel.set()

    with serving(reply) as source, pytest.raises(Cancelled, match="under way"):
        opened.door.send(get(source.url()), passage(cancel=cancel))


def test_a_body_larger_than_allowed_is_not_read_to_its_end(opened: Opened) -> None:
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 3000
    with serving(raw(endless)) as source, pytest.raises(UnreadableResponse, match="expected at most 1000 bytes"):
        opened.door.send(get(source.url()), passage(max_bytes=1000))


def test_a_large_error_page_is_cut_and_does_not_hide_the_status(opened: Opened) -> None:
    with serving(answer(503, b"x" * 200_000)) as source, pytest.raises(Exhausted) as exhausted:
        opened.door.send(get(source.url()), passage(retry=ONCE))
    assert exhausted.value.response is not None
    assert len(exhausted.value.response.content) == 64 * 1024


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_bodies_are_read_within_the_same_bound(opened: Opened, encoding: str) -> None:
    press = gzip.compress if encoding == "gzip" else zlib.compress
    with serving(answer(200, press(b"page" * 1000), Content_Encoding=encoding)) as source:
        exchange = opened.door.send(get(source.url()), passage())
        assert exchange.response.content == b"page" * 1000
        assert "content-encoding" not in exchange.response.headers
        assert exchange.facts.wire_bytes < 200
    bomb = answer(200, press(bytes(50_000_000)), Content_Encoding=encoding)
    with serving(bomb) as source, pytest.raises(UnreadableResponse, match="at most 1000000 bytes"):
        opened.door.send(get(source.url()), passage(max_bytes=1_000_000))


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "zstd"])
def test_encodings_that_nobody_asked_for_are_refused(opened: Opened, encoding: str) -> None:
    with serving(answer(200, b"x", Content_Encoding=encoding)) as source:
        with pytest.raises(UnreadableResponse, match="expected Content-Encoding gzip, deflate"):
            opened.door.send(get(source.url()), passage())
        assert source.asked[0].headers["accept-encoding"] == "gzip, deflate"


def test_a_compressed_body_that_is_cut_off_is_tried_again(opened: Opened) -> None:
    whole = gzip.compress(b"page" * 10_000)
    with serving(
        answer(200, whole[:40], Content_Encoding="gzip"), answer(200, whole, Content_Encoding="gzip")
    ) as source:
        exchange = opened.door.send(get(source.url()), passage())
    assert len(exchange.response.content) == 40_000
    assert len(source.asked) == 2


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 131_072, 200_000])
@pytest.mark.parametrize("step", [1000, 10_000_000])
def test_bodies_of_every_size_are_decoded_whole(size: int, step: int) -> None:
    content = bytes(size)
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    for encoding, pressed in (
        ("gzip", gzip.compress(content)),
        ("gzip", gzip.compress(content[: size // 2]) + gzip.compress(content[size // 2 :])),
        ("deflate", zlib.compress(content)),
        ("deflate", bare.compress(content) + bare.flush()),
        ("", content),
    ):
        parts = [pressed[start : start + step] for start in range(0, len(pressed), step)]
        assert read_body(parts, encoding, max_bytes=size) == Body(content, len(pressed))


def test_redirects_are_followed_only_where_they_are_declared_and_stay_at_home(opened: Opened) -> None:
    with serving(answer(302, Location="/b?key=1"), answer(307, Location="/c"), answer(200, b"there")) as source:
        exchange = opened.door.send(get(source.url("/a")), passage(redirects=Redirects()))
        assert exchange.response.content == b"there"
        assert [asked.target for asked in source.asked] == ["/a", "/b?key=1", "/c"]
        assert {asked.headers["x-secret"] for asked in source.asked} == {"hunter2"}
        assert (exchange.facts.redirects, exchange.facts.permits, exchange.facts.retries) == (2, 3, 0)
    with serving(answer(302, Location="/again?key=1")) as source:
        with pytest.raises(RedirectRefused, match="expected at most 3 redirects") as refused:
            opened.door.send(get(source.url("/a")), passage(redirects=Redirects()))
        assert len(source.asked) == 4
        assert "key" not in str(refused.value)
    with serving(answer(302, Location="/b")) as source, pytest.raises(RedirectRefused, match="POST is never followed"):
        opened.door.send(httpx.Request("POST", source.url()), passage(redirects=Redirects()))


def test_another_origin_is_visited_only_by_name_and_sees_no_credential(opened: Opened) -> None:
    def sign(request: httpx.Request, last: httpx.Response | None) -> httpx.Request:
        request.headers["Authorization"] = "Bearer hunter2"
        return request

    with serving(answer(200, b"mirror")) as mirror, serving(answer(302, Location=mirror.url("/m"))) as source:
        with pytest.raises(RedirectRefused, match="another origin"):
            opened.door.send(get(source.url()), passage(redirects=Redirects(), prepare=sign))
        assert mirror.asked == []
        origin = mirror.url("")
        exchange = opened.door.send(
            get(source.url()), passage(redirects=Redirects(origins=frozenset({origin})), prepare=sign)
        )
        assert exchange.response.content == b"mirror"
        assert not {"authorization", "x-secret"} & set(mirror.asked[0].headers)
        assert mirror.asked[0].headers["host"] == origin.removeprefix("http://")


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://", "gopher://x/"])
def test_odd_places_are_not_visited(opened: Opened, location: str) -> None:
    with serving(answer(302, Location=location)) as source, pytest.raises(RedirectRefused):
        opened.door.send(get(source.url()), passage(redirects=Redirects()))


def test_proxies_come_from_the_route_and_never_from_the_environment(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serving(answer(200, b"direct")) as source, serving(answer(200, b"proxied")) as proxy:
        assert opened.door.send(get(source.url()), passage()).response.content == b"direct"
        by_proxy = passage(route=Route(proxy=proxy.url("")))
        assert opened.door.send(get(source.url("/x")), by_proxy).response.content == b"proxied"
        assert proxy.asked[0].target == source.url("/x")


def test_a_resolver_decides_which_addresses_are_connected(opened: Opened) -> None:
    class Forbidden(Exception):
        pass

    def refuse(host: str, port: int) -> list[str]:
        raise Forbidden(host)

    with serving(answer(200, b"found")) as source:
        url = source.url().replace("127.0.0.1", "source.test")
        with Door(opened.gate, resolver=lambda host, port: ["127.0.0.1"]) as door:
            assert door.send(get(url), passage()).response.content == b"found"
        with Door(opened.gate, resolver=refuse) as door, pytest.raises(Forbidden):
            door.send(get(source.url()), passage())
        assert len(source.asked) == 1


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a server with a certificate of its own making, and that certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    today = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "certificate.pem"
    pem.write_bytes(certificate.public_bytes(Encoding.PEM))
    key_pem = tmp_path / "key.pem"
    key_pem.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key_pem)
    with serving(answer(200, b"secret page"), tls=context) as source:
        yield source.url().replace("http://127.0.0.1", "https://localhost"), pem


def test_certificates_are_checked(opened: Opened, secure: tuple[str, Path]) -> None:
    url, pem = secure
    with pytest.raises(Exhausted, match="certificate verify failed"):
        opened.door.send(get(url), passage(retry=ONCE))
    with Door(opened.gate, tls=ssl.create_default_context(cafile=str(pem))) as door:
        assert door.send(get(url), passage()).response.content == b"secret page"
        with pytest.raises(Exhausted, match="certificate verify failed"):
            door.send(get(url.replace("localhost", "127.0.0.1")), passage(retry=ONCE))
    assert opened.door.send(get(url), passage(route=Route(tls_verify=False))).response.content == b"secret page"


def test_an_error_whose_body_cannot_be_read_is_still_that_error(opened: Opened) -> None:
    with serving(answer(429, b"?", Content_Encoding="br", Retry_After="5"), answer(200)) as source:
        exchange = opened.door.send(get(source.url()), passage())
    assert exchange.facts.count_429 == 1
    assert opened.clock.monotonic() > 5
