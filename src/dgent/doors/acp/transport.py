"""Messages of an editor, one a line, over standard input and output.

The transport of the SDK ends at a line that is JSON and not an object, reads lines of any length, and takes
two tasks to write a message; this one answers what is not a message with an error, as JSON-RPC asks for.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dgent.system.standard import divert

MAX_LINE = 32 * 1024 * 1024  # bytes of one message; images come as text
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
UNROUTED = frozenset(("session/delete",))
"""Methods of the protocol that the SDK does not route yet; they reach the agent as extensions do."""


class LineTransport:
    """Sends and receives messages as `acp.connection.Connection` wants them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._encoder = msgspec.json.Encoder()

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message, at once unless the editor does not read; ConnectionError if it is gone."""
        try:
            line = self._encoder.encode(message)
        except (TypeError, ValueError):  # texts of tools may have lone surrogates
            line = json.dumps(message, default=str).encode()
        if self._writer.is_closing():
            raise ConnectionError("the editor is gone")
        self._writer.write(line + b"\n")
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return None
            except asyncio.LimitOverrunError:
                await self._refuse(PARSE_ERROR, f"a message has more than {MAX_LINE} bytes")
                return None  # nobody knows where the next one begins
            except OSError:
                return None
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(PARSE_ERROR, "this line is not JSON")
                continue
            if _is_message(message):
                if message.get("method") in UNROUTED:
                    message["method"] = f"_{message['method']}"
                return message  # type: ignore[no-any-return]
            await self._refuse(INVALID_REQUEST, "this line is not a message of JSON-RPC")

    async def _refuse(self, code: int, text: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})

    async def close(self) -> None:
        """Write no more."""
        self._writer.close()


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("method", ""), str):
        return False
    return isinstance(value.get("id"), str | int | float | None)


@asynccontextmanager
async def open_standard() -> AsyncGenerator[LineTransport]:
    """Give the messages of standard input and output; what others print goes to the error output."""
    loop = asyncio.get_running_loop()
    with divert(0, os.devnull) as source, divert(1, None) as target:
        reader = asyncio.StreamReader(limit=MAX_LINE)
        protocol = asyncio.StreamReaderProtocol(reader)
        read, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(os.dup(source), "rb", 0))
        write, flow = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(os.dup(target), "wb", 0)
        )
        transport = LineTransport(reader, asyncio.StreamWriter(write, flow, None, loop))
        try:
            yield transport
        finally:
            await transport.close()
            read.close()
