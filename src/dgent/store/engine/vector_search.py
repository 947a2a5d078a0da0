"""A search for near vectors at one moment: the bits of all in memory choose, the stored vectors decide.

The bits in memory are those of the last search, with the changes since then. Versions that wait to be
indexed are compared themselves. A filter comes before the cut: where an index gives the records that match,
only these are compared; otherwise the ranking is walked until enough of them match.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from dgent.errors import Corrupt, InputError, Unsupported
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.vector import VectorSpec
from dgent.store.backend import View
from dgent.store.engine.catalog import VECTOR, IndexName, high, low
from dgent.store.engine.expiry import find_moment, has_expired
from dgent.store.engine.kernel import IndexScan, Reading
from dgent.store.engine.narrow import narrow
from dgent.store.engine.override import Overrides, find_overrides
from dgent.store.engine.row import datum_of
from dgent.store.engine.text import WaitingRecord, find_unfilled, find_waiting
from dgent.store.engine.vector import VectorIndex, open_vectors
from dgent.store.engine.vector_cache import Cached, VectorCache, bring_up_to_date
from dgent.store.engine.vector_fold import FOLD_LEAST
from dgent.store.search import FoundVector, VectorPage, WaitingVector

if TYPE_CHECKING:
    from dgent.search.vectors import Floats

MANY_WAITING = 2_000  # so many records are looked at themselves; if more wait, the index is being built
FEWEST = 150  # vectors that are always compared themselves
_READ = 256  # so many records are read at once at most
_MORE = 4  # so many are read beyond those that are wanted: some score alike
_SAMPLED = 4  # an index answers first if it leaves at most one record in so many


_Hit = tuple[float, int, Datum]
"""The score of a record, its key and its version."""


def _rank(hit: _Hit) -> tuple[float, int]:
    return -hit[0], -hit[1]


def search_vectors(
    reading: Reading,
    raw: bytes,
    query: Query,
    view: View,
    limit: int,
    cache: VectorCache,
    as_of: int | None = None,
    spec: VectorSpec | None = None,
) -> VectorPage | None:
    """Return the nearest records that match; None if the read must be done again, as of a later moment."""
    state = None if query.schema is None else reading.state(query.schema)
    index = open_vectors(reading, state)
    if index is None or spec not in (None, index.spec):
        return VectorPage([])
    if len(raw) != 4 * index.spec.dim:
        raise InputError(f"the vector has {len(raw) // 4} numbers, not {index.spec.dim}", field="vector")
    if as_of is not None and index.spec.model:
        hint = "search without as_of, or by words"
        raise Unsupported("the vectors that a model made of earlier versions are not kept", hint=hint)
    bits = bring_up_to_date(index, index.stats(), cache)
    if bits is None:
        return None
    overrides = find_overrides(reading, [index.state.name], view, as_of, {})
    return _Search(index, raw, query, view, cache, overrides, bits, as_of).answer(limit)


class _Search:
    """One search of an index."""

    def __init__(
        self,
        index: VectorIndex,
        raw: bytes,
        query: Query,
        view: View,
        cache: VectorCache,
        overrides: Overrides,
        bits: Cached,
        as_of: int | None,
    ) -> None:
        from dgent.search.vectors import from_bytes

        self.index, self.query, self.view, self.overrides = index, query, view, overrides
        self.as_of = as_of
        self.vector: Floats = from_bytes(raw)
        self.cached = bits
        self.waiting = find_unfilled(index.reading, index.state, MANY_WAITING, VECTOR)
        self.waiting |= find_waiting(index.reading, index.index, MANY_WAITING, newest=True)
        self.fresh = self._read_overrides() | self._read_waiting(cache)
        self.checked = False  # whether indexes have proven that the candidates match

    def _read_overrides(self) -> dict[int, bytes]:
        """Return the vectors of versions that count in place of the newest ones."""
        contents = {key: each.content for key, each in self.overrides.items() if each is not None}
        return self._pack(contents)

    def _read_waiting(self, cache: VectorCache) -> dict[int, bytes]:
        """Return the vectors of versions that wait; a model has not made theirs yet."""
        if self.index.spec.model:
            # Until it does, the vectors of the versions before count, if the records are there.
            return {}
        number, reading = self.index.index, self.index.reading
        names = {
            key: (number, key, found.row.rev)
            for key, found in self.waiting.items()
            if key not in self.overrides and found.row.live and found.row.schema == self.index.state.number
        }
        if len(cache.waiting) > 2 * MANY_WAITING:
            cache.waiting = {}
        kept = cache.waiting
        unknown = [key for key, name in names.items() if name not in kept]
        rows = reading.rows(unknown, True) if unknown else ()
        made = self._pack({row.record_key: row.content or b"" for row in rows})
        found = {key: made.get(key) if key in unknown else kept[name] for key, name in names.items()}
        kept.update((names[key], made.get(key)) for key in unknown)
        return {key: body for key, body in found.items() if body is not None}

    def _pack(self, contents: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the vectors that contents hold, as they are compared."""
        from dgent.search.vectors import pack_contents

        spec, given = self.index.spec, list(contents.values())
        if not given:
            return {}
        made = self.index.reading.calculate(lambda: pack_contents(given, spec.dim, spec.metric))
        return {key: body for key, body in zip(contents, made, strict=True) if body is not None}

    def answer(self, limit: int) -> VectorPage:
        """Return the nearest records, the nearest first."""
        walk = self._walk(limit)
        found = list(islice(walk, limit))
        if not self.index.spec.model:
            found = self._score_exactly(found, walk, limit)
        behind = len(self.waiting)
        items = [FoundVector(datum, score) for score, _, datum in found[:limit]]
        building = behind >= MANY_WAITING or VECTOR not in self.index.state.ready
        return VectorPage(items, building, behind >= FOLD_LEAST)

    def _score_exactly(self, first: Sequence[_Hit], rest: Iterator[_Hit], limit: int) -> list[_Hit]:
        """Return hits by their scores in whole precision, and those of the rest that could be among them."""
        from dgent.search.vectors import from_bytes, score_error, score_exactly

        metric = self.index.spec.metric
        best: list[_Hit] = []
        for score, key, datum in chain(first, islice(rest, 4 * limit + 64)):
            vector = from_bytes(datum.content)
            if len(best) >= limit and score + score_error(score, vector, self.vector, metric) < best[-1][0]:
                break
            insort(best, (score_exactly(vector, self.vector, metric), key, datum), key=_rank)
            del best[limit:]
        return best

    # -- the ranking ----------------------------------------------------------------------

    def _walk(self, limit: int) -> Iterator[_Hit]:
        """Yield the records that match, by their scores; those of the same score the newest first."""
        allowed = self._find_allowed()
        count = self.cached.snapshot.count() if allowed is None else len(allowed)
        most = count_candidates(count, limit)
        seen: set[int] = set()
        while True:
            ranked, whole = self._rank(most, allowed)
            left = [each for each in ranked if each[1] not in seen]
            start, size = 0, limit + _MORE  # mostly all that are wanted
            while start < len(left):
                yield from self._match(left[start : start + size])
                start, size = start + size, min(4 * size, _READ)
            if whole:
                return
            seen.update(key for _, key in left)
            if allowed is None and not self.checked:
                # Few match, and no index knows which: to read all without their numbers is quicker.
                allowed = self._filter_all()
                most = count_candidates(len(allowed), limit)
            else:
                most *= 8

    def _rank(self, most: int, allowed: Sequence[int] | None) -> tuple[list[tuple[float, int]], bool]:
        """Return the scores of the likeliest candidates and their records, the best first."""
        from dgent.search.vectors import score_rows

        reading, cached, vector, metric = self.index.reading, self.cached, self.vector, self.index.spec.metric
        hidden = (
            self.overrides.keys() if self.index.spec.model else self.overrides.keys() | self.waiting.keys()
        )

        def choose() -> tuple[dict[int, int], bool]:
            signs = cached.coder.encode_query(vector)
            found = cached.snapshot.find(cached.coder, signs, most + len(hidden), allowed)
            pairs = zip(found.slots, found.keys, strict=True)
            return {slot: key for slot, key in pairs if key not in hidden}, found.whole

        slots, whole = reading.calculate(choose)
        bodies = self.index.bodies(slots)
        if len(bodies) < len(slots):
            raise Corrupt("a vector index lacks rows", hint="`dgent doctor --deep --fix` builds it anew")
        some = None if allowed is None else {*allowed, *self.overrides}
        fresh = {key: body for key, body in self.fresh.items() if some is None or key in some}
        keys = [*(slots[slot] for slot in bodies), *fresh]
        rows = [*bodies.values(), *fresh.values()]
        if not rows:
            return [], whole
        scores: list[float] = reading.calculate(lambda: score_rows(rows, vector, metric)).tolist()
        return sorted(zip(scores, keys, strict=True), reverse=True), whole

    def _match(self, ranked: Sequence[tuple[float, int]]) -> Iterator[_Hit]:
        """Yield those of some records that are there and match, in their order."""
        reading, state, overrides = self.index.reading, self.index.state, self.overrides
        stored = [key for _, key in ranked if key not in overrides]
        rows = reading.rows(stored, True) if stored else ()
        moment = find_moment(reading, self.as_of) if state.expires else None
        found = {
            row.record_key: datum_of(row, reading.name)
            for row in rows
            if row.live and row.schema == state.number
        }
        for score, key in ranked:
            datum = overrides[key] if key in overrides else found.get(key)
            if datum is None or datum.schema != state.name:
                continue
            if moment is not None and has_expired(datum, moment):
                continue
            proven = self.checked and key not in overrides
            if proven or self.query.matches(datum, self.view.shape):
                yield score, key, datum

    # -- the filter -----------------------------------------------------------------------

    def _find_allowed(self) -> Sequence[int] | None:
        """Return the records that indexes leave of a query, if these are few enough to look at them first."""
        if self.query == Query(schema=self.query.schema):
            self.checked = True
            return None
        most = max(self.cached.snapshot.count() // _SAMPLED, FEWEST)
        found = narrow(self.index.reading, self.query, self.view, most)
        if found is None:
            return None
        self.checked = found.exact
        return found.keys

    def _filter_all(self) -> Sequence[int]:
        """Return the records of the schema that match, after a look at each."""
        reading, query, view = self.index.reading, self.query, self.view
        base = reading.index_number(IndexName(self.index.state.number, 0, "", ""))
        self.checked = True
        if base is None:
            return []
        rows = (row for _, row in reading.walk(IndexScan(base, low(b""), high(b"")), False, False))
        found = ((row.record_key, datum_of(row, reading.name)) for row in rows)
        return [key for key, datum in found if query.matches(datum, view.shape)]


def count_candidates(count: int, limit: int) -> int:
    """Return how many of some vectors are compared themselves: those whose bits are nearest."""
    return max(FEWEST, 10 * limit, int(200 * (count / 100_000) ** 0.7))


def list_waiting(index: VectorIndex, limit: int, after: bytes) -> list[WaitingVector]:
    """Return records that wait for a model to make their vectors, in the order of their keys."""
    reading, number = index.reading, index.state.number
    live: dict[int, WaitingRecord] = {}
    more = True
    while more and not live:
        first = after + b"\0" if after else b""
        found = find_waiting(reading, index.index, limit, between=(first, b"\xff" * 17))
        live = {key: each for key, each in found.items() if each.row.live and each.row.schema == number}
        after = max((each.keys[-1] for each in found.values()), default=b"")
        more = bool(found)
    docs = reading.vector_docs(index.index, live)
    return [
        WaitingVector(
            each.keys[0],
            key,
            datum_of(each.row, reading.name),
            docs[key].digest if key in docs else b"",
        )
        for key, each in live.items()
    ]
