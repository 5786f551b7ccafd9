"""Reads a request body: bounded after decompression, gzip by header or by magic bytes, strict JSON."""

import asyncio
import contextlib
import json
import math
import zlib
from typing import Annotated, Any, NoReturn

from fastapi import Depends, Request

from platform_defs.api.http.errors import ApiError

GZIP_MAGIC = b"\x1f\x8b"
GZIP_WBITS = 31
PIECE = 256 * 1024
MAX_DEPTH = 100
# More than any known client needs; a body that arrives byte by byte must not occupy a request for ever.
READ_TIMEOUT_S = 30.0
# How much of a body that is too large is read and thrown away before it is refused.
MAX_DISCARDED = 256 * 1024 * 1024


async def json_body(request: Request) -> Any:
    """The parsed body, as a dependency. An endpoint must name it after the dependency that authenticates."""
    return parse_json(await read_body(request, request.app.state.settings.body_limit))


JsonBody = Annotated[Any, Depends(json_body)]


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body, decompressed. Memory never holds more than the limit and one piece of it."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise ApiError(
            415, "Content-Encoding: expected gzip, identity or none at all", headers={"Accept-Encoding": "gzip"}
        )
    declared = request.headers.get("content-length", "")
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            if declared.isdecimal() and int(declared) > limit:
                await discard_body(request)
                raise _too_large(limit)
            try:
                return await _read(request, limit, gzipped=encoding in ("gzip", "x-gzip"), sniff=encoding == "")
            except ApiError as error:
                if error.status == 413:
                    await discard_body(request)
                raise
    except TimeoutError:
        raise ApiError(
            408, f"expected the whole body within {READ_TIMEOUT_S:.0f} seconds", headers={"Connection": "close"}
        ) from None


def parse_json(body: bytes) -> Any:
    """Parses strict JSON: UTF-8, finite numbers, bounded nesting. An error says where the body breaks the rules."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ApiError(400, f"expected JSON in UTF-8; the byte at offset {error.start} is not") from None
    if not text.strip():
        raise ApiError(400, "expected a JSON body, got an empty one")
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_finite)
    except json.JSONDecodeError as error:
        raise ApiError(400, f"expected valid JSON; line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        # The only other ValueError: an integer with more digits than Python converts.
        raise ApiError(400, f"expected valid JSON; a number is too long: {str(error).split(';')[0]}") from None
    if text.count("{") + text.count("[") > MAX_DEPTH:
        _check_depth(value)
    return value


async def discard_body(request: Request) -> None:
    """Reads the rest of a body that is refused: a client that is still sending would not see the answer."""
    left = MAX_DISCARDED
    # Starlette raises a RuntimeError if the body has been read to its end already
    with contextlib.suppress(RuntimeError, TimeoutError):
        async with asyncio.timeout(READ_TIMEOUT_S):
            async for chunk in request.stream():
                left -= len(chunk)
                if left < 0:
                    return


async def _read(request: Request, limit: int, *, gzipped: bool, sniff: bool) -> bytes:
    body = bytearray()
    gunzip = Gunzip(limit) if gzipped else None
    async for chunk in request.stream():
        if sniff and gunzip is None:
            body += chunk
            if len(body) < len(GZIP_MAGIC):
                continue
            sniff = False
            if body.startswith(GZIP_MAGIC):
                gunzip, chunk, body = Gunzip(limit), bytes(body), bytearray()
            else:
                chunk = b""
        if gunzip is None:
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
        else:
            await gunzip.feed(chunk)
    return bytes(body) if gunzip is None else gunzip.finish()


class Gunzip:
    """Inflates gzip piece by piece and stops at the limit, however much the compressed data would expand to."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._output = bytearray()
        self._received = 0
        self._member = zlib.decompressobj(GZIP_WBITS)
        self._started = False

    async def feed(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > self._limit:
            raise _too_large(self._limit)
        while data:
            data = self._inflate(data)
            if len(self._output) > self._limit:
                raise _too_large(self._limit)
            # Inflating blocks the event loop: other requests get their turn after every piece.
            await asyncio.sleep(0)

    def finish(self) -> bytes:
        if self._started:
            raise ApiError(400, "expected a complete gzip body; this one ends too early")
        return bytes(self._output)

    def _inflate(self, data: bytes) -> bytes:
        """Inflates one piece and returns the input that is left."""
        if not self._started:
            # Some writers pad the end with zeros, which do not start another gzip member.
            data = data.lstrip(b"\0") if self._output else data
            if not data:
                return b""
            self._started = True
        try:
            self._output += self._member.decompress(data, PIECE)
        except zlib.error:
            raise ApiError(400, "expected valid gzip; this body is corrupted or not gzip at all") from None
        if not self._member.eof:
            return self._member.unconsumed_tail
        rest = self._member.unused_data
        self._member, self._started = zlib.decompressobj(GZIP_WBITS), False
        return rest


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise _too_deep()


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ApiError(400, "expected valid JSON; a number is outside the range of a double")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ApiError(400, f"expected valid JSON; {name} is not a JSON number")


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"expected a body of at most {limit} bytes after decompression")


def _too_deep() -> ApiError:
    return ApiError(400, f"expected JSON nested at most {MAX_DEPTH} levels deep")
