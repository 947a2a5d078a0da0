"""The bits of vector indexes in memory: those of the last search, with the changes since then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dgent.errors import Corrupt
from dgent.store.engine.kernel import VectorRow
from dgent.store.engine.vector import (
    PAGE_HEAD,
    REBUILD,
    VectorIndex,
    VectorStats,
    page_generation,
    record_of,
    unpack_page,
)

if TYPE_CHECKING:
    from dgent.search.bits import Segment, Snapshot
    from dgent.search.vectors import Coder

MANY_CHANGES = 20_000  # after more changes, all bits are loaded again


class Cached(NamedTuple):
    """The bits of an index, and how they are made: one search leaves them for the next."""

    snapshot: Snapshot
    coder: Coder


class VectorCache:
    """The caches of one store, by the number of the index. Values are replaced, never changed."""

    def __init__(self) -> None:
        self.known: dict[int, Cached] = {}
        self.waiting: dict[tuple[int, int, int], bytes | None] = {}  # by index, record key and rev


def bring_up_to_date(index: VectorIndex, stats: VectorStats, cache: VectorCache) -> Cached | None:
    """Return the bits of an index as of the moment that is read; None if those in memory are later."""
    known = cache.known.get(index.index)
    if known is None or not _is_same(known.snapshot, stats):
        known = _load(index, stats)
    elif known.snapshot.slot > stats.slot:
        return None
    elif known.snapshot.slot < stats.slot:
        if stats.slot - known.snapshot.slot > MANY_CHANGES:
            known = _load(index, stats)
        else:
            known = Cached(_add_changes(index, stats, known), known.coder)
    else:
        return known
    cache.known[index.index] = known
    return known


def _is_same(snapshot: Snapshot, stats: VectorStats) -> bool:
    held = snapshot.token, snapshot.generation, snapshot.erased
    return held == (stats.token, stats.generation, stats.erased)


def _add_changes(index: VectorIndex, stats: VectorStats, known: Cached) -> Snapshot:
    snapshot = known.snapshot
    rows = index.reading.vectors_after(index.index, snapshot.slot, stats.slot - snapshot.slot)
    added = [row for row in rows if row.digest]
    return index.reading.calculate(
        lambda: snapshot.change(
            stats.slot, [row.record_key for row in rows], _make_segment(added, known.coder)
        )
    )


def _make_segment(rows: Sequence[VectorRow], coder: Coder) -> Segment | None:
    from dgent.search.bits import make_segment

    if not rows:
        return None
    signs = coder.encode_rows([row.body for row in rows])
    return make_segment([row.slot for row in rows], [row.record_key for row in rows], signs)


def _load(index: VectorIndex, stats: VectorStats) -> Cached:
    """Load the bits of an index from its pages; what these lack is made from the rows."""
    from dgent.search.bits import SegmentBuilder, Snapshot

    coder = index.coder(stats)
    built = SegmentBuilder(stats.records, index.spec.dim)
    old: dict[int, int] = {}
    count = 0
    for raws in index.all_pages(stats.slot):
        current = [raw for raw in raws if page_generation(raw) == stats.generation]
        if any((len(raw) - PAGE_HEAD) % index.entry_size for raw in current):
            raise Corrupt("a page of bits of a vector index is damaged", hint=REBUILD)
        count += sum((len(raw) - PAGE_HEAD) // index.entry_size for raw in current)
        if count > stats.records:
            raise Corrupt("a vector index has more bits than vectors", hint=REBUILD)
        index.reading.calculate(lambda some=current: built.add([raw[PAGE_HEAD:] for raw in some]))  # type: ignore[misc]
        for raw in raws:
            if page_generation(raw) != stats.generation:
                page = unpack_page(raw, index.entry_size)
                old |= {slot: record_of(entry) for slot, entry in page.entries.items()}
    empty = Snapshot(stats.token, stats.generation, stats.erased, stats.slot)
    snapshot = empty.change(stats.slot, (), built.finish())
    if old:
        bodies = index.bodies(old)
        rows = [VectorRow(slot, old[slot], 0, b"", body) for slot, body in sorted(bodies.items())]
        snapshot = index.reading.calculate(
            lambda: snapshot.change(stats.slot, (), _make_segment(rows, coder))
        )
    return Cached(snapshot, coder)
