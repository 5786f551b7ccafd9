"""Reads a response's body within a bound, which also holds for what it decompresses to."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

ENCODINGS = "gzip, deflate"
_GZIP = 16 + zlib.MAX_WBITS
_READ_AT_ONCE = 64 * 1024


class TooLarge(Exception):
    """The body has more bytes than allowed, compressed or not."""


class UnknownEncoding(Exception):
    """The body is in an encoding that was not asked for, or is broken."""


class CutOff(Exception):
    """The compressed body ends in the middle."""


@dataclass(frozen=True)
class Body:
    content: bytes
    # as it came over the wire
    wire_bytes: int


def read_body(parts: Iterable[bytes], encoding: str, *, max_bytes: int) -> Body:
    """The whole body, decoded."""
    decoder = _decoder(encoding)
    content = bytearray()
    wire_bytes = 0
    for part in parts:
        wire_bytes += len(part)
        for piece in decoder.decode(part):
            content += piece
            if len(content) > max_bytes:
                raise TooLarge
    if wire_bytes and not decoder.is_complete:
        raise CutOff
    return Body(bytes(content), wire_bytes)


def read_beginning(parts: Iterable[bytes], encoding: str, *, max_bytes: int) -> Body:
    """As much of the body as is allowed and can be decoded: for answers whose status says enough by itself."""
    content = bytearray()
    wire_bytes = 0
    try:
        decoder = _decoder(encoding)
        for part in parts:
            wire_bytes += len(part)
            for piece in decoder.decode(part):
                content += piece
                if len(content) >= max_bytes:
                    return Body(bytes(content[:max_bytes]), wire_bytes)
    except UnknownEncoding:
        pass
    return Body(bytes(content), wire_bytes)


class _Plain:
    is_complete = True

    def decode(self, data: bytes) -> Iterable[bytes]:
        yield data


class _Inflating:
    """In pieces of 64 KiB: one part of a hostile body may stand for a thousand times its size."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._inflater = zlib.decompressobj(bits)
        self._has_begun = False

    @property
    def is_complete(self) -> bool:
        return self._inflater.eof

    def decode(self, data: bytes) -> Iterable[bytes]:
        is_full = False
        # a full piece may leave output behind although all input is consumed
        while data or is_full:
            if self._inflater.eof:
                # further members of a gzip file
                self._inflater = zlib.decompressobj(self._bits)
            piece = self._inflate(data)
            yield piece
            is_full = len(piece) == _READ_AT_ONCE and not self._inflater.eof
            data = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail

    def _inflate(self, data: bytes) -> bytes:
        try:
            piece = self._inflater.decompress(data, _READ_AT_ONCE)
        except zlib.error:
            if self._has_begun or self._bits != zlib.MAX_WBITS:
                raise UnknownEncoding("the compressed body is broken") from None
            # `deflate` means zlib, but some servers send the bare stream
            self._bits = -zlib.MAX_WBITS
            self._inflater = zlib.decompressobj(self._bits)
            return self._inflate(data)
        self._has_begun = True
        return piece


def _decoder(encoding: str) -> _Plain | _Inflating:
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Inflating(_GZIP)
        case "deflate":
            return _Inflating(zlib.MAX_WBITS)
    raise UnknownEncoding(f"expected Content-Encoding {ENCODINGS}, got {encoding[:40]!r}")
