"""Requests to a server: a few connections that stay open, each with one request at a time."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, NoReturn

from dgent.errors import Closed, InputError, OutcomeUnknown, Unavailable
from dgent.store.remote.address import Address
from dgent.store.remote.errors import Broken, Garbled

MOST_HEAD = 65_536
MOST_ANSWER = 256 * 2**20
CONNECT_S = 10.0
IDLE_S = 20.0  # servers close idle connections after 30
PAUSES_S = (0.0, 0.05, 0.3)  # before the tries of a request that may be sent again
MOST_PAUSE_S = 5.0


class Answer(NamedTuple):
    """An answer of a server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """The type of its body."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Connection:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._used_at = time.monotonic()
        self.open = True

    @property
    def stale(self) -> bool:
        """True if the server has closed it, or may be about to."""
        return self._reader.at_eof() or time.monotonic() - self._used_at > IDLE_S

    async def ask(self, request: bytes) -> Answer:
        """Send a request and return the answer; it is closed unless a whole answer was read."""
        whole = False
        try:
            self._writer.write(request)
            await self._writer.drain()
            answer = await self._read_answer()
            whole = True
        except (OSError, EOFError, asyncio.IncompleteReadError, ssl.SSLError) as error:
            raise Broken(_reason_of(error), sent=True) from None
        except asyncio.LimitOverrunError:
            raise Garbled(f"its head is longer than {MOST_HEAD} bytes") from None
        finally:
            if not whole:
                self.close()
        self._end(answer.headers)
        return answer

    async def send(self, data: bytes) -> None:
        """Send a part of a request."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (OSError, ssl.SSLError) as error:
            self.close()
            raise Broken(_reason_of(error), sent=True) from None

    async def read_answer(self) -> Answer:
        """Return the whole answer to what was sent."""
        try:
            answer = await self._read_answer()
        except BaseException as error:
            self.close()
            raise _translate(error) from None
        self._end(answer.headers)
        return answer

    async def read_head(self) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of an answer, whose body is not read yet."""
        try:
            return await self._read_head()
        except BaseException as error:
            self.close()
            raise _translate(error) from None

    async def read_parts(self, headers: dict[str, str], part_bytes: int) -> AsyncGenerator[bytes]:
        """Yield the body of an answer of a known length; it is closed unless all of it was read."""
        whole = False
        try:
            left = _size_of(headers.get("content-length", ""), 10, None)
            while left:
                part = await self._reader.readexactly(min(left, part_bytes))
                left -= len(part)
                yield part
            whole = True
        except (OSError, EOFError, ssl.SSLError) as error:
            raise _translate(error) from None
        finally:
            if not whole:
                self.close()
        self._end(headers)

    def _end(self, headers: dict[str, str]) -> None:
        self._used_at = time.monotonic()
        if headers.get("connection", "").lower() == "close":
            self.close()

    async def _read_head(self) -> tuple[int, dict[str, str]]:
        status, headers = _parse_head(await self._reader.readuntil(b"\r\n\r\n"))
        while 100 <= status < 200:
            status, headers = _parse_head(await self._reader.readuntil(b"\r\n\r\n"))
        return status, headers

    async def _read_answer(self) -> Answer:
        status, headers = await self._read_head()
        if status in (204, 304):
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return Answer(status, headers, await self._read_chunks())
        size = headers.get("content-length")
        if size is None:
            headers["connection"] = "close"
            body = await self._reader.read(MOST_ANSWER + 1)
            while part := await self._reader.read(MOST_ANSWER + 1 - len(body)):
                body += part
            if len(body) > MOST_ANSWER:
                raise Garbled(f"it is larger than {MOST_ANSWER:,} bytes")
            return Answer(status, headers, body)
        return Answer(status, headers, await self._reader.readexactly(_size_of(size, 10)))

    async def _read_chunks(self) -> bytes:
        parts: list[bytes] = []
        total = 0
        while True:
            line = await self._reader.readuntil(b"\r\n")
            size = _size_of(line.partition(b";")[0].strip().decode("latin-1"), 16)
            total += size
            if total > MOST_ANSWER:
                raise Garbled(f"it is larger than {MOST_ANSWER:,} bytes")
            if size == 0:
                while await self._reader.readuntil(b"\r\n") != b"\r\n":
                    pass
                return b"".join(parts)
            parts.append(await self._reader.readexactly(size))
            if await self._reader.readexactly(2) != b"\r\n":
                raise Garbled("a part of it does not end where it says")

    def close(self) -> None:
        """Close it, without waiting for the server."""
        self.open = False
        with suppress(Exception):
            self._writer.transport.abort()


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or len(words[1]) != 3 or not _is_number(words[1]):
        raise Garbled("it does not begin as HTTP does")
    headers: dict[str, str] = {}
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or (name == "content-length" and name in headers):
            raise Garbled("its head cannot be read")
        headers[name] = value.strip()
    return int(words[1]), headers


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()  # "²" is a digit too, and no number


def _size_of(text: str, base: int, most: int | None = MOST_ANSWER) -> int:
    digits = "0123456789abcdef"[:base]
    if not text or len(text) > 16 or text.lower().strip(digits):
        raise Garbled("it does not say how long it is")
    size = int(text, base)
    if most is not None and size > most:
        raise Garbled(f"it is larger than {most:,} bytes")
    return size


def _translate(error: BaseException) -> BaseException:
    if isinstance(error, OSError | EOFError | ssl.SSLError):
        return Broken(_reason_of(error), sent=True)
    if isinstance(error, asyncio.LimitOverrunError):
        return Garbled(f"its head is longer than {MOST_HEAD} bytes")
    return error


def _reason_of(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, asyncio.IncompleteReadError | EOFError):
        return "it closed the connection"
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


class Pool:
    """The connections to one server. A request waits while as many as there may be are in use."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._waiting: set[Connection] = set()  # for something to happen: closing ends that
        self._room = asyncio.Semaphore(address.pool)
        self._under_way = 0
        self._idle_again = asyncio.Event()
        self._closed = False
        self._tls: ssl.SSLContext | None = None

    async def ask(
        self,
        path: str,
        body: bytes,
        kind: str,
        *,
        again: bool = True,
        changes: bool = False,
        waits_s: float | None = None,
    ) -> Answer:
        """Send a POST; `again` says that it does no harm to send it twice, `changes` that it may write.

        The server may wait for `waits_s` before it answers; closing ends such a request. Raises Unavailable
        when the server cannot be reached or is too slow, and OutcomeUnknown when it may have written.
        """
        if self._closed:
            raise Closed("this handle is closed")
        self._under_way += waits_s is None
        try:
            return await self._ask(self._request_of(path, body, kind), again, changes, waits_s)
        finally:
            self._under_way -= waits_s is None
            if not self._under_way:
                self._idle_again.set()

    async def _ask(self, request: bytes, again: bool, changes: bool, waits_s: float | None) -> Answer:
        deadline = time.monotonic() + self.address.timeout_s + (waits_s or 0.0)
        place, tries, maybe_done = self.address.place, 0, False
        while True:
            try:
                async with asyncio.timeout_at(_loop_time(deadline)):
                    answer = await self._try(request, waits_s is not None)
            except TimeoutError:
                if changes:
                    raise _unknown(place, "it did not answer in time") from None
                raise Unavailable(f"{place} did not answer in time", hint="try again") from None
            except Garbled as error:
                raise Unavailable(f"the answer of {place} cannot be read: {error}") from None
            except Broken as error:
                if self._closed and waits_s is not None:
                    raise Closed("this handle was closed") from None
                tries += 1
                maybe_done = maybe_done or error.sent
                if (error.sent and not again) or tries >= len(PAUSES_S):
                    self._fail(error, maybe_done and changes)
                await asyncio.sleep(PAUSES_S[tries])
                continue
            if answer.status != 429:
                return answer
            pause = _pause_of(answer)
            if time.monotonic() + pause > deadline:
                return answer
            await asyncio.sleep(pause)

    def _fail(self, error: Broken, unknown: bool) -> NoReturn:
        place = self.address.place
        if unknown:
            raise _unknown(place, error.reason)
        raise Unavailable(f"{place} cannot be reached: {error.reason}", hint="is the server running there?")

    def _request_of(self, path: str, body: bytes, kind: str) -> bytes:
        return self.make_head("POST", path, {"Content-Type": kind, "Content-Length": str(len(body))}) + body

    def make_head(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        """Return the head of a request."""
        address = self.address
        lines = [f"{method} {address.prefix}{path} HTTP/1.1", f"Host: {address.authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if address.token:
            lines.append(f"Authorization: Bearer {address.token}")
        return "\r\n".join((*lines, "", "")).encode("ascii")

    @asynccontextmanager
    async def lend(self, fresh: bool) -> AsyncIterator[Connection]:
        """Lend a connection for a request whose body, or answer, is streamed; a `fresh` one is new.

        What cannot be reached, is too slow or makes no sense raises Unavailable.
        """
        if self._closed:
            raise Closed("this handle is closed")
        self._under_way += 1
        try:
            async with self._room:
                found = (None if fresh else self._take()) or await self._connect()
                self._busy.add(found)
                try:
                    yield found
                finally:
                    self._busy.discard(found)
                    if found.open and not self._closed and len(self._idle) < self.address.pool:
                        self._idle.append(found)
                    else:
                        found.close()
        except Broken as error:
            self._fail(error, False)
        except Garbled as error:
            raise Unavailable(f"the answer of {self.address.place} cannot be read: {error}") from None
        except TimeoutError:
            raise Unavailable(f"{self.address.place} did not answer in time", hint="try again") from None
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle_again.set()

    async def _try(self, request: bytes, waits: bool) -> Answer:
        if waits:  # it takes no room: many who wait must not keep others from working
            return await self._send(request, self._waiting)
        async with self._room:
            return await self._send(request, self._busy)

    async def _send(self, request: bytes, held: set[Connection]) -> Answer:
        found = self._take()
        if found is None:
            found = await self._connect()
        held.add(found)
        try:
            return await found.ask(request)
        finally:
            held.discard(found)
            if found.open and not self._closed and len(self._idle) < self.address.pool:
                self._idle.append(found)
            else:
                found.close()

    def _take(self) -> Connection | None:
        while self._idle:
            found = self._idle.pop()
            if not found.stale:
                return found
            found.close()
        return None

    async def _connect(self) -> Connection:
        address = self.address
        tls = self._context()
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, ssl=tls, limit=MOST_HEAD
                )
        except TimeoutError:
            raise Broken("it did not answer in time", sent=False) from None
        except (OSError, ssl.SSLError, UnicodeError) as error:
            raise Broken(_reason_of(error), sent=False) from None
        return Connection(reader, writer)

    def _context(self) -> ssl.SSLContext | None:
        if self.address.scheme != "https":
            return None
        if self._tls is None:
            try:
                self._tls = ssl.create_default_context(cafile=self.address.ca)
            except (OSError, ssl.SSLError) as error:
                raise InputError(
                    f"the certificates in {self.address.ca!r} cannot be read: {_reason_of(error)}", field="ca"
                ) from None
        return self._tls

    async def close(self) -> None:
        """Finish what is under way, and close all connections."""
        self._closed = True
        for connection in self._waiting:
            connection.close()
        if self._under_way:
            self._idle_again.clear()
            await self._idle_again.wait()  # each has its own time-out
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # the transports close in the next round


def _loop_time(deadline: float) -> float:
    return asyncio.get_running_loop().time() + (deadline - time.monotonic())


def _unknown(place: str, reason: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"it is not known whether {place} did what was asked: {reason}")


def _pause_of(answer: Answer) -> float:
    after = answer.headers.get("retry-after", "")
    return min(float(after), MOST_PAUSE_S) if _is_number(after) else 1.0
