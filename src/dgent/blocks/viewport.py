"""Viewports: the lines of a long text that are shown in the context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgent.blocks import errors
from dgent.errors import InputError

VIEW = "view"
"""Where a card keeps its viewport: the first line, counted from 1, and how many lines."""


def check_view(document: str, start: object, lines: object) -> dict[str, Any]:
    """What a card keeps of a viewport; nothing when all lines are shown."""
    if document != "text":
        raise errors.WrongKind(f"only a text is shown in part, not a {document}")
    if lines is None:
        return {}
    for name, value in (("start", start), ("lines", lines)):
        if type(value) is not int or not 1 <= value < 2**53:
            raise InputError(f"{name} is a number of lines from 1, not {value!r:.80}", field=name)
    return {VIEW: [start, lines]}


def viewed(text: str, extra: Mapping[str, Any]) -> str:
    """A text as its viewport shows it, with a word about which lines these are."""
    match extra.get(VIEW):
        case [int(start), int(lines)] if start >= 1 and lines >= 1:
            pass
        case _:
            return text
    every = text.splitlines()
    if start == 1 and lines >= len(every):
        return text
    if start > len(every):
        return f"[lines {start} to {start + lines - 1} are not there: the text has {len(every)}]"
    last = min(start + lines - 1, len(every))
    return "\n".join([f"[lines {start} to {last} of {len(every)}]", *every[start - 1 : last]])
