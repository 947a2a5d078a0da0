"""What a tool answers: whether it was done, a sentence about it, and the data; never too much of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from dgent import clock
from dgent.blocks.history.version import Version
from dgent.errors import DgentError

MOST_TEXT = 20_000  # characters of a text, or of values as JSON
MOST_ROWS = 50
MOST_MESSAGE = 2_000
MOST_ANSWER = 100_000  # bytes of JSON; nothing comes near it that is not odd
Answer = dict[str, Any]
T = TypeVar("T")


def done(message: str, data: Any = None) -> Answer:
    """The answer for what was done."""
    return {"success": True, "message": _short(message), "data": data}


def bounded(answer: Answer) -> Answer:
    """An answer, without its data if they are far too much: a template may have thousands of choices."""
    if len(msgspec.json.encode(answer["data"])) <= MOST_ANSWER:
        return answer
    return {**answer, "message": noted(answer["message"], "the data are too long to show"), "data": None}


def refused(error: DgentError) -> Answer:
    """The answer for what was not done: why, and what would help."""
    data = {"code": error.code, "retryable": error.retryable}
    return {"success": False, "message": _short(str(error)), "data": data}


def _short(message: str) -> str:
    whole = message.encode("utf-8", "backslashreplace").decode()
    return whole if len(whole) <= MOST_MESSAGE else whole[: MOST_MESSAGE - 1] + "…"


class Part(NamedTuple):
    """As much of something as an answer has room for, and how to get the rest."""

    shown: Any
    note: str = ""


def part_of_text(text: str, offset: int = 0) -> Part:
    """A text from one of its characters on."""
    end = offset + MOST_TEXT
    if not offset and end >= len(text):
        return Part(text)
    more = f"; go on with offset={end}" if end < len(text) else ""
    first = min(offset, len(text))
    return Part(text[first:end], f"characters {first} to {min(end, len(text))} of {len(text)}{more}")


def part_of_rows(rows: Sequence[T], offset: int = 0, most: int = MOST_ROWS) -> Part:
    """Rows from one of them on."""
    end = offset + most
    if not offset and end >= len(rows):
        return Part(list(rows))
    more = f"; go on with offset={end}" if end < len(rows) else ""
    return Part(list(rows[offset:end]), f"{len(rows)} in all{more}")


def small(value: Any) -> Any:
    """A value if an answer has room for it, else None."""
    return value if len(msgspec.json.encode(value)) <= MOST_TEXT else None


def noted(message: str, note: str) -> str:
    """A message with how to get the rest."""
    return f"{message} ({note})" if note else message


def version_data(version: Version) -> dict[str, Any]:
    """A version as data."""
    made = {
        "version": version.number,
        "at": clock.text(version.at),
        "by": version.by,
        "what": version.op,
        "size": version.size,
        "change": version.diffstat,
        "message": version.message,
    }
    return made | ({"lost": version.lost} if version.lost else {})
