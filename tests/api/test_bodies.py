"""What a body may be: bounded, gzipped or not, strict JSON; every refusal says what was expected."""

import gzip
import json
import socket
import zlib
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest

from platform_defs.api.http.bodies import MAX_DEPTH
from tests.api.lineage_client import PATH as LINEAGE_PATH
from tests.api.serving import Api
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
PATH = "/api/open/kpi/srcTableComplete"
LIMIT = 16 << 20


@pytest.fixture
def send(api: Api, authorization: dict[str, str]) -> Any:
    def post(content: bytes | Iterator[bytes], **headers: str) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = api.client.post(PATH, content=content, headers={**authorization, **named})
        body = answer.json()
        assert set(body) == {"status", "message"}
        return answer.status_code, body["message"]

    return post


def is_read(answer: tuple[int, str]) -> bool:
    """Whether the body reached the handler whole, which then misses what an arrival says."""
    status, message = answer
    return status == 400 and message.startswith(("body: expected a JSON object with", "srcTableName: "))


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


@pytest.mark.parametrize("path", [PATH, LINEAGE_PATH])
@pytest.mark.parametrize(("mib", "chunked"), [(17, False), (17, True), (40, True)])
def test_a_body_of_17_mib_and_more_is_read_to_its_end_and_answered_413(
    path: str, mib: int, chunked: bool, api: Api, authorization: dict[str, str]
) -> None:
    """Over a bare socket, because httpx forgives a server that closes the connection while the body is on its way.

    Of a body of 17 MiB whose length is not declared, what the server would leave unread may fit into the socket.
    """
    body = json.dumps("x" * (mib << 20)).encode()
    framing = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(len(body))}
    head = [
        f"POST {path} HTTP/1.1",
        *(f"{name}: {text}" for name, text in ({"Host": "x"} | authorization | framing).items()),
    ]
    place = urlsplit(api.url)
    with socket.create_connection((str(place.hostname), place.port), timeout=PATIENCE_S) as wire:
        wire.sendall("\r\n".join([*head, "", ""]).encode())
        for piece in pieces(body, 1 << 20):
            wire.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            wire.sendall(b"0\r\n\r\n")
        answer = HTTPResponse(wire)
        answer.begin()
        told = json.loads(answer.read())
    assert (answer.status, told["status"]) == (413, "payload_too_large")
    assert f"expected a body of at most {LIMIT} bytes" in told["message"]
    assert answer.getheader("Retry-After") is None


def test_a_body_of_exactly_the_limit_is_read(send: Any) -> None:
    body = json.dumps("x" * (LIMIT - 2)).encode()
    assert len(body) == LIMIT
    assert is_read(send(body))
    assert is_read(send(gzip.compress(body, 1)))
    assert send(body + b" ")[0] == 413
    assert send(gzip.compress(body + b" ", 1))[0] == 413


def test_gzip_is_known_by_its_header_and_by_its_magic_bytes(send: Any) -> None:
    packed = gzip.compress(json.dumps({"a": "b" * 5000}).encode())
    assert is_read(send(packed, Content_Encoding="gzip"))
    assert is_read(send(packed, Content_Encoding="x-gzip"))
    assert is_read(send(packed))
    for size in (1, 3, 1000):
        assert is_read(send(pieces(packed, size)))
        assert is_read(send(pieces(packed, size), Content_Encoding="GZIP"))


def test_several_gzip_members_and_zeros_behind_them_are_one_body(send: Any) -> None:
    packed = gzip.compress(b'{"a":') + gzip.compress(b"") + gzip.compress(b"1}") + b"\0" * 512
    assert is_read(send(packed))
    assert is_read(send(pieces(packed, 1)))


def test_a_body_that_inflates_to_about_one_piece_is_whole(send: Any) -> None:
    for length in range((256 << 10) - 3, (256 << 10) + 300, 37):
        packed = gzip.compress(json.dumps("x" * length).encode())
        assert is_read(send(packed))
        assert is_read(send(pieces(packed, 7)))


@pytest.mark.parametrize("encoding", ["deflate", "br", "gzip, gzip", "zstd"])
def test_other_encodings_are_415(send: Any, encoding: str) -> None:
    status, message = send(zlib.compress(b"{}"), Content_Encoding=encoding)
    assert status == 415
    assert "expected gzip" in message


def test_broken_gzip_is_400(send: Any) -> None:
    packed = gzip.compress(json.dumps({"a": "b" * 5000}).encode())
    for broken in (packed[:-1], packed[: len(packed) // 2], packed[:2], packed[:20] + b"\xff" * 20, packed + b"junk"):
        status, message = send(broken)
        assert status == 400
        assert "expected" in message
        assert "gzip" in message
    assert send(b"{}", Content_Encoding="gzip")[0] == 400


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": ', "line 1 column 7"),
        (b'{"a": 1,\n "b" 2}', "line 2 column 6"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"a": NaN}', "NaN is not"),
        (b'{"a": -Infinity}', "-Infinity is not"),
        (b'{"a": 1e999}', "outside the range of a double"),
        (b"1" * 5000, "a number is too long"),
        (b'{"a": "\xff"}', "byte at offset 7"),
        (b"[" * 101 + b"]" * 101, "at most 100 levels"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "at most 100 levels"),
        (b"[" * 1_000_000, "at most 100 levels"),
        (b'{"a":' * 1_000_000, "at most 100 levels"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_invalid_json_is_400_and_says_where(send: Any, body: bytes, expected: str) -> None:
    status, message = send(body)
    assert status == 400
    assert message.startswith("expected ")
    assert expected in message


def test_json_nested_a_hundred_deep_with_a_byte_order_mark_is_read(send: Any) -> None:
    assert is_read(send(b"\xef\xbb\xbf" + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH))
    assert is_read(send(json.dumps("[" * 500).encode()))
