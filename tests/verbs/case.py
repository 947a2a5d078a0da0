"""What a case is."""

from __future__ import annotations

from typing import Any, NamedTuple


class Case(NamedTuple):
    """What to ask, by name and by words; `{new}` is a path that does not exist yet."""

    args: dict[str, Any]
    words: list[str]
    error: str | None = None  # the code of the error that is expected
    exit: int = 0  # the exit code of an answer that says that something is wrong
