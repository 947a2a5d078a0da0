"""Limits of requests: how many a visitor may send, how large they are, and how long they may take."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import msgspec
from starlette.types import Receive
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dgent.doors.http.errors import Gone, TooLarge, TooMany, TooSlow
from dgent.errors import InputError

MOST_KNOWN = 4096  # buckets that are kept
HEAD_BYTES = 65_536


class Limits(msgspec.Struct, frozen=True):
    """The limits of a visitor's requests."""

    body_bytes: int = 10 * 2**20
    blob_bytes: int = 4 * 2**30  # of one blob, which is never in memory as a whole
    rate: float = 5_000  # requests a second with one token
    burst: float = 10_000
    wrong_rate: float = 5  # wrong tokens a second from one address
    wrong_burst: float = 50
    page: int = 1_000  # what `limit` may be at most
    connections: int = 1_000
    streams: int = 500  # of one token
    turns: int = 8  # of one agent at a time; half of them are for partners alone
    exports: int = 8  # that are kept as files until they are sent, of all visitors
    head_s: float = 10.0  # for the lines before the body
    body_s: float = 30.0  # for the whole body


class Places:
    """A few places, each for something that takes room until it is over."""

    def __init__(self, most: int) -> None:
        self._left = most

    @contextmanager
    def take(self) -> Iterator[None]:
        """Take a place; raises TooMany when all are taken."""
        if self._left < 1:
            raise TooMany(1.0)
        self._left -= 1
        try:
            yield
        finally:
            self._left += 1


class Buckets:
    """A bucket of tokens for each key, which fills at a rate; a request takes one."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> None:
        """Take from the bucket of a key; raises TooMany when it is empty."""
        now = time.monotonic()
        left, at = self._kept.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        enough = left >= 1
        self._kept[key] = (left - 1 if enough else left, now)
        if len(self._kept) > MOST_KNOWN:
            self._kept.popitem(last=False)
        if not enough:
            raise TooMany((1 - left) / self._rate)


async def read_body(headers: dict[bytes, bytes], receive: Receive, limits: Limits) -> bytes:
    """Return the body of a request; raises as soon as it is too large or too slow."""
    check_encoding(headers)
    said = headers.get(b"content-length", b"0")
    if not said.isdigit() or len(said) > 18 or int(said) > limits.body_bytes:
        raise TooLarge
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.body_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                part = message.get("body", b"")
                size += len(part)
                if size > limits.body_bytes:
                    raise TooLarge
                parts.append(part)
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        raise TooSlow from None


async def stream_body(headers: dict[bytes, bytes], receive: Receive, limits: Limits) -> AsyncIterator[bytes]:
    """Yield the parts of a body as they come; each has as long as the whole of another body."""
    check_encoding(headers)
    said = headers.get(b"content-length", b"0")
    if not said.isdigit() or len(said) > 18 or int(said) > limits.blob_bytes:
        raise TooLarge
    size, more = 0, True
    while more:
        try:
            async with asyncio.timeout(limits.body_s):
                message = await receive()
        except TimeoutError:
            raise TooSlow from None
        if message["type"] == "http.disconnect":
            raise Gone
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > limits.blob_bytes:
            raise TooLarge
        if part:
            yield part


def check_encoding(headers: dict[bytes, bytes]) -> None:
    """Refuse a compressed body: its size says nothing about what it becomes."""
    if headers.get(b"content-encoding", b"identity").lower() not in (b"", b"identity"):
        raise InputError("a body must not be compressed", hint="leave out Content-Encoding")


class PatientProtocol(HttpToolsProtocol):
    """The protocol of a connection, which bounds the head of a request: its time, and its bytes.

    Anything but a body is bounded at any time: a client may send the lines behind a body in parts, or the
    next request while the answer to one is still sent.
    """

    head_s = Limits().head_s
    _waiting: asyncio.TimerHandle | None = None
    _unread = 0  # bytes that were neither a whole header nor a part of a body
    _header_bytes = 0  # of this request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        if self._waiting is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        self._unread += len(data)
        super().data_received(data)
        if self._unread > HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """Begin to count the bytes of a head."""
        self._header_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; too many of them are no request."""
        self._unread = 0
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEAD_BYTES:
            raise ValueError("too many headers")  # the parser reports it, and the connection is closed
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop waiting: the head is complete."""
        self._stop_waiting()
        self._unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, whose size is bounded where it is read."""
        self._unread = 0
        super().on_body(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting: nobody is there."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._waiting = self.loop.call_later(self.head_s, self._refuse, b"408 Request Timeout")

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _refuse(self, status: bytes) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            self.transport.close()


def protocol_of(limits: Limits) -> type[PatientProtocol]:
    """Return the protocol of connections with these limits."""
    return type("LimitedProtocol", (PatientProtocol,), {"head_s": limits.head_s})
