"""Record the calls to a model in telemetry, without keys, and replay them without the model."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from datetime import datetime
from hashlib import sha256
from time import perf_counter
from typing import Any, Protocol

import msgspec

from dgent import clock
from dgent.errors import ModelFailed, ModelRefused
from dgent.messages.part import Part
from dgent.runtime.model.call import (
    CallDelta,
    Model,
    ModelCall,
    Piece,
    Reply,
    TextDelta,
    ThinkingDelta,
)
from dgent.runtime.model.redact import redact
from dgent.runtime.model.script import ERRORS
from dgent.store.port.telemetry import MAX_DATA_BYTES, TelemetryEvent

KIND = "model_call"
_ROOM_BYTES = MAX_DATA_BYTES - 4096  # for the fields beside request and reply


class Telemetry(Protocol):
    """The part of a telemetry store that recording needs; `u.storage.telemetry` has it."""

    async def append(self, events: Iterable[TelemetryEvent]) -> int:
        """Store events."""
        ...


class RecordingModel:
    """Passes calls on to a model and records each: request, answer or error, tokens, times.

    Recording is behind the answer and never fails it: `lost` counts the records that could not be stored.
    `content=False` records the counts alone. `secrets` are taken out wherever they stand, beside what looks
    like a key.
    """

    def __init__(
        self,
        model: Model,
        telemetry: Telemetry,
        *,
        agent: str | None = None,
        content: bool = True,
        secrets: Iterable[str] = (),
    ) -> None:
        self.lost = 0
        self._model = model
        self._telemetry = telemetry
        self._agent = agent
        self._content = content
        self._secrets = tuple(secrets)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """The name of the model that is recorded."""
        return self._model.name

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece]:
        """Yield the answer of the model, and record it."""
        started, first = perf_counter(), None
        reply: Reply | None = None
        failure: BaseException | None = None
        try:
            async with aclosing(self._model.stream(call)) as pieces:
                async for piece in pieces:
                    first = first or perf_counter()
                    if isinstance(piece, Reply):
                        reply = piece
                    yield piece
        except BaseException as error:  # cancelled and closed calls are recorded as well
            failure = error
            raise
        finally:
            times = {"duration_us": _us(started, perf_counter())}
            if first is not None:
                times["first_token_us"] = _us(started, first)
            self._record(call, reply, failure if reply is None else None, times)

    async def flush(self) -> None:
        """Wait until all that was recorded is stored."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """Store what was recorded, and close the model."""
        await self.flush()
        await self._model.close()

    def _record(
        self, call: ModelCall, reply: Reply | None, failure: BaseException | None, times: dict[str, int]
    ) -> None:
        coming = self._append(clock.now(), call, reply, failure, times)
        task = asyncio.get_running_loop().create_task(coming)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _append(
        self,
        at: datetime,
        call: ModelCall,
        reply: Reply | None,
        failure: BaseException | None,
        times: dict[str, int],
    ) -> None:
        try:
            # In a thread, since a megabyte of history takes tens of milliseconds to look through.
            data = await asyncio.to_thread(
                build_data, self.name, call, reply, failure, self._content, self._secrets
            )
            event = TelemetryEvent(KIND, data={**data, **times}, agent=self._agent, timestamp=at)
            await self._telemetry.append([event])
        except Exception:
            self.lost += 1


def build_data(
    name: str,
    call: ModelCall,
    reply: Reply | None,
    failure: BaseException | None = None,
    content: bool = True,
    secrets: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the record of a call, by the names that OpenTelemetry has, with request and reply redacted."""
    secrets = tuple(secrets)
    data: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": name}
    if reply is not None:
        usage = reply.usage
        data["gen_ai.response.model"] = reply.model or name
        data["gen_ai.usage.input_tokens"] = usage.input_tokens
        data["gen_ai.usage.output_tokens"] = usage.output_tokens
        data["gen_ai.usage.cache_read_tokens"] = usage.cache_read_tokens
        data["finish"] = reply.finish
        if usage.cost is not None:
            data["gen_ai.usage.cost"] = usage.cost
    elif isinstance(failure, ModelFailed):
        error = {"code": failure.code, "message": failure.message, "retry_s": failure.details.get("retry_s")}
        data["error"] = redact(error, secrets)
    elif failure is not None:
        data["error"] = {"code": "cancelled", "message": type(failure).__name__}
    if content:
        request = _plain(call, secrets)
        answer = None if reply is None else redact(msgspec.to_builtins(reply), secrets)
        size = len(msgspec.json.encode([request, answer]))
        data["digest"] = _digest(request)
        if size > _ROOM_BYTES:
            data["left_out"] = f"request and reply: {size} bytes, of which {_ROOM_BYTES} fit"
        else:
            data["request"], data["reply"] = request, answer
    return data


class ReplayModel:
    """Answers the calls that were recorded as they were answered; a call that was not is refused."""

    def __init__(self, events: Iterable[TelemetryEvent], *, name: str = "replay:telemetry") -> None:
        self.name = name
        self._answers: dict[str, deque[dict[str, Any]]] = defaultdict(deque)
        for event in sorted(events, key=lambda each: each.timestamp):
            if event.kind == KIND and (event.data.get("reply") or event.data.get("error")):
                self._answers[event.data.get("digest", "")].append(event.data)

    @property
    def left(self) -> int:
        """The number of answers that were not replayed yet."""
        return sum(map(len, self._answers.values()))

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece]:
        """Replay the next answer to this call."""
        answers = self._answers.get(_digest(_plain(call, ())))
        if not answers:
            raise ModelRefused(
                f"no answer to this call is recorded; its last message is {call.last_text()!r:.200}",
                hint="record it again: the context or the tools have changed",
                model=self.name,
            )
        data = answers.popleft()
        if not data.get("reply"):
            error = data["error"]
            kind = ERRORS.get(error["code"], ModelFailed)
            raise kind(error["message"], model=self.name, retry_s=error.get("retry_s"))
        reply = msgspec.convert(data["reply"], Reply)
        for part in reply.parts:
            delta = _cut(part)
            if delta is not None:
                yield delta
        yield reply

    async def close(self) -> None:
        """Do nothing: a replay holds nothing."""


def _plain(call: ModelCall, secrets: Iterable[str]) -> Any:
    """Return a call as plain values, without keys and without the bytes of images, which are named in it."""
    return redact(msgspec.to_builtins(msgspec.structs.replace(call, blobs={})), secrets)


def _digest(request: Any) -> str:
    return sha256(msgspec.json.encode(request, order="deterministic")).hexdigest()


def _cut(part: Part) -> Piece | None:
    if part.type == "text":
        return TextDelta(part.text)
    if part.type == "thinking":
        return ThinkingDelta(part.text) if part.text else None
    return CallDelta(part.call, part.name, msgspec.json.encode(part.arguments).decode())


def _us(start: float, end: float) -> int:
    return int((end - start) * 1_000_000)
