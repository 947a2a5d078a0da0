"""Servers that misbehave: one between a client and the real one, and one that answers what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
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
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._behind)
        try:
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
            for each in (writer, back):
                each.close()
                with suppress(ConnectionError):
                    await each.wait_closed()


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
        try:
            while True:
                await read_message(reader)
                count += 1
                await asyncio.sleep(pause_s)
                writer.write(answer if isinstance(answer, bytes) else answer(count))
                await writer.drain()
                if not isinstance(answer, bytes) or b"content-length" not in answer.lower():
                    return
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
