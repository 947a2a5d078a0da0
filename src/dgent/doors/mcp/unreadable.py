"""Answer requests that cannot be read, which the transport would drop: the client would wait for ever."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

PARSE_ERROR = -32700


class ReadableStream:
    """The messages that can be read; others are answered, if they say which request they are."""

    def __init__(self, read: Any, write: Any) -> None:
        self._read, self._write = read, write

    async def receive(self) -> SessionMessage:
        """Return the next message."""
        item: SessionMessage | Exception = await self._read.receive()
        while isinstance(item, Exception):
            if (answer := _refuse(item)) is not None:
                await self._write.send(SessionMessage(answer))
            item = await self._read.receive()
        return item

    @property
    def last_context(self) -> Any:
        """The context of the sender of the last message."""
        return self._read.last_context

    async def aclose(self) -> None:
        """Read no more."""
        await self._read.aclose()

    def __aiter__(self) -> ReadableStream:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> ReadableStream:
        await self._read.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._read.__aexit__(kind, error, trace)


def _refuse(problem: Exception) -> types.JSONRPCError | None:
    """Return the answer to a line that is not valid JSON for the transport; None if it names no request."""
    if not isinstance(problem, ValidationError):
        return None
    (first, *_) = problem.errors()
    if first["type"] != "json_invalid":
        return None
    try:
        # More lenient: half a surrogate pair, or a number of thousands of digits.
        given = json.loads(first["input"], parse_int=_parse_int)
    except (ValueError, RecursionError):
        return None
    id = given.get("id") if isinstance(given, dict) else None
    if not isinstance(id, str | int) or isinstance(id, bool) or "method" not in given:
        return None
    reason = first.get("ctx", {}).get("error", "it is not valid JSON")
    error = types.ErrorData(code=PARSE_ERROR, message=f"the request cannot be read: {reason}"[:300])
    return types.JSONRPCError(jsonrpc="2.0", id=id, error=error)


def _parse_int(digits: str) -> int:
    return int(digits) if len(digits) < 20 else 0
