"""The vector index of a schema: the vectors of its records as they are compared, and their bits.

A commit only notes that its records are to be indexed, as for texts. Later their vectors are stored as rows,
each under the next slot of the index, and their bits in pages of slots. So slots are in the order of changes,
and a reader that knows the last one it has seen asks for those after it. A record that has no vector any more
leaves a row without one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dgent.errors import Corrupt, Unsupported
from dgent.model.vector import VectorSpec, bit_count, row_size
from dgent.store.engine.catalog import VECTOR, SchemaState, high, low, vector_index
from dgent.store.engine.kernel import IndexScan, Reading
from dgent.store.search import EmbeddedSchema

if TYPE_CHECKING:
    from dgent.search.vectors import Coder

SEED = 1  # of the rotations of new indexes
PAGE_SLOTS = 64  # the bits of so many slots are one page
READ_PAGES = 1_024  # so many pages are read at once
REBUILD = "`dgent doctor --deep --fix` builds the index anew"
CENTRE = b"\x01"  # the word under which an index keeps its centre
COUNTS = b""  # the word under which a vector index keeps its counts
BITS = b"\x02"  # how the words of pages of bits begin
_HEAD = Struct("<I")  # of a page of bits: the generation of the centre
PAGE_HEAD = _HEAD.size
_SLOT = Struct("<qq")  # how an entry of a page begins: with its slot and its record


class VectorStats(NamedTuple):
    """The counts of a vector index: vectors, the last slot, rows of records without a vector.

    `token` is another number in each index. `generation` grows with each centre, `coded` is the slot up to
    which pages have the newest one. `erased` grows when rows without a vector are dropped.
    """

    records: int = 0
    slot: int = 0
    tombstones: int = 0
    token: int = 0
    seed: int = SEED
    generation: int = 0
    coded: int = 0
    erased: int = 0


_stats = msgspec.msgpack.Decoder(tuple[int, int, int, int, int, int, int, int])


def require_numpy() -> None:
    """Raise Unsupported where numpy is missing; whoever calculates with vectors asks first."""
    if not has_numpy():
        raise Unsupported("vectors need numpy", hint="pip install 'dgent[vectors]'")


def has_numpy() -> bool:
    """Return whether numpy can be used here."""
    try:
        import numpy  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


class BitPage(NamedTuple):
    """A page of bits: the generation of its centre, and the entry of each slot."""

    generation: int
    entries: dict[int, bytes]

    def pack(self) -> bytes:
        """Return the page as bytes."""
        return _HEAD.pack(self.generation) + b"".join(self.entries[slot] for slot in sorted(self.entries))


def unpack_page(raw: bytes, size: int) -> BitPage:
    """Return the page of some bytes; each of its entries has a size."""
    if (len(raw) - _HEAD.size) % size or len(raw) < _HEAD.size:
        raise Corrupt("a page of bits of a vector index is damaged", hint=REBUILD)
    entries = [raw[at : at + size] for at in range(_HEAD.size, len(raw), size)]
    return BitPage(_HEAD.unpack_from(raw)[0], {_SLOT.unpack_from(entry)[0]: entry for entry in entries})


def page_generation(raw: bytes) -> int:
    """Return the generation of the centre for which a page was made; 0 if it is cut off."""
    generation: int = _HEAD.unpack_from(raw)[0] if len(raw) >= _HEAD.size else 0
    return generation


def record_of(entry: bytes) -> int:
    """Return the record of an entry of a page."""
    record_key: int = _SLOT.unpack_from(entry)[1]
    return record_key


def page_word(slot: int) -> bytes:
    """Return the word under which the page of a slot is kept."""
    return BITS + (slot // PAGE_SLOTS).to_bytes(6, "big")


class VectorIndex:
    """One vector index of a store, as of the moment that is read."""

    def __init__(self, reading: Reading, state: SchemaState, spec: VectorSpec, index: int) -> None:
        self.reading, self.state, self.spec, self.index = reading, state, spec, index

    def stats(self) -> VectorStats:
        """Return its counts."""
        for _, _, raw in self.reading.text_pages(self.index, COUNTS, COUNTS + b"\0"):
            try:
                return VectorStats(*_stats.decode(raw))
            except msgspec.DecodeError as error:
                raise Corrupt(f"the counts of a vector index are damaged: {error}", hint=REBUILD) from None
        return VectorStats()

    def coder(self, stats: VectorStats) -> Coder:
        """Return what makes the bits of its vectors."""
        require_numpy()
        from dgent.search.vectors import Coder

        centre = b""
        if stats.generation:
            found = self.reading.find_text_pages(self.index, [(CENTRE, 0)])
            if CENTRE not in found or len(found[CENTRE].body) != 4 * self.spec.dim:
                raise Corrupt("the centre of a vector index is missing", hint=REBUILD)
            centre = found[CENTRE].body
        return Coder(self.spec.dim, self.spec.metric, stats.seed, centre)

    @property
    def entry_size(self) -> int:
        """The bytes of an entry of a page: slot, record, distance from the centre, bits."""
        return _SLOT.size + 4 + bit_count(self.spec.dim) // 8

    def pages(self, slots: Iterable[int]) -> dict[bytes, BitPage]:
        """Return the pages of some slots that there are, by their words."""
        words = sorted({page_word(slot) for slot in slots})
        found = self.reading.find_text_pages(self.index, [(word, 0) for word in words]) if words else {}
        return {word: unpack_page(page.body, self.entry_size) for word, page in found.items()}

    def all_pages(self, last: int) -> Iterator[list[bytes]]:
        """Yield the bytes of the pages of the slots up to the last one, many at once."""
        for slot in range(0, last + 1, PAGE_SLOTS * READ_PAGES):
            low, high = page_word(slot), page_word(slot + PAGE_SLOTS * READ_PAGES)
            yield [raw for _, _, raw in self.reading.text_pages(self.index, low, high)]

    def bodies(self, slots: Collection[int]) -> Mapping[int, bytes]:
        """Return the stored vectors of some slots, as far as they are there."""
        size = row_size(self.spec.dim)
        found = self.reading.vector_bodies(self.index, sorted(slots)) if slots else ()
        return {slot: body for slot, body in found if len(body) == size}


def open_vectors(reading: Reading, state: SchemaState | None) -> VectorIndex | None:
    """Return the vector index of a schema; None if it has none, or no record of it was written yet."""
    if state is None or state.vector is None:
        return None
    index = reading.index_number(vector_index(state))
    return None if index is None else VectorIndex(reading, state, state.vector, index)


def describe_embedded(reading: Reading, state: SchemaState, most: int) -> EmbeddedSchema | None:
    """Return how far a model has embedded the texts of a schema; None if none does.

    Of the versions that wait, it counts at most so many.
    """
    spec = state.vector
    if spec is None or not spec.model:
        return None
    index = open_vectors(reading, state)
    waiting = vectors = 0
    if index is not None:
        vectors = index.stats().records
        waiting = reading.size(IndexScan(index.index, low(b""), high(b"\xff" * 17)), most)
    building = VECTOR not in state.ready
    return EmbeddedSchema(state.name, state.index_version, spec, vectors, waiting, building)
