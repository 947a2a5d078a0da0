"""The events of an agent at work, as doors and programs see them."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import msgspec

from dgent.errors import DgentError
from dgent.runtime.model.call import TokenUsage


def _tag(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag=_tag, kw_only=True):
    """The fields that all events have: who works, and in which batch."""

    agent: str = ""
    batch: str = ""


class Text(_Event, frozen=True, tag=_tag):
    """A piece of the answer."""

    text: str


class Thinking(_Event, frozen=True, tag=_tag):
    """A piece of a thought."""

    text: str


class ToolStarted(_Event, frozen=True, tag=_tag):
    """A tool was called. `kind` says what it does, for editors: read, edit, execute, fetch, other."""

    call: str
    name: str
    arguments: Any = None
    kind: str = "other"


class ToolFinished(_Event, frozen=True, tag=_tag):
    """A tool answered, or failed."""

    call: str
    name: str
    text: str = ""
    error: bool = False
    ms: float = 0.0


class UsageReport(_Event, frozen=True, tag=_tag):
    """Tokens and cost of one answer of a model."""

    model: str
    usage: TokenUsage


class Notice(_Event, frozen=True, tag=_tag):
    """Something the reader should know that is not part of the answer. `code` is for programs.

    With the code `restart`, the text and thoughts since the last tool or the beginning are void.
    """

    text: str
    code: str = ""


class Missed(_Event, frozen=True, tag=_tag):
    """So many events were left out here, because this consumer was too slow."""

    count: int


class Done(_Event, frozen=True, tag=_tag):
    """The agent has answered."""

    text: str = ""
    finish: str = "stop"
    usage: TokenUsage | None = None


class Failed(_Event, frozen=True, tag=_tag):
    """The agent gave up."""

    code: str
    message: str
    hint: str = ""
    retryable: bool = False


Event: TypeAlias = (
    Text | Thinking | ToolStarted | ToolFinished | UsageReport | Notice | Missed | Done | Failed
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """Return an event as one line of JSON."""
    return _encoder.encode(event)


def decode(data: bytes | str) -> Event:
    """Return the event of some JSON; raises msgspec.ValidationError for anything else."""
    return _decoder.decode(data)


def is_last(event: Event) -> bool:
    """Return whether nothing follows this event in its batch."""
    return isinstance(event, Done | Failed)


def fail(error: BaseException, *, agent: str = "", batch: str = "") -> Failed:
    """Build the event of an error; of one that is not dgent's, only its type is told."""
    if isinstance(error, DgentError):
        return Failed(
            code=error.code,
            message=error.message,
            hint=error.hint,
            retryable=error.retryable,
            agent=agent,
            batch=batch,
        )
    return Failed(code="internal", message=f"{type(error).__name__} in the agent", agent=agent, batch=batch)
