"""Compare a vector index with the records, and mend it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dgent.errors import Corrupt
from dgent.store.engine.catalog import T_MIN, VECTOR, IndexName, SchemaState, high, low, vector_index
from dgent.store.engine.fold import ALL
from dgent.store.engine.kernel import IndexScan, Reading, VectorDoc, VectorRow
from dgent.store.engine.row import Row
from dgent.store.engine.text import find_waiting
from dgent.store.engine.vector import (
    BITS,
    PAGE_SLOTS,
    BitPage,
    VectorIndex,
    VectorStats,
    has_numpy,
    open_vectors,
    page_word,
    record_of,
    unpack_page,
)
from dgent.store.engine.vector_fold import encode_rows, erase_vectors, put_pages, read_contents, write_stats

if TYPE_CHECKING:
    from dgent.store.engine.commit import Ledger

_BATCH = 1_000
_FALSE_BITS = 0.02  # so many of the bits may differ: sums that are almost zero depend on the processor


class VectorDamage(NamedTuple):
    """The damage of a vector index: records to be indexed again, and whether its bits must be made anew.

    `whole` says that nothing of it can be used.
    """

    records: frozenset[int] = frozenset()
    bits: bool = False
    whole: bool = False

    def __bool__(self) -> bool:
        return bool(self.records) or self.bits or self.whole


def find_damage(reading: Reading, state: SchemaState) -> VectorDamage:
    """Return what is wrong with the vector index of a schema; bits and numbers only where numpy is there."""
    index = open_vectors(reading, state)
    if index is None:
        return VectorDamage()
    try:
        stats = index.stats()
        centred = stats.generation == 0 or bool(reading.find_text_pages(index.index, [(b"\x01", 0)]))
    except Corrupt:
        return VectorDamage(whole=True)
    docs = reading.vector_docs(index.index, None)
    there = {key: doc for key, doc in docs.items() if doc.digest}
    if stats.records != len(there) or stats.tombstones != len(docs) - len(there) or not centred:
        return VectorDamage(whole=True)
    if any(doc.slot > stats.slot for doc in docs.values()):
        return VectorDamage(whole=True)
    waiting = find_waiting(reading, index.index, None)
    wrong = frozenset(_find_wrong(index, there) - waiting.keys())
    good = {key: doc for key, doc in there.items() if key not in wrong}
    return VectorDamage(wrong, _are_bits_wrong(index, stats, good))


def _find_wrong(index: VectorIndex, there: Mapping[int, VectorDoc]) -> set[int]:
    """Return the records whose vectors are not in the index as the records have them."""
    wrong = set(there)  # until their records are met
    for batch in _batches(index):
        keys = [row.record_key for row in batch]
        bodies = index.bodies([there[key].slot for key in keys if key in there])
        made = read_contents(index, batch) if not index.spec.model and has_numpy() else None
        for key in keys:
            doc = there.get(key)
            body = None if doc is None else bodies.get(doc.slot)
            if made is not None:
                wanted = made[key]
                right = (
                    (wanted is None)
                    if doc is None
                    else (wanted is not None and (doc.digest, body) == (wanted.digest, wanted.body))
                )
            else:  # what a model made cannot be made again here
                right = doc is None or body is not None
            (wrong.discard if right else wrong.add)(key)
    return wrong


def _batches(index: VectorIndex) -> Iterator[list[Row]]:
    """Yield all live records of the schema."""
    reading = index.reading
    base = reading.index_number(IndexName(index.state.number, 0, "", ""))
    if base is None:
        return
    walk = reading.walk(IndexScan(base, low(b""), high(b"")), False, True)
    while batch := [row for _, row in islice(walk, _BATCH)]:
        yield batch


def _are_bits_wrong(index: VectorIndex, stats: VectorStats, docs: Mapping[int, VectorDoc]) -> bool:
    """Return whether the pages of bits are not those of the rows."""
    slots = {doc.slot: key for key, doc in docs.items()}
    met = 0
    for raws in index.all_pages(stats.slot):
        for raw in raws:
            try:
                page = unpack_page(raw, index.entry_size)
            except Corrupt:
                return True
            found = {slot: record_of(entry) for slot, entry in page.entries.items()}
            met += sum(slots.get(slot) == key for slot, key in found.items())
            if page.generation == stats.generation and not _are_like(index, stats, page, slots):
                return True
    return met < len(slots)


def _are_like(index: VectorIndex, stats: VectorStats, page: BitPage, slots: Mapping[int, int]) -> bool:
    """Return whether the bits of a page are about those that its vectors give."""
    if not has_numpy():
        return True
    known = {slot: slots[slot] for slot in page.entries if slot in slots}
    bodies = index.bodies(known)
    rows = [VectorRow(slot, known[slot], 0, b"", body) for slot, body in sorted(bodies.items())]
    for row, entry in zip(rows, encode_rows(index, stats, rows), strict=True):
        differing = int.from_bytes(entry[20:]) ^ int.from_bytes(page.entries[row.slot][20:])
        if differing.bit_count() > _FALSE_BITS * 8 * (len(entry) - 20) + 2:
            return False
    return True


# -- mending ------------------------------------------------------------------------------


def mend(ledger: Ledger, schema: str, damage: VectorDamage) -> None:
    """Have records indexed again, or make the bits anew, or the whole index."""
    kernel = ledger.kernel
    kernel.move_entries()
    state = kernel.state(schema)
    index = open_vectors(kernel, state)
    if state is None or index is None:
        return
    if damage.whole:
        wanted = vector_index(state)
        kernel.drop_indexes(state.number, lambda name: name != wanted, ALL)
        kernel.set_state(msgspec.structs.replace(state, ready=state.ready - {VECTOR}, fill=(T_MIN, 0)))
        return
    if damage.bits:
        _make_bits(ledger, index)
    erase_vectors(kernel, state, damage.records)
    rows = [row for row in map(kernel.row, sorted(damage.records)) if row is not None]
    only = msgspec.structs.replace(state, text=())
    mine = [row for row in rows if row.schema == state.number]
    kernel.add_entries([entry for row in mine for entry in ledger.note_version(row, only)])


def _make_bits(ledger: Ledger, index: VectorIndex) -> None:
    kernel, stats = ledger.kernel, index.stats()
    found = kernel.text_pages(index.index, BITS, BITS + b"\xff" * 7)
    kernel.drop_text_pages([(index.index, word, first) for word, first, _ in list(found)])
    slot = 0
    while rows := kernel.vectors_after(index.index, slot, PAGE_SLOTS * 16):
        slot = rows[-1].slot
        _add_rows(ledger, index, stats, [row for row in rows if row.digest])
    write_stats(kernel, index, stats._replace(coded=stats.slot, erased=stats.erased + 1))


def _add_rows(ledger: Ledger, index: VectorIndex, stats: VectorStats, rows: Sequence[VectorRow]) -> None:
    pages = index.pages([row.slot for row in rows])
    for row, entry in zip(rows, encode_rows(index, stats, rows), strict=True):
        page = pages.setdefault(page_word(row.slot), BitPage(stats.generation, {}))
        page.entries[row.slot] = entry
    put_pages(ledger.kernel, index, pages)
