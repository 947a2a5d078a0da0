"""Strategies of compression, as data: which messages stay, and what becomes of the others."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from dgent.errors import InputError
from dgent.messages.part import Part

WEIGHTS = {"system": 10.0, "user": 5.0, "assistant": 3.0}
KEYWORDS = ("important", "remember", "critical", "always", "never")


class Truncate(msgspec.Struct, frozen=True, tag_field="strategy", tag="truncate"):
    """Archive all but the newest batches, which have at least `keep` messages."""

    keep: int = 100


class RecursiveSummary(msgspec.Struct, frozen=True, tag_field="strategy", tag="recursive_summary"):
    """Sum up what is archived, `chunk_tokens` at a time, each summary standing on the one before.

    One compression calls the summariser at most `calls` times; what is left waits for the next one.
    """

    keep: int = 100
    chunk_tokens: int = 24_000
    calls: int = 8


class Importance(msgspec.Struct, frozen=True, tag_field="strategy", tag="importance"):
    """Keep the newest messages, and of the older batches the `important` ones that score highest."""

    keep: int = 100
    important: int = 10


class TimeDecay(msgspec.Struct, frozen=True, tag_field="strategy", tag="time_decay"):
    """Archive what is older than so many hours, but the newest `keep` messages."""

    keep: int = 20
    hours: float = 24.0


Strategy: TypeAlias = Truncate | RecursiveSummary | Importance | TimeDecay
STRATEGIES = ("truncate", "recursive_summary", "importance", "time_decay")


def read_strategy(given: Any) -> Strategy:
    """Return a strategy given as itself, by its name, or as a map; raises InputError."""
    if isinstance(given, Truncate | RecursiveSummary | Importance | TimeDecay):
        given = msgspec.to_builtins(given)
    data = {"strategy": given} if isinstance(given, str) else given
    try:
        found: Strategy = msgspec.convert(data, Strategy)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(
            f"{given!r:.80} is not a strategy: {error}", hint=f"use one of {', '.join(STRATEGIES)}"
        ) from None
    if any(isinstance(each, int | float) and not each >= 0 for each in msgspec.structs.astuple(found)):
        raise InputError(f"a number of the strategy {given!r:.80} is below 0, or not a number")
    return found


def score(role: str, parts: tuple[Part, ...], recency: float) -> float:
    """Return how important a message seems; `recency` is from 0 for the oldest to 1 for the newest."""
    text = " ".join(part.text for part in parts).lower()
    found = WEIGHTS.get(role, 1.0) + 5 * recency + min(len(text) / 100, 3.0)
    found += 2.0 if "?" in text else 0.0
    found += 1.5 * sum(word in text for word in KEYWORDS)
    return found + (4.0 if any(part.type == "tool_call" for part in parts) else 0.0)
