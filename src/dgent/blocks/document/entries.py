"""Entries of a log: finding them, and removing old ones by rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dgent import clock
from dgent.blocks.document.diff import equality_key
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import entry_line, entry_text
from dgent.blocks.document.shape import Shape
from dgent.errors import InputError

SLACK = 4  # a log may grow by 1/SLACK over its rule before the oldest go: not one edit for each entry


@dataclass(frozen=True)
class EntryFilter:
    """A filter for entries: words in them, their author, and their time."""

    contains: str = ""
    agent: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
                raise InputError(f"expected an aware datetime for {name}, got {value!r:.80}", field=name)

    def matches(self, entry: Any) -> bool:
        """Check whether an entry passes the filter."""
        found = entry if isinstance(entry, dict) else {}
        at = str(found.get("at", ""))
        return (
            (self.agent is None or found.get("agent") == self.agent)
            and (self.since is None or at >= clock.text(self.since))
            and (self.until is None or at < clock.text(self.until))
            and all(word in entry_text(entry).casefold() for word in self.contains.casefold().split())
        )


def count_change(change: Callable[[Document], None], name: str) -> Callable[[Document], None]:
    """Wrap a change of a whole log so that it counts all changed characters: a prompt shows only a part."""

    def work(document: Document) -> None:
        before = Counter(map(entry_line, document.entries(name)))
        change(document)
        document.tally()
        after = Counter(map(entry_line, document.entries(name)))
        document.add_to_tally(_letters(after - before), _letters(before - after))

    return work


def _letters(lines: Counter[str]) -> int:
    return sum(len(line) * count for line, count in lines.items())


def count_expired(shape: Shape, document: Document, name: str) -> int:
    """Return how many of the oldest entries the shape's rule removes; 0 until it is worth an edit."""
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


def list_trimmed(document: Document, name: str) -> list[Any]:
    """Return the entries that a rule removed from a log, newest first, without those that came back."""
    seen = {equality_key(each) for each in document.entries(name)}
    found = []
    for each in reversed(document.trimmed_entries(name)):
        if (key := equality_key(each)) not in seen:
            seen.add(key)
            found.append(each)
    return found


def _at(document: Document, place: int, name: str) -> str:
    entry = document.entry(place, name)
    return str(entry.get("at", "")) if isinstance(entry, dict) else ""
