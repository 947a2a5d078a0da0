"""Entries of a log: finding them, and taking old ones out by rule."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dgent import clock
from dgent.blocks.document.diff import sameness
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import entry_line, entry_text
from dgent.blocks.document.shape import Shape
from dgent.blocks.edit.editable import Change
from dgent.errors import InputError

SLACK = 4  # so many parts of what is kept may come on top before the oldest go: not one edit for each


@dataclass(frozen=True)
class Wanted:
    """Which entries somebody looks for: words that are in them, who made them, and when."""

    contains: str = ""
    agent: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
                raise InputError(f"{name} is an aware datetime, not {value!r:.80}", field=name)

    def matches(self, entry: Any) -> bool:
        """Whether an entry is one of them."""
        found = entry if isinstance(entry, dict) else {}
        at = str(found.get("at", ""))
        return (
            (self.agent is None or found.get("agent") == self.agent)
            and (self.since is None or at >= clock.text(self.since))
            and (self.until is None or at < clock.text(self.until))
            and all(word in entry_text(entry).casefold() for word in self.contains.casefold().split())
        )


def counted(change: Change, name: str) -> Change:
    """A change of a whole log, which tells how much of it came and went: a prompt shows only a part of it."""

    def work(document: Document) -> None:
        before = Counter(map(entry_line, document.entries(name)))
        change(document)
        document.tally()
        after = Counter(map(entry_line, document.entries(name)))
        document.tell(_letters(after - before), _letters(before - after))

    return work


def _letters(lines: Counter[str]) -> int:
    return sum(len(line) * count for line, count in lines.items())


def expired(shape: Shape, document: Document, name: str) -> int:
    """How many of the oldest entries go by the rule of the shape; none before it is worth an edit."""
    count = document.count_entries(name)
    many = 0
    if shape.keep is not None and count > shape.keep + shape.keep // SLACK:
        many = count - shape.keep
    if shape.keep_s is None or not count:
        return many
    now = clock.now()
    if _at(document, 0, name) >= clock.text(now - timedelta(seconds=shape.keep_s * (1 + 1 / SLACK))):
        return many
    oldest = clock.text(now - timedelta(seconds=shape.keep_s))
    while many < count and _at(document, many, name) < oldest:
        many += 1
    return many


def trimmed(document: Document, name: str) -> list[Any]:
    """What went out of a log by rule, newest first; not what came back since."""
    told = {sameness(each) for each in document.entries(name)}
    found = []
    for each in reversed(document.trimmed_entries(name)):
        if (key := sameness(each)) not in told:
            told.add(key)
            found.append(each)
    return found


def _at(document: Document, place: int, name: str) -> str:
    entry = document.entry(place, name)
    return str(entry.get("at", "")) if isinstance(entry, dict) else ""
