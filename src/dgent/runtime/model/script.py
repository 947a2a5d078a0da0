"""A scripted model: it plays answers from a file or a list, for tests, demos and use without a key.

Each line of the file is one answer, as JSON:

    {"text": "Reading it.", "calls": [{"name": "read", "arguments": {"path": "a.py"}}]}
    {"expect": "def main", "text": "It has a main function."}
    {"error": "model_throttled", "retry_s": 0.1}
    "a plain text"
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from dgent.errors import (
    ContextTooLong,
    InputError,
    ModelFailed,
    ModelRefused,
    ModelThrottled,
    NotFound,
)
from dgent.messages.part import Part
from dgent.model.tokens import estimate
from dgent.runtime.model.call import (
    CallDelta,
    Finish,
    ModelCall,
    Piece,
    Reply,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
)

ERRORS: dict[str, type[ModelFailed]] = {
    kind.code: kind for kind in (ModelFailed, ModelThrottled, ModelRefused, ContextTooLong)
}
REMEMBERED_CALLS = 100


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call of a script. Without an id it gets one that is the same in every run."""

    name: str
    arguments: Any = msgspec.field(default_factory=dict)
    call: str = ""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One answer of a script.

    `expect` are texts that the last message must have; a call without one is refused. `error` is the code
    of an error to raise, after the rest of the step was sent, so that a step with a text and an error is a
    stream that was cut. `delay_s` is the wait before the first piece, `pause_s` the one between pieces,
    `piece` how many characters each has.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    expect: str | tuple[str, ...] = ()
    error: str = ""
    retry_s: float | None = None
    delay_s: float = 0.0
    pause_s: float = 0.0
    piece: int = 16
    finish: Finish | None = None
    usage: TokenUsage | None = None


Script: TypeAlias = Iterable[Step | str | dict[str, Any]]


class ScriptedModel:
    """Plays a script, one step for each call; `calls` has the newest calls that it was sent."""

    def __init__(self, steps: Script, *, name: str = "script:list", repeat: bool = False) -> None:
        self.name = name
        self.calls: deque[ModelCall] = deque(maxlen=REMEMBERED_CALLS)
        self._steps = [read_step(step, f"step {number}") for number, step in enumerate(steps, 1)]
        self._repeat = repeat
        self._next = 0

    @property
    def left(self) -> int:
        """The number of steps that were not played yet."""
        return max(0, len(self._steps) - self._next)

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece]:
        """Play the next step."""
        step, number = self._take(call)
        if step.delay_s:
            await asyncio.sleep(step.delay_s)
        pieces = list(_cut(step, number))
        for index, piece in enumerate(pieces):
            if index and step.pause_s:
                await asyncio.sleep(step.pause_s)
            yield piece
        if step.error:
            raise ERRORS[step.error](
                f"step {number} of {self.name} fails with {step.error}",
                model=self.name,
                retry_s=step.retry_s,
            )
        yield _build_reply(step, number, call, self.name)

    async def close(self) -> None:
        """Do nothing: a script holds nothing."""

    def _take(self, call: ModelCall) -> tuple[Step, int]:
        if self._next >= len(self._steps):
            if not (self._repeat and self._steps):
                raise ModelRefused(
                    f"{self.name} has {len(self._steps)} answers, and was asked for another",
                    hint="add a step to the script",
                    model=self.name,
                )
            self._next = 0
        step, self._next = self._steps[self._next], self._next + 1
        self.calls.append(call)
        said = call.last_text()
        for expected in (step.expect,) if isinstance(step.expect, str) else step.expect:
            if expected not in said:
                raise ModelRefused(
                    f"step {self._next} of {self.name} expects {expected!r:.80} in the last message, "
                    f"which is {said!r:.200}",
                    model=self.name,
                )
        return step, self._next


def open_script(path: str | Path) -> ScriptedModel:
    """Return the model of a script file: lines of JSON, or one JSON list."""
    name = f"script:{path}"
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no script {str(path)!r}", hint="give the path of a file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the script {str(path)!r} cannot be read: {error}", field="model") from None
    if text.lstrip().startswith("["):
        return ScriptedModel(_decode(text, str(path)), name=name)
    lines = [
        read_step(_decode(line, f"line {number} of {path}"), f"line {number} of {path}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    return ScriptedModel(lines, name=name)


def read_step(step: object, where: str = "the step") -> Step:
    """Return one step of a script; raises InputError saying where it is wrong."""
    if isinstance(step, str):
        return Step(text=step)
    try:
        made = step if isinstance(step, Step) else msgspec.convert(step, Step)
    except msgspec.ValidationError as error:
        raise InputError(f"{where} of the script is wrong: {error}", field="model") from None
    if made.error and made.error not in ERRORS:
        raise InputError(
            f"{where} of the script has the error {made.error!r}, which no model has",
            hint=f"use one of {', '.join(ERRORS)}",
            field="model",
        )
    if made.piece < 1:
        raise InputError(f"{where} of the script: piece must be 1 or more, not {made.piece}", field="model")
    return made


def _decode(text: str, where: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InputError(f"{where} is not JSON: {error}", field="model") from None


def _cut(step: Step, number: int) -> Iterable[Piece]:
    for start in range(0, len(step.thinking), step.piece):
        yield ThinkingDelta(step.thinking[start : start + step.piece])
    for start in range(0, len(step.text), step.piece):
        yield TextDelta(step.text[start : start + step.piece])
    for part in _build_calls(step, number):
        text = (
            part.arguments
            if isinstance(part.arguments, str)
            else msgspec.json.encode(part.arguments).decode()
        )
        yield CallDelta(part.call, part.name)
        for start in range(0, len(text), step.piece):
            yield CallDelta(part.call, "", text[start : start + step.piece])


def _build_calls(step: Step, number: int) -> list[Part]:
    return [
        Part(
            "tool_call", call=each.call or f"call-{number}-{index}", name=each.name, arguments=each.arguments
        )
        for index, each in enumerate(step.calls, 1)
    ]


def _build_reply(step: Step, number: int, call: ModelCall, name: str) -> Reply:
    parts: list[Part] = []
    if step.thinking:
        parts.append(Part("thinking", step.thinking))
    if step.text:
        parts.append(Part("text", step.text))
    parts += _build_calls(step, number)
    usage = step.usage or TokenUsage(
        sum(estimate(part.text) for turn in call.messages for part in turn.parts)
        + sum(estimate(part.text) for part in call.system),
        estimate(step.text) + estimate(step.thinking),
        cost=0.0,
    )
    return Reply(tuple(parts), usage, step.finish or ("tool_call" if step.calls else "stop"), name)
