"""Runs: the words of some records, written together before they are merged into the pages of words."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise, repeat
from operator import add

import msgspec

from dgent.errors import Corrupt
from dgent.search.postings import NONE, Postings, join_postings
from dgent.search.record import MAX_COUNT, RecordTexts, list_words
from dgent.search.score import encode_length

_ABOVE_KEYS = 2**64
_SPAN = 2**32
FACTS = 3  # bytes of a posting after its key: length, neighbours and count
_decode = msgspec.msgpack.Decoder(tuple[list[int], list[int], dict[str, bytes]]).decode


class Run:
    """The versions of some records, in the order of keys: keys, revs (0 for those that are gone) and words.

    `words` has the postings of each word, in the order of keys: the key in four bytes (in eight if there are
    keys that need them), the length byte, the neighbours and the count. So those of several runs make one.
    """

    def __init__(self, keys: Sequence[int], revs: Sequence[int], words: Mapping[str, bytes]) -> None:
        self.keys, self.revs, self.words = keys, revs, words
        self.lane = find_lane(keys)

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of each record, by its key."""
        return {key: place for place, key in enumerate(self.keys)}

    def find_begun(self, text: str) -> Sequence[str]:
        """Return its words that begin with a text, in order."""
        names = self.names
        return names[bisect_left(names, text) : bisect_left(names, f"{text}\U0010ffff")]

    @cached_property
    def names(self) -> list[str]:
        """Its words in order."""
        return sorted(self.words)

    def __iter__(self) -> Iterator[tuple[str, int, int, int, int]]:
        """Yield each posting: word, key, count, length byte and neighbours."""
        for word, raw in self.words.items():
            for posting in zip(*_unpack(raw, self.lane), strict=True):
                yield word, *posting

    @cached_property
    def by_record(self) -> dict[int, list[str]]:
        """The words of each record, by its key."""
        found: dict[int, list[str]] = {key: [] for key in self.keys}
        for word, raw in self.words.items():
            for key in _unpack(raw, self.lane).keys:
                found[key].append(word)
        return found

    def without(self, record_keys: Collection[int]) -> Run:
        """Return the run without some records."""
        kept = [(key, rev) for key, rev in zip(self.keys, self.revs, strict=True) if key not in record_keys]
        keys, revs = [key for key, _ in kept], [rev for _, rev in kept]
        lane, unit = find_lane(keys), self.lane + FACTS
        words: dict[str, bytes] = {}
        for word, raw in self.words.items():
            left = b"".join(
                key.to_bytes(lane, "little") + raw[at * unit + self.lane : (at + 1) * unit]
                for at, key in enumerate(_unpack(raw, self.lane).keys)
                if key not in record_keys
            )
            if left:
                words[word] = left
        return Run(keys, revs, words)

    def pack(self) -> bytes:
        """Return the run as stored."""
        return msgspec.msgpack.encode((self.keys, self.revs, self.words))


def find_lane(keys: Sequence[int]) -> int:
    """Return how many bytes the keys of a run take in its postings."""
    return 4 if not keys or keys[-1] < _SPAN else 8


def _unpack(raw: bytes, lane: int) -> Postings:
    """Return the postings of a word from the bytes of runs."""
    unit = lane + FACTS
    if len(raw) == unit:
        keys = array("I" if lane == 4 else "Q", (int.from_bytes(raw[:lane], "little"),))
        return Postings(keys, raw[lane + 2 :], raw[lane : lane + 1], raw[lane + 1 : lane + 2])
    lanes = bytearray(len(raw) // unit * lane)
    for place in range(lane):
        lanes[place::lane] = raw[place::unit]
    keys = array("I" if lane == 4 else "Q")
    keys.frombytes(lanes)
    if sys.byteorder == "big":
        keys.byteswap()
    return Postings(keys, raw[lane + 2 :: unit], raw[lane::unit], raw[lane + 1 :: unit])


class RunSet:
    """Some runs, the oldest first; of each record the newest of them counts."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self.runs: list[Run] = []
        self.newest: dict[int, Run] = {}
        self.is_ordered = True  # the keys of each are above those of the one before
        self._are_apart = True
        self._last = -1
        self._lane = 0  # bytes of a key, -1 if they differ
        for run in runs:
            self.add(run)

    def add(self, run: Run) -> None:
        """Add a newer run."""
        if run.keys:
            self.is_ordered &= self._last < run.keys[0]
            self._last = max(self._last, run.keys[-1])
            self._lane = run.lane if self._lane in (0, run.lane) else -1
        before = len(self.newest)
        self.newest.update(dict.fromkeys(run.keys, run))
        self._are_apart &= len(self.newest) == before + len(run.keys)
        self.runs.append(run)

    @cached_property
    def keys(self) -> frozenset[int]:
        """The keys of all records, once the last run is added."""
        return frozenset(self.newest)

    @cached_property
    def first(self) -> int:
        """The lowest key."""
        return min(self.newest, default=_ABOVE_KEYS)

    def find(self, word: str) -> Postings:
        """Return the records that have a word, in the order of the runs."""
        return self.unpack(word, [raw for run in self.runs if (raw := run.words.get(word))])

    def unpack(self, word: str, raws: Sequence[bytes]) -> Postings:
        """Return the records that have a word, given its bytes in each run that has it."""
        if not raws:
            return NONE
        if self._lane > 0:
            found = _unpack(b"".join(raws), self._lane)
        else:
            having = (run for run in self.runs if word in run.words)
            found = join_postings([_unpack(run.words[word], run.lane) for run in having])
        return found if self._are_apart else self._leave_old(word, found)

    def _leave_old(self, word: str, found: Postings) -> Postings:
        """Return postings without those of older versions."""
        of = chain.from_iterable(
            repeat(run, len(run.words.get(word, b"")) // (run.lane + FACTS)) for run in self.runs
        )
        return found.select([self.newest[key] is run for key, run in zip(found.keys, of, strict=True)])


def make_run(records: Sequence[tuple[int, int, RecordTexts | None]]) -> tuple[Run, list[int]]:
    """Make a run of records, and return how many words each of them has, in the order of keys.

    Each is given by its key, its rev and its texts; None for those that are gone.
    """
    records = sorted(records, key=lambda record: record[0])
    keys = [key for key, _, _ in records]
    lane, words, sizes = find_lane(keys), dict[str, bytes](), [0] * len(keys)
    for place, (key, _, texts) in enumerate(records):
        if texts is None:
            continue
        listed = list_words(texts)
        sizes[place] = listed.size
        start = key.to_bytes(lane, "little") + bytes((encode_length(listed.size),))
        added = map(start.__add__, listed.facts)
        before = map(words.get, listed.words, repeat(b""))  # asked one by one: a word may be there again
        words.update(zip(listed.words, map(add, before, added), strict=True))
        seen: set[str] = set()
        see = seen.add
        for word in {word for word in listed.words if word in seen or see(word)}:
            words[word] = _join_last(words[word], start)
    return Run(keys, [rev for _, rev, _ in records], words), sizes


def _join_last(raw: bytes, start: bytes) -> bytes:
    """Return the postings of a word with those at their end that begin alike as one."""
    unit = len(start) + 2
    count = near = 0
    end = len(raw)
    while raw.startswith(start, max(end - unit, 0)) and end:
        near |= raw[end - 2]
        count += raw[end - 1]
        end -= unit
    return raw[:end] + start + bytes((near, min(count, MAX_COUNT)))


def unpack_run(raw: bytes) -> Run:
    """Return a run from its bytes."""
    try:
        run = Run(*_decode(raw))
        unit = run.lane + FACTS
        if len(run.keys) != len(run.revs):
            raise ValueError("its columns differ in length")
        if any(not found or len(found) % unit for found in run.words.values()):
            raise ValueError("the postings of a word are cut")
        if run.words and not set(run.keys).issuperset(_unpack(b"".join(run.words.values()), run.lane).keys):
            raise ValueError("a word is of a record that it does not have")
        if not all(one < other for one, other in pairwise(run.keys)):
            raise ValueError("its records are not in order")
    except (msgspec.DecodeError, ValueError) as error:
        hint = "`dgent doctor --deep --fix` builds the index anew"
        raise Corrupt(f"a run of a text index is damaged: {error}", hint=hint) from None
    return run
