"""The lines of one record as a graph: which line follows which, and what two of them began with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dgent import clock
from dgent.model.datum import Datum
from dgent.store.engine import merge as merging
from dgent.store.jsonl.line import Line, Read, prevs

Sums = frozenset[str]


class Lineage:
    """The lines of a record, by their sums. What the files no longer have is known by its sum alone."""

    def __init__(self, lines: Iterable[Read]) -> None:
        self._lines: dict[str, Line] = {}
        for read in lines:
            self._lines[read.sum] = read.line
            if read.line.sum is not None:
                self._lines.setdefault(read.line.sum, read.line)

    def order(self, made: str) -> tuple[int, str]:
        """Tell which of two lines is later."""
        line = self._lines.get(made)
        if line is None:
            return 0, made
        return 0 if line.at is None else clock.to_us(line.at), line.c or made

    def version(self, made: str) -> Datum | None:
        """The version that a line holds; None for a deletion. KeyError for a line that is not there."""
        line = self._lines[made]
        return None if line.op == "delete" else datum_of(line)

    def merge(self, tips: Iterable[str]) -> merging.MergedRecord:
        """Merge the newest lines of several copies, earliest first."""
        first, *others = sorted(tips, key=self.order)
        merged, done = merging.MergedRecord(self.version(first)), frozenset((first,))
        for tip in others:
            came = merging.merge(self._base(done, frozenset((tip,))), merged.version, self.version(tip))
            disputed = tuple(dict.fromkeys((*merged.disputed, *came.disputed)))
            merged, done = merging.MergedRecord(came.version, disputed), done | {tip}
        return merged

    def _base(self, left: Sums, right: Sums) -> Datum | None:
        """What both sides began with: their last common line, or several merged."""
        common = self._ancestors(left) & self._ancestors(right)
        known = {made for made in common if made in self._lines}
        older = {each for made in known for each in self._ancestors(frozenset(prevs(self._lines[made])))}
        last = sorted(known - older, key=self.order)
        # Of several, no two follow each other, so what they began with is further back each time.
        return self.merge(last).version if last else None

    def _ancestors(self, sums: Sums) -> set[str]:
        """The lines that some lines follow, and these themselves."""
        found: set[str] = set()
        left = list(sums)
        while left:
            made = left.pop()
            if made not in found:
                found.add(made)
                left += prevs(self._lines[made]) if made in self._lines else ()
        return found


def datum_of(line: Line) -> Datum:
    """The record that a line holds."""
    data: Mapping[str, object] = msgspec.json.decode(line.data)
    return Datum(
        id=line.id,
        created_at=line.created_at or line.at or clock.EPOCH,
        data=dict(data),
        content=line.content,
        tags=frozenset(line.tags),
        author=line.author,
        source=line.source,
        parent_id=line.parent_id,
        schema=line.schema,
        schema_version=line.schema_version if line.schema else None,
        extra=line.extra,
    )
