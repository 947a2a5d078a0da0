"""Standard input and output as streams of messages, read and written by the event loop itself.

The transport of the SDK takes three hops to a thread for a request: most of the time of an empty call. Here a
line is read when the loop sees it, and an answer is written at once, as far as that cannot wait.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from dgent.system.standard import divert

READ = 1 << 16  # bytes at once
MOST_WAITING = 64  # lines that were read and not taken; more stay with the sender
CLOSE_S = 3  # for answers that the other end has not read when the server stops


def is_watchable() -> bool:
    """Return whether the event loop can watch standard input: not a file, nor anything on Windows."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return False
    return hasattr(select, "poll") and (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind))


@asynccontextmanager
async def open_pipes() -> AsyncIterator[tuple[Input, Output]]:
    """Give messages of standard input and for standard output, which others in this process cannot touch.

    Meanwhile file 0 is empty and file 1 is the error output, so that a stray `print` does not get between
    messages.
    """
    with divert(0, os.devnull) as source, divert(1, None) as target:
        read, write = Input(source), Output(target)
        try:
            yield read, write
        finally:
            await read.aclose()
            await write.aclose()


class Input:
    """Messages, one a line; a line that is not a message is given as the error that says why."""

    last_context = None  # no sender in this process, whose context a handler would need

    def __init__(self, file: int) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._part = bytearray()  # of a line whose end has not come
        self._lines: deque[bytearray] = deque()
        self._more: asyncio.Future[None] | None = None
        self._ended = self._watched = False
        self._watch(True)

    def _watch(self, wanted: bool) -> None:
        if wanted != self._watched:
            if wanted:
                self._loop.add_reader(self._file, self._read)
            else:
                self._loop.remove_reader(self._file)
            self._watched = wanted

    def _read(self) -> None:
        """Read what is there, which does not wait, since the loop saw that there is something."""
        try:
            found = os.read(self._file, READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            found = b""
        self._part += found
        if b"\n" in found or not found:
            *whole, rest = self._part.split(b"\n")
            if not found and rest:
                whole.append(rest)
                rest = bytearray()
            self._part = rest
            self._lines.extend(whole)
        self._ended = not found
        self._watch(not self._ended and len(self._lines) < MOST_WAITING)
        if (self._lines or self._ended) and self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or why a line is none; raises EndOfStream at the end."""
        while not self._lines:
            if self._ended:
                raise anyio.EndOfStream
            self._watch(True)
            self._more = self._loop.create_future()
            await self._more
        line = self._lines.popleft().decode("utf-8", "replace")
        try:
            return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
        except Exception as error:  # the transport of the SDK hands on any of them, too
            return error

    async def aclose(self) -> None:
        """Read no more."""
        self._watch(False)
        self._ended = True
        self._lines.clear()

    async def __aenter__(self) -> Input:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Input:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class Output:
    """Messages to write. A pipe that is ready takes `PIPE_BUF` bytes at least without making anyone wait."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._poll = select.poll()
        self._poll.register(file, select.POLLOUT)
        self._left = bytearray()  # of whole messages: a sender who is cancelled leaves none half written
        self._empty: asyncio.Future[None] | None = None
        self._closed = False

    async def send(self, item: SessionMessage) -> None:
        """Write a message; waits while the other end does not read. BrokenResourceError if that is closed."""
        if self._closed:
            raise anyio.ClosedResourceError
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if self._empty is None:
            self._left += line
            self._write()
            if not self._left:
                return
            self._empty = self._loop.create_future()
            self._loop.add_writer(self._file, self._go_on)
        else:
            self._left += line
        await asyncio.shield(self._empty)

    def _write(self) -> None:
        """Write as much as cannot wait."""
        try:
            while self._left and self._poll.poll(0):
                del self._left[: os.write(self._file, self._left[: select.PIPE_BUF])]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._left.clear()
            self._closed = True
            raise anyio.BrokenResourceError from None

    def _go_on(self) -> None:
        broken: BaseException | None = None
        try:
            self._write()
        except anyio.BrokenResourceError as error:
            broken = error
        if not self._left and self._empty is not None:
            self._loop.remove_writer(self._file)
            ended, self._empty = self._empty, None
            if broken is None:
                ended.set_result(None)
            else:
                ended.set_exception(broken)

    async def aclose(self) -> None:
        """Write what is left, and no more messages."""
        self._closed = True
        if self._empty is not None:
            await asyncio.wait([self._empty], timeout=CLOSE_S)
        if self._empty is not None:
            self._loop.remove_writer(self._file)

    async def __aenter__(self) -> Output:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
