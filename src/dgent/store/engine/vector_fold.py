"""Bring vector indexes up to date: waiting versions become rows and bits, in short writes.

Each step works out from the store what is next, as for texts. Where the vectors come from does not matter
here: `fold_step` takes them from the contents of records, `store_vectors` is given what a model made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from secrets import randbits
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dgent import codec
from dgent.store.engine.catalog import Entry, SchemaState, find_waiting_entry, waiting_entry
from dgent.store.engine.kernel import IndexScan, VectorRow, Writing
from dgent.store.engine.row import Row
from dgent.store.engine.text import WaitingRecord, find_waiting
from dgent.store.engine.vector import (
    CENTRE,
    COUNTS,
    PAGE_SLOTS,
    BitPage,
    VectorIndex,
    VectorStats,
    has_numpy,
    open_vectors,
    page_word,
    record_of,
    require_numpy,
)
from dgent.store.search import GivenVector

if TYPE_CHECKING:
    from dgent.store.engine.commit import Ledger

FOLD_RECORDS = 512  # so many waiting versions become rows in one write
FOLD_LEAST = 64  # fewer may wait: a search looks at them itself
RECODE_PAGES = 64  # the bits of so many pages are made anew in one write
CENTRE_AT = (1_024, 16_384)  # with so many vectors, the centre of all is worked out
CENTRE_OF = 4_096  # from so many of them
MANY_TOMBSTONES = 1_024


class MadeVector(NamedTuple):
    """The vector of a version: its rev, the digest of what it was made from, and its stored row."""

    rev: int
    digest: bytes
    body: bytes


Changes = Mapping[int, MadeVector | None]
"""The vectors of records by their keys; None for those that have none any more."""


def digest_of(content: bytes) -> bytes:
    """Return the digest that says whether a vector is as it was."""
    return codec.blake2b(content, size=8).digest()


def fold_step(ledger: Ledger, state: SchemaState) -> bool:
    """Do one step for a vector index; False when nothing is left that is worth one."""
    kernel = ledger.kernel
    index = open_vectors(kernel, state)
    if index is None or not has_numpy():
        return False
    stats = index.stats()
    if stats.generation < sum(stats.records >= count for count in CENTRE_AT):
        _centre(kernel, index, stats)
        return True
    if stats.coded < stats.slot:
        _recode_step(kernel, index, stats)
        return True
    if stats.tombstones > max(MANY_TOMBSTONES, stats.records // 2):
        drop_tombstones(kernel, index, stats)
        return True
    waiting = find_waiting(kernel, index.index, FOLD_RECORDS, content=True)
    if index.spec.model:
        waiting = {key: each for key, each in waiting.items() if not _has_vector(index, each.row)}
    # Those that a model will not see are dealt with at once: nobody else counts them as done.
    if len(waiting) < (1 if index.spec.model else FOLD_LEAST):
        return False
    change_vectors(kernel, index, stats, _read_contents(kernel, index, waiting))
    kernel.remove_entries(_entries_of(index, waiting))
    return True


def _has_vector(index: VectorIndex, row: Row) -> bool:
    return bool(row.live) and row.schema == index.state.number


def _entries_of(index: VectorIndex, waiting: Mapping[int, WaitingRecord]) -> list[Entry]:
    return [
        find_waiting_entry(index.index, key, record_key)
        for record_key, found in waiting.items()
        for key in found.keys
    ]


def _read_contents(kernel: Writing, index: VectorIndex, waiting: Mapping[int, WaitingRecord]) -> Changes:
    """Return the vectors that the contents of records hold."""
    changes: dict[int, MadeVector | None] = dict.fromkeys(waiting)
    rows = [found.row for found in waiting.values() if _has_vector(index, found.row)]
    if rows and not index.spec.model:
        made = kernel.calculate(lambda: read_contents(index, rows))
        changes.update(made)
    return changes


def read_contents(index: VectorIndex, rows: Sequence[Row]) -> dict[int, MadeVector | None]:
    """Return the vectors that the contents of some rows hold."""
    from dgent.search.vectors import pack_contents

    contents = [row.content or b"" for row in rows]
    bodies = pack_contents(contents, index.spec.dim, index.spec.metric)
    return {
        row.record_key: None if body is None else MadeVector(row.rev, digest_of(content), body)
        for row, content, body in zip(rows, contents, bodies, strict=True)
    }


# -- rows and pages -----------------------------------------------------------------------


def change_vectors(kernel: Writing, index: VectorIndex, stats: VectorStats, changes: Changes) -> VectorStats:
    """Write other vectors of some records; return the counts after that."""
    known = kernel.vector_docs(index.index, changes)
    slot, records, tombstones = stats.slot, stats.records, stats.tombstones
    written: list[VectorRow] = []
    added: list[VectorRow] = []
    freed: list[int] = []
    for key, change in changes.items():
        old = known.get(key)
        lived = old is not None and bool(old.digest)
        if old is not None and change is not None and lived and old.digest == change.digest:
            written.append(VectorRow(old.slot, key, *change))  # as it was, in another version
            continue
        if change is None and not lived:
            continue
        slot += 1
        row = VectorRow(slot, key, 0, b"", b"") if change is None else VectorRow(slot, key, *change)
        written.append(row)
        if change is not None:
            added.append(row)
        if old is not None and lived:
            freed.append(old.slot)
        records += (change is not None) - lived
        tombstones += (change is None) - (old is not None and not lived)
    new = stats._replace(slot=slot, records=records, tombstones=tombstones)
    coded = slot if stats.coded == stats.slot else stats.coded
    new = new._replace(token=stats.token or randbits(62), coded=coded)
    kernel.put_vectors(index.index, written)
    _change_pages(kernel, index, new, freed, added)
    write_stats(kernel, index, new)
    return new


def _change_pages(
    kernel: Writing, index: VectorIndex, stats: VectorStats, freed: Sequence[int], added: Sequence[VectorRow]
) -> None:
    """Take the bits of some slots out of their pages, and add those of others."""
    pages = index.pages([*freed, *(row.slot for row in added)])
    for slot in freed:
        if page_word(slot) in pages:
            pages[page_word(slot)].entries.pop(slot, None)
    if added:
        ends = {page_word(row.slot) for row in added}
        old = {word for word in ends & pages.keys() if pages[word].generation != stats.generation}
        _recode(index, stats, pages, old)
        for row, entry in zip(added, encode_rows(index, stats, added), strict=True):
            page = pages.setdefault(page_word(row.slot), BitPage(stats.generation, {}))
            page.entries[row.slot] = entry
    put_pages(kernel, index, pages)


def put_pages(kernel: Writing, index: VectorIndex, pages: Mapping[bytes, BitPage]) -> None:
    """Write pages of bits; those without an entry go."""
    kernel.put_text_pages(
        [(index.index, word, 0, page.pack()) for word, page in pages.items() if page.entries]
    )
    gone = [word for word, page in pages.items() if not page.entries]
    there = kernel.find_text_pages(index.index, [(word, 0) for word in gone]) if gone else {}
    kernel.drop_text_pages([(index.index, word, 0) for word in there])


def encode_rows(index: VectorIndex, stats: VectorStats, rows: Sequence[VectorRow]) -> list[bytes]:
    """Return the entries of rows in pages of bits."""
    if not rows:
        return []
    coder = index.coder(stats)
    from dgent.search.bits import pack_entries

    return index.reading.calculate(
        lambda: pack_entries(
            [row.slot for row in rows],
            [row.record_key for row in rows],
            coder.encode_rows([row.body for row in rows]),
        )
    )


def _recode(
    index: VectorIndex,
    stats: VectorStats,
    pages: dict[bytes, BitPage],
    words: Collection[bytes],
) -> None:
    """Make the bits of some pages anew, from the rows."""
    records = {slot: record_of(entry) for word in words for slot, entry in pages[word].entries.items()}
    bodies = index.bodies(records)
    rows = [VectorRow(slot, records[slot], 0, b"", body) for slot, body in sorted(bodies.items())]
    for word in words:
        pages[word] = BitPage(stats.generation, {})
    for row, entry in zip(rows, encode_rows(index, stats, rows), strict=True):
        pages[page_word(row.slot)].entries[row.slot] = entry


def write_stats(kernel: Writing, index: VectorIndex, stats: VectorStats) -> None:
    """Write the counts of an index."""
    kernel.put_text_pages([(index.index, COUNTS, 0, msgspec.msgpack.encode(tuple(stats)))])


# -- the centre ---------------------------------------------------------------------------


def _centre(kernel: Writing, index: VectorIndex, stats: VectorStats) -> None:
    """Work out the centre of the vectors anew; their bits follow in further steps."""
    from dgent.search.vectors import find_centre

    step = max(1, stats.slot // CENTRE_OF)
    bodies = list(index.bodies(range(1, stats.slot + 1, step)).values())
    centre = kernel.calculate(lambda: find_centre(bodies, index.spec.dim))
    kernel.put_text_pages([(index.index, CENTRE, 0, centre)])
    write_stats(kernel, index, stats._replace(generation=stats.generation + 1, coded=0))


def _recode_step(kernel: Writing, index: VectorIndex, stats: VectorStats) -> None:
    last = min(stats.slot, stats.coded + PAGE_SLOTS * RECODE_PAGES)
    pages = index.pages(range(stats.coded, last + 1, 1))
    old = {word for word, page in pages.items() if page.generation != stats.generation}
    _recode(index, stats, pages, old)
    put_pages(kernel, index, {word: pages[word] for word in old})
    write_stats(kernel, index, stats._replace(coded=last))


# -- given vectors ------------------------------------------------------------------------


def store_vectors(kernel: Writing, state: SchemaState, given: Sequence[GivenVector]) -> int:
    """Store vectors of versions that wait, unless they were replaced meanwhile; return how many."""
    index = open_vectors(kernel, state)
    if index is None:
        return 0
    rows = {row.record_key: row for row in kernel.rows([each.record_key for each in given], False)}
    current = [
        each
        for each in given
        if (row := rows.get(each.record_key)) and row.rev == each.rev and _has_vector(index, row)
    ]
    docs = kernel.vector_docs(index.index, [each.record_key for each in current])
    slots = {
        docs[each.record_key].slot for each in current if each.vector is None and each.record_key in docs
    }
    stored = index.bodies(slots)
    bodies = {key: stored[doc.slot] for key, doc in docs.items() if doc.slot in stored}
    bodies |= _pack_given(kernel, index, [each for each in current if each.vector is not None])
    changes: dict[int, MadeVector | None] = {
        each.record_key: MadeVector(each.rev, each.digest, bodies[each.record_key])
        for each in current
        if each.digest and each.record_key in bodies
    }
    changes |= {each.record_key: None for each in current if not each.digest}
    change_vectors(kernel, index, index.stats(), changes)
    _end_waiting(kernel, index, [each for each in current if each.record_key in changes], rows)
    return len(changes)


def _pack_given(kernel: Writing, index: VectorIndex, given: Sequence[GivenVector]) -> dict[int, bytes]:
    if not given:
        return {}
    require_numpy()
    from dgent.search.vectors import pack_contents

    spec = index.spec
    contents = [each.vector or b"" for each in given]
    made = kernel.calculate(lambda: pack_contents(contents, spec.dim, spec.metric))
    return {each.record_key: body for each, body in zip(given, made, strict=True) if body is not None}


def _end_waiting(
    kernel: Writing, index: VectorIndex, done: Sequence[GivenVector], rows: Mapping[int, Row]
) -> None:
    """Remove the entries of records whose newest version is indexed; those of a batch lie together."""
    if not done:
        return
    keys = [each.key for each in done]
    waiting = find_waiting(kernel, index.index, None, between=(min(keys), max(keys)))
    ready = {each.record_key for each in done} & waiting.keys()
    gone = _entries_of(index, {key: waiting[key] for key in ready})
    for each in done:
        # A version that came after others of the same record has its entry further on.
        entry = waiting_entry(index.index, each.rev, rows[each.record_key].created_at, each.record_key)
        _, key, created_at, record_key = entry
        place = IndexScan(index.index, entry[1:], (key, created_at, record_key + 1))
        if not min(keys) <= key <= max(keys) and kernel.size(place, 1):
            gone.append(entry)
    kernel.remove_entries(gone)


# -- records that go ----------------------------------------------------------------------


def erase_vectors(kernel: Writing, state: SchemaState, record_keys: Set[int]) -> None:
    """Remove every trace of some records from the vector index of their schema; needs no numpy."""
    index = open_vectors(kernel, state)
    if index is None:
        return
    waiting = find_waiting(kernel, index.index, None)
    kernel.remove_entries(_entries_of(index, {key: waiting[key] for key in waiting.keys() & record_keys}))
    if kernel.vector_docs(index.index, record_keys):
        change_vectors(kernel, index, index.stats(), dict.fromkeys(sorted(record_keys)))


def drop_tombstones(kernel: Writing, index: VectorIndex, stats: VectorStats) -> None:
    """Drop the rows of records without a vector; readers load the whole index again then."""
    docs = kernel.vector_docs(index.index, None)
    kernel.drop_vectors(index.index, [key for key, doc in docs.items() if not doc.digest])
    write_stats(kernel, index, stats._replace(tombstones=0, erased=stats.erased + 1))
