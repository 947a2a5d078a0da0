"""The lines of one record as a graph of ancestors, and merging its newest lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dgent import clock
from dgent.model.datum import Datum
from dgent.store.engine import merge
from dgent.store.jsonl.line import ParsedLine, RecordLine, previous_sums

Sums = frozenset[str]


class Lineage:
    """The lines of a record by their sums; of lines no longer in the files only the sum is known."""

    def __init__(self, lines: Iterable[ParsedLine]) -> None:
        self._lines: dict[str, RecordLine] = {}
        for read in lines:
            self._lines[read.sum] = read.line
            if read.line.sum is not None:
                self._lines.setdefault(read.line.sum, read.line)

    @property
    def sums(self) -> list[str]:
        """The sums of its lines in the files."""
        return sorted(self._lines)

    @property
    def last_rev(self) -> int:
        """The highest rev of its lines in the files."""
        return max((line.rev for line in self._lines.values()), default=0)

    def order(self, made: str) -> tuple[int, str]:
        """Return the sort key of a line: its time, then its commit."""
        line = self._lines.get(made)
        if line is None:
            return 0, made
        return 0 if line.at is None else clock.to_us(line.at), line.c or made

    def version(self, made: str) -> Datum | None:
        """Return the version that a line holds; None for a deletion. Raises KeyError for a missing line."""
        line = self._lines[made]
        return None if line.op == "delete" else datum_of(line)

    def merge_tips(self, tips: Iterable[str]) -> merge.MergedRecord:
        """Merge the newest lines of several copies, earliest first."""
        first, *others = sorted(tips, key=self.order)
        merged, done = merge.MergedRecord(self.version(first)), frozenset((first,))
        for tip in others:
            came = merge.merge(self._base(done, frozenset((tip,))), merged.version, self.version(tip))
            disputed = tuple(dict.fromkeys((*merged.disputed, *came.disputed)))
            merged, done = merge.MergedRecord(came.version, disputed), done | {tip}
        return merged

    def _base(self, left: Sums, right: Sums) -> Datum | None:
        """Return the common base of two sides: their last common line, or several merged."""
        common = self._ancestors(left) & self._ancestors(right)
        known = {made for made in common if made in self._lines}
        older = {
            each for made in known for each in self._ancestors(frozenset(previous_sums(self._lines[made])))
        }
        last = sorted(known - older, key=self.order)
        # None of several follows another, so their base is further back with each recursion.
        return self.merge_tips(last).version if last else None

    def _ancestors(self, sums: Sums) -> set[str]:
        """Return some lines with all their ancestors."""
        found: set[str] = set()
        left = list(sums)
        while left:
            made = left.pop()
            if made not in found:
                found.add(made)
                left += previous_sums(self._lines[made]) if made in self._lines else ()
        return found


def datum_of(line: RecordLine) -> Datum:
    """Return the record that a line holds."""
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
