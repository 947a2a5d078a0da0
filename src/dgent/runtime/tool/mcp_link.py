"""The connections to MCP servers: a process of our own, or an address. Both are bounded in what they read."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from dgent.config.command import command_environment
from dgent.config.mcp import McpServer
from dgent.errors import Unavailable
from dgent.system.process import close_pipes

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

MAX_LINE = 8 * 1024 * 1024  # bytes of one message of a server
MAX_ODD = 1_000  # lines that are not messages before a server is given up
MAX_ERRORS = 2_000  # bytes of its error output that are kept
GRACE_S = 1.0  # for a server to end by itself, then between the two signals

Streams: TypeAlias = "tuple[MemoryObjectReceiveStream[Any], MemoryObjectSendStream[Any]]"
Link: TypeAlias = "AbstractAsyncContextManager[Any]"


class Ending:
    """The end of a connection: whether it has ended, and why."""

    def __init__(self) -> None:
        self.ended = False
        self.reason = ""
        self.errors = bytearray()

    def set(self, reason: str) -> None:
        """Record the end; the first reason counts."""
        self.ended = True
        self.reason = self.reason or reason

    def explain(self) -> str:
        """Return why it ended, with the last line of the server's error output."""
        lines = self.errors.decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{self.reason}: {said[:200]}" if said else self.reason


def open_link(server: McpServer, ending: Ending) -> Link:
    """Return the connection to a server, to be entered."""
    if server.url:
        return open_address(server.url, server.headers, server.timeout_s)
    return open_process(server.command, server.env, server.folder, ending)


@asynccontextmanager
async def open_process(
    command: tuple[str, ...], env: Mapping[str, str], folder: str | None, ending: Ending
) -> AsyncGenerator[Streams]:
    """Start a server and exchange messages over its standard input and output; it ends with the context.

    It gets a process group of its own, and of our variables only those that commands get.
    """
    import anyio  # comes with the extra

    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env={**command_environment(), **env},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_LINE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise Unavailable(f"{command[0]!r} cannot be started: {error}", hint="is it installed?") from None
    give, read = anyio.create_memory_object_stream[Any](0)
    write, take = anyio.create_memory_object_stream[Any](0)
    tasks = [
        asyncio.create_task(_read(process, give, ending)),
        asyncio.create_task(_write(process, take, give, ending)),
        asyncio.create_task(_read_errors(process, ending)),
    ]
    try:
        yield read, write
    finally:
        await asyncio.shield(_end(process, tasks))
        for stream in (give, read, write, take):
            stream.close()


async def _read(
    process: asyncio.subprocess.Process, give: MemoryObjectSendStream[Any], ending: Ending
) -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    assert process.stdout is not None
    odd = 0
    try:
        while line := await process.stdout.readline():
            try:
                message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except (ValueError, RecursionError):
                odd += bool(line.strip())  # many servers print to their output now and then
                if odd > MAX_ODD:
                    ending.set(f"it wrote more than {MAX_ODD} lines that are not messages")
                    break
                continue
            await give.send(message)
        ending.set("it ended")
    except ValueError:
        ending.set(f"it sent a message of more than {MAX_LINE} bytes")
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        ending.set("the connection broke")
    finally:
        give.close()
        if ending.ended:
            _signal(process, signal.SIGTERM)


async def _write(
    process: asyncio.subprocess.Process,
    take: MemoryObjectReceiveStream[Any],
    give: MemoryObjectSendStream[Any],
    ending: Ending,
) -> None:
    assert process.stdin is not None
    try:
        async for item in take:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(line.encode() + b"\n")
            await process.stdin.drain()
    except OSError:
        ending.set("it closed its input")
        give.close()


async def _read_errors(process: asyncio.subprocess.Process, ending: Ending) -> None:
    assert process.stderr is not None
    with suppress(OSError):
        while part := await process.stderr.read(65_536):
            ending.errors += part
            del ending.errors[:-MAX_ERRORS]


async def _end(process: asyncio.subprocess.Process, tasks: list[asyncio.Task[None]]) -> None:
    """Close the server's input, wait a little, and end its process group."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        # Not process.wait(): it also waits for pipes that a child may hold open.
        for _ in range(int(GRACE_S / 0.01)):
            if process.returncode is not None:
                break
            await asyncio.sleep(0.01)
        _signal(process, number)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    close_pipes(process)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE_S)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


@asynccontextmanager
async def open_address(url: str, headers: Mapping[str, str], timeout_s: float) -> AsyncGenerator[Any]:
    """Exchange messages with a server at an address, over streamable HTTP."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    class Bounded(httpx2.AsyncHTTPTransport):
        """Ends an answer that is too long; the SDK bounds streams of events itself, each event."""

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                stream: Any = response.stream
                response.stream = Counted(stream)
            return response

    class Counted(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._stream:
                size += len(part)
                if size > MAX_LINE:
                    raise httpx2.ReadError(f"the answer has more than {MAX_LINE} bytes")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    client = httpx2.AsyncClient(
        transport=Bounded(), headers=dict(headers), timeout=httpx2.Timeout(timeout_s), trust_env=False
    )
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_LINE) as streams,
    ):
        yield streams
