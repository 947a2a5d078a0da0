"""Servers that misbehave: one between a client and the real one, and one that answers what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress


class Proxy:
    """Passes requests on, and loses some answers after the server has done the work."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self.port = 0
        self.lose: Callable[[bytes], bool] = lambda _request: False
        self.requests: list[bytes] = []

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Proxy]:
        async with _serving(self._serve) as self.port:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back = None
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._behind)
            while True:
                request = await read_message(reader)
                self.requests.append(request)
                back.write(request)
                answer = await read_message(there)
                if self.lose(request):
                    return
                writer.write(answer)
        except (EOFError, ConnectionError):
            pass
        finally:
            if back is not None:
                back.transport.abort()


async def read_message(reader: asyncio.StreamReader) -> bytes:
    """Return one request or answer with its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(
        (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
    )
    return head + await reader.readexactly(size)


@asynccontextmanager
async def answering(answer: bytes | Callable[[int], bytes], pause_s: float = 0.0) -> AsyncIterator[str]:
    """Serve the same bytes to all, or those of a function of the request's number; yields its URL."""
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        with suppress(EOFError, ConnectionError):
            while True:
                await read_message(reader)
                count += 1
                await asyncio.sleep(pause_s)
                writer.write(answer if isinstance(answer, bytes) else answer(count))
                await writer.drain()
                if not isinstance(answer, bytes) or b"content-length" not in answer.lower():
                    return

    async with _serving(serve) as port:
        yield f"http://127.0.0.1:{port}"


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _serving(serve: Serve) -> AsyncIterator[int]:
    """Serve connections at a port; none of them outlives it, or a later test would hear of it."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        finally:
            tasks.discard(task)
            writer.close()  # what was written is sent

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close in the next round
