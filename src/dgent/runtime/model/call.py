"""One request to a model, and the pieces of its answer.

A model is anything with a name and a `stream`, which yields deltas while the answer arrives and ends with
one `Reply`. Whoever reads a stream closes it (`contextlib.aclosing`), which ends the request at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import msgspec

from dgent.errors import ModelFailed
from dgent.messages.part import Part

Finish = Literal["stop", "length", "tool_call", "content_filter", "error"]
FINISHES: tuple[str, ...] = get_args(Finish)
Role = Literal["user", "assistant", "system", "tool"]


class SystemPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of the instructions. Stable ones are the same in the next call: the prompt cache ends there."""

    text: str
    stable: bool = True


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the history as a model is shown it."""

    role: Role
    parts: tuple[Part, ...]


class Settings(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The settings of a call; None is the provider's default.

    `thinking` is on or off, or an effort (low, medium, high). `timeout_s` is for the whole answer.
    `cache` sets cache points after the stable instructions, the tools and the last message. `extra` goes to
    the provider as it is.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    thinking: bool | str | None = None
    timeout_s: float = 600.0
    stop: tuple[str, ...] = ()
    cache: bool = True
    extra: dict[str, Any] = {}


class ModelCall(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A request: instructions, history, tools and settings.

    `tools` are schemas with name, description and parameters, as a toolbox lists them. `blobs` has the
    bytes of the images in the history, by the id of their content.
    """

    system: tuple[SystemPart, ...] = ()
    messages: tuple[Turn, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    settings: Settings = Settings()
    blobs: Mapping[str, bytes] = {}

    def last_text(self) -> str:
        """Return the texts of the last message."""
        return "\n".join(part.text for part in self.messages[-1].parts) if self.messages else ""


class TokenUsage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one answer or of several. `cost` is in US dollars, None where no price is known.

    `input_tokens` includes those read from and written to a prompt cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None
    calls: int = 1

    def add(self, other: TokenUsage) -> TokenUsage:
        """Return the sum; its cost is known only where both are."""
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            cost,
            self.calls + other.calls,
        )


NO_USAGE = TokenUsage(cost=0.0, calls=0)


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """A piece of text."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, tag="thinking"):
    """A piece of a thought."""

    text: str


class CallDelta(msgspec.Struct, frozen=True, tag="call"):
    """A piece of a tool call: the name with its first piece, then JSON text of its arguments.

    It says what is coming; the call to run is in the Reply, whole.
    """

    call: str
    name: str = ""
    arguments: str = ""


class Restart(msgspec.Struct, frozen=True, tag="restart"):
    """The answer begins again, so what was passed on before is void."""

    reason: str
    model: str


class Reply(msgspec.Struct, frozen=True, tag="reply", omit_defaults=True):
    """The whole answer. The arguments of a call that are not a JSON object are left as the text they were."""

    parts: tuple[Part, ...]
    usage: TokenUsage = TokenUsage()
    finish: Finish = "stop"
    model: str = ""

    @property
    def text(self) -> str:
        """The text of the answer, without thoughts and calls."""
        return "".join(part.text for part in self.parts if part.type == "text")

    @property
    def calls(self) -> tuple[Part, ...]:
        """The tool calls of the answer."""
        return tuple(part for part in self.parts if part.type == "tool_call")


Delta: TypeAlias = TextDelta | ThinkingDelta | CallDelta | Restart
Piece: TypeAlias = Delta | Reply


@runtime_checkable
class Model(Protocol):
    """Something that answers a call."""

    @property
    def name(self) -> str:
        """Its name, as `provider:model`."""
        ...

    def stream(self, call: ModelCall) -> AsyncGenerator[Piece]:
        """Yield deltas, then one Reply; raises ModelFailed or one of its kinds."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


async def complete(model: Model, call: ModelCall) -> Reply:
    """Ask a model and return the whole answer."""
    async with aclosing(model.stream(call)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Reply):
                return piece
    raise ModelFailed(f"{model.name} ended its answer without a reply", model=model.name)


def read_arguments(text: str) -> Any:
    """Return the arguments of a tool call as a map, or the text where it is not a JSON object."""
    try:
        value = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return text
    return value if isinstance(value, dict) else text
