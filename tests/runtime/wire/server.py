"""A loopback server that speaks the wire formats of Anthropic messages and OpenAI chat completions.

It plays prepared answers in order and keeps the requests that it got. It is written on plain sockets so
that it can also send what no correct server sends: cut bodies, broken JSON, silence.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """One answer: a status, or events to stream. `cut` drops the connection after them."""

    events: tuple[tuple[str, str], ...] = ()
    status: int = 200
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False
    hang: bool = False
    piece: int = 0


class Request(NamedTuple):
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: Any


class WireServer:
    """Plays answers, one for each request."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Request] = []
        self.dropped = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> WireServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """Its address."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.dropped.set()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (each.partition(":") for each in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(Request(head[0].split()[1], headers, json.loads(body)))
        answer = self.answers.pop(0)
        if answer.status != 200:
            self._send_plain(writer, answer)
            await writer.drain()
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        )
        for data in _cut("".join(_frame(*each) for each in answer.events).encode(), answer.piece):
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
            if answer.piece:
                await asyncio.sleep(0)
        if answer.hang:
            await reader.read()  # returns when the client closes
            self.dropped.set()
        elif not answer.cut:
            writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _send_plain(self, writer: asyncio.StreamWriter, answer: Answer) -> None:
        data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
        writer.write(
            f"HTTP/1.1 {answer.status} X\r\ncontent-type: application/json\r\n{more}"
            f"content-length: {len(data)}\r\nconnection: close\r\n\r\n".encode()
            + data
        )


def _frame(event: str, data: str) -> str:
    return (f"event: {event}\n" if event else "") + f"data: {data}\n\n"


def _cut(data: bytes, piece: int) -> Iterator[bytes]:
    for start in range(0, len(data), piece or len(data) or 1):
        yield data[start : start + (piece or len(data))]


# -- Anthropic ------------------------------------------------------------------------------


def anthropic_events(
    *, thinking: str = "", text: str = "", calls: tuple[tuple[str, str, str], ...] = (), piece: int = 5
) -> tuple[tuple[str, str], ...]:
    """Return the events of an answer by Anthropic; a call is its id, name and JSON text."""
    made: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude-sonnet-5-5",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {
                    "input_tokens": 20,
                    "output_tokens": 1,
                    "cache_read_input_tokens": 7,
                    "cache_creation_input_tokens": 3,
                },
            },
        }
    ]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if thinking:
        deltas = [{"type": "thinking_delta", "thinking": each} for each in _pieces(thinking, piece)]
        blocks.append(
            (
                {"type": "thinking", "thinking": "", "signature": ""},
                [*deltas, {"type": "signature_delta", "signature": "signed"}],
            )
        )
    if text:
        blocks.append(
            (
                {"type": "text", "text": ""},
                [{"type": "text_delta", "text": each} for each in _pieces(text, piece)],
            )
        )
    for id, name, arguments in calls:
        blocks.append(
            (
                {"type": "tool_use", "id": id, "name": name, "input": {}},
                [{"type": "input_json_delta", "partial_json": each} for each in _pieces(arguments, piece)],
            )
        )
    for index, (block, deltas) in enumerate(blocks):
        made.append({"type": "content_block_start", "index": index, "content_block": block})
        made += [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
        made.append({"type": "content_block_stop", "index": index})
    made.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 11},
        }
    )
    made.append({"type": "message_stop"})
    return tuple((each["type"], json.dumps(each)) for each in made)


def anthropic_error(type: str, message: str) -> dict[str, Any]:
    """Return the body of an error by Anthropic."""
    return {"type": "error", "error": {"type": type, "message": message}}


# -- OpenAI ---------------------------------------------------------------------------------


def openai_events(
    *, text: str = "", calls: tuple[tuple[str, str, str], ...] = (), piece: int = 5
) -> tuple[tuple[str, str], ...]:
    """Return the events of an answer by OpenAI's chat completions."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": each} for each in _pieces(text, piece)]
    for index, (id, name, arguments) in enumerate(calls):
        first = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [first]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": each}}]}
            for each in _pieces(arguments, piece)
        ]
    made = [_chunk([{"index": 0, "delta": each, "finish_reason": None}]) for each in deltas]
    made.append(_chunk([{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]))
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 12,
        "total_tokens": 42,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    made.append({**_chunk([]), "usage": usage})
    return (*(("", json.dumps(each)) for each in made), ("", "[DONE]"))


def _chunk(choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "gpt-4o",
        "choices": choices,
    }


def _pieces(text: str, piece: int) -> list[str]:
    return [text[start : start + piece] for start in range(0, len(text), piece)]
