"""Read the versions of a block from the records of several copies, and find the history they come to.

Every version is there once. Their updates make one document, unless some are gone: then it goes on from a
state in which these are. Where no state fits all of them, the documents of the copies are combined, and the
history begins anew with the result.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce
from typing import Any

from dgent import clock
from dgent.blocks.document.combine import combine, remove_redacted
from dgent.blocks.document.document import Document
from dgent.blocks.document.operations import find_needed, parse_frontiers
from dgent.blocks.errors import DocumentCorrupt
from dgent.blocks.history.pack import decode_pack
from dgent.blocks.history.version import COMPACT, COMPACTED, REWRITES, Version
from dgent.blocks.record import PACK, REDACTION, SNAPSHOT, VERSION, snapshot_id
from dgent.model.datum import Datum

Key = tuple[int, str, str]
VERSION_FIELDS = ("op", "node", "parent", "size", "added", "removed", "frontiers", "message")
AUTHOR, NOTE = "merge", "merge two copies"


@dataclass(frozen=True)
class VersionEntry:
    """A version of a copy under its number there, with its update; empty where that is gone."""

    version: Version
    update: bytes

    @property
    def key(self) -> Key:
        """The identity of a version, independent of its number."""
        return clock.to_us(self.version.at), self.version.by, self.version.op

    @property
    def worth(self) -> tuple[bool, bool, bool]:
        """The rank of this record of a version: redacted first, then one with its update."""
        return self.version.redacted, bool(self.update), not self.version.compacted

    @property
    def is_lost(self) -> bool:
        """Check whether what it brought is not kept any more."""
        version = self.version
        brought = bool(version.lost or version.added or version.removed)
        return brought and not self.update and version.op not in REWRITES

    @property
    def is_gone(self) -> bool:
        """Check whether only its line is left, or its line and a state."""
        return self.version.compacted or self.is_lost


@dataclass(frozen=True)
class HistoryStart:
    """The state that a document begins with, the versions that fit it, and those that do not.

    `known` is how many of the versions are in the state: of those only lines are left, but for the last.
    """

    state: bytes
    known: int
    entries: list[VersionEntry]
    left_out: list[VersionEntry] = field(default_factory=list)

    def load(self) -> Document:
        """Build the document of all its versions."""
        return Document.load(self.state, (entry.update for entry in self.entries[self.known :]))


@dataclass(frozen=True)
class History:
    """The history that copies come to, oldest version first, and states of versions without updates.

    `unsure` says why somebody must look at the document; it is empty when all was decided.
    """

    start: HistoryStart
    kept: dict[Key, bytes]
    unsure: str = ""


class Copies:
    """The versions of a block in several copies: each once, in the order of their new numbers."""

    def __init__(self, block: str, records: Iterable[Datum]) -> None:
        self._block, self._records = block, list(records)
        self._kept: dict[Key, bytes] = {}  # states of versions that were compacted
        self._states: list[tuple[Key, bytes]] = []  # of versions that a history begins with
        self._found: dict[Key, list[VersionEntry]] = {}  # all records of a version
        self._makers: dict[int, list[tuple[int, int, Key]]] = {}  # by peer: the operations of a version
        self.needed: dict[Key, list[Key]] = {}  # the versions that a version builds on directly
        self.entries = self._find_entries()
        self.by_number: dict[int, list[VersionEntry]] = {}
        for entry in self.entries:
            self.by_number.setdefault(entry.version.number, []).append(entry)

    def of(self, schema: str) -> Iterator[Datum]:
        """Yield the records of a schema."""
        return (each for each in self._records if each.schema == schema)

    def records_of(self, key: Key) -> list[VersionEntry]:
        """Return a version as the copies have it, each under its number there."""
        return self._found.get(key, [])

    def _find_entries(self) -> list[VersionEntry]:
        for entry in self._each_entry():
            self._found.setdefault(entry.key, []).append(entry)
        found = {key: reduce(_choose, some) for key, some in self._found.items()}
        blank = Document()
        for key, entry in found.items():
            for peer, (start, end) in blank.spans(entry.update).items() if entry.update else ():
                self._makers.setdefault(peer, []).append((start, end, key))
        self.needed = {key: self._find_needed(entry) for key, entry in found.items()}
        return self._order(found)

    def _order(self, entries: Mapping[Key, VersionEntry]) -> list[VersionEntry]:
        """Order versions by their numbers, but none before one that it builds on.

        A copy that was merged before numbers versions of another one anew, while that one goes on with its
        own numbers.
        """
        ordered: dict[Key, VersionEntry] = {}
        for first in sorted(entries.values(), key=lambda each: (each.version.number, each.key)):
            stack = [first]
            while stack:
                entry = stack[-1]
                needed = [entries[key] for key in self.needed[entry.key] if key not in ordered]
                if needed and len(stack) <= len(entries):
                    stack += needed
                else:
                    ordered.setdefault(stack.pop().key, entry)
        return list(ordered.values())

    def _find_needed(self, entry: VersionEntry) -> list[Key]:
        """Find the versions that a version builds on directly."""
        version = entry.version
        wanted = find_needed(entry.update) if entry.update else parse_frontiers(version.frontiers)
        makers = (
            key
            for peer, counter in wanted
            for start, end, key in self._makers.get(peer, ())
            if start <= counter < end
        )
        return sorted({key for key in makers if key != entry.key})

    def _each_entry(self) -> Iterator[VersionEntry]:
        for record in self.of(PACK.name):
            pack = decode_pack(self._block, record.data["first"], record.data["last"], record.content)
            if pack.state and not any(pack.updates):
                self._states.append((VersionEntry(pack.versions[-1], b"").key, pack.state))
            for entry in map(VersionEntry, pack.versions, pack.updates):
                if entry.version.number in pack.kept:
                    self._kept[entry.key] = pack.kept[entry.version.number]
                yield entry
        for record in self.of(VERSION.name):
            number = int(record.id.rpartition("/")[2])
            fields = {name: record.data[name] for name in VERSION_FIELDS if name in record.data}
            version = Version(number, record.created_at, record.author or "", **fields)
            yield VersionEntry(version, record.content)

    # -- the history -----------------------------------------------------------------------

    def find_history(self, named: Collection[Key]) -> History:
        """Find the history that the copies come to, with the states of versions that are named."""
        if not any(entry.is_lost for entry in self.entries):
            return History(HistoryStart(b"", 0, self.entries), {})
        # A state after a version that one side redacted and another compacted may have its text.
        compacted = (each for each in self._find_unredacted() if each.is_gone)
        hidden = min((self._number(each.key) for each in compacted), default=math.inf)
        clean = [*self._starts(hidden), *self._starts_of_clean_snapshots()]
        start = max(clean, key=lambda each: (len(each.entries), -each.known, each.state))
        if start.left_out:
            return self._combine(named)
        kept = {key: state for key, state in self._kept.items() if self._number(key) < hidden}
        return History(start, kept | self._build_named(start, hidden, named - kept.keys()))

    def _number(self, key: Key) -> int:
        return next(entry.version.number for entry in self.entries if entry.key == key)

    def _find_unredacted(self) -> list[VersionEntry]:
        """Find the records of versions as they were before another side redacted them."""
        redacted = (entry.key for entry in self.entries if entry.version.redacted)
        return [each for key in redacted for each in self._found[key] if not each.version.redacted]

    def _starts(self, below: float) -> Iterator[HistoryStart]:
        """Yield the starts with nothing, and with the states of versions below a number."""
        gone = {each.version.number for some in self._found.values() for each in some if each.is_gone}
        yield _start_with(self.entries, -1, b"")
        for key, state in sorted(self._states):
            for place, entry in enumerate(self.entries):
                number = entry.version.number
                if entry.key == key and number < below and number - 1 in gone:
                    yield _start_with(self.entries, place, state)

    def _starts_of_clean_snapshots(self) -> Iterator[HistoryStart]:
        """Yield starts with snapshots: less of the history is left, but nothing that was redacted is in it.

        The record of redactions that names a snapshot lists what was taken out of it.
        """
        redacted = {clock.text(entry.version.at) for entry in self.entries if entry.version.redacted}
        gone: dict[str, set[str]] = {}
        for each in self.of(REDACTION.name):
            id = snapshot_id(self._block, str(each.data.get("snapshot", "")))
            gone.setdefault(id, set()).update(str(one.get("at")) for one in each.data.get("redacted") or ())
        for each in self.of(SNAPSHOT.name):
            document = Document.load(each.content)
            ends = [entry.version.frontiers == document.frontiers for entry in self.entries]
            if any(ends) and redacted <= gone.get(each.id, set()):
                place = max(place for place, is_end in enumerate(ends) if is_end)
                yield _start_with(self.entries, place, document.state())

    def _build_named(self, start: HistoryStart, below: float, named: Collection[Key]) -> dict[Key, bytes]:
        """Build the states of named versions of which only lines would be left."""
        places = {entry.key: place for place, entry in enumerate(start.entries)}
        states = [(places[key], state) for key, state in self._states if self._number(key) < below]
        found: dict[Key, bytes] = {}
        for key in named:
            place = places[key]
            earlier = sorted([(-1, b""), *(one for one in states if one[0] <= place)], reverse=True)
            for since, state in earlier if place < start.known - 1 else ():
                between = start.entries[since + 1 : place + 1]
                if not any(entry.is_lost for entry in between):
                    with suppress(DocumentCorrupt):
                        found[key] = Document.load(state, (entry.update for entry in between)).state()
                        break
        return found

    # -- histories that do not meet ----------------------------------------------------------

    def _combine(self, named: Collection[Key]) -> History:
        """Begin the history anew with what the documents of all copies hold, and keep states of versions."""
        snapshots = (_start_with(self.entries, -1, each.content) for each in self.of(SNAPSHOT.name))
        documents = [start.load() for start in (*self._starts(math.inf), *snapshots)]
        redacted = [each.update for each in self.entries if each.version.redacted and each.update]
        left_out = [entry for entry in self.entries if _is_left_out(entry, documents)]
        length = left_out[-1].version.size if left_out else 0
        seed = repr([(self._block, entry.key, entry.version.lost) for entry in self.entries])
        peer = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8]) >> 1  # the same in every copy
        whole = combine(documents, [entry.update for entry in left_out], length, redacted, peer)
        note = self._note(whole.document)
        start = HistoryStart(whole.document.state(), len(self.entries), [*self.entries, note])
        kept = self._keep_states(documents, named, peer)
        return History(start, kept, "" if whole.sure else _describe(left_out))

    def _keep_states(
        self, documents: Sequence[Document], named: Collection[Key], peer: int
    ) -> dict[Key, bytes]:
        """Return the states of versions that no copy compacted or that are named, without redacted text."""
        clean = not any(entry.version.redacted for entry in self.entries)
        whole = {key for key, some in self._found.items() if not any(each.is_gone for each in some)}
        wanted = {*whole, *named} - {self.entries[-1].key}  # the history begins with the last one
        kept: dict[Key, bytes] = {}
        for key, document in self._each_state(documents):
            if key in wanted and key not in kept:
                document.write_as(peer)
                if clean or remove_redacted(document, documents):
                    kept[key] = document.state()
        return kept

    def _note(self, whole: Document) -> VersionEntry:
        """Return the version that records that the history begins anew."""
        at = max(entry.version.at for entry in self.entries) + timedelta(microseconds=1)
        last = self.entries[-1].version
        made = replace(last, number=len(self.entries) + 1, at=at, by=AUTHOR, op=COMPACT, parent=last.node)
        made = replace(made, added=0, removed=0, frontiers=whole.frontiers, message=NOTE, lost="")
        return VersionEntry(made, b"")

    def _each_state(self, documents: Iterable[Document]) -> Iterator[tuple[Key, Document]]:
        """Yield the documents of versions that are kept or in the history of some documents."""
        yield from ((key, Document.load(state)) for key, state in sorted(self._kept.items()))
        for document in documents:
            for entry in self.entries:
                with suppress(DocumentCorrupt):  # its history does not go back so far
                    yield entry.key, document.load_at(entry.version.frontiers)


def strip_version(entry: VersionEntry) -> VersionEntry:
    """Return a version of which only the line is left."""
    line = replace(entry.version, frontiers="", lost=entry.version.lost or COMPACTED)
    return VersionEntry(line, b"")


def find_named(entries: Iterable[VersionEntry], checkpoint: Datum) -> VersionEntry:
    """Choose of several versions of one number that a checkpoint names: its author's, the last before it."""

    def order(entry: VersionEntry) -> tuple[bool, bool, Any]:
        version = entry.version
        return version.by == checkpoint.author, version.at <= checkpoint.created_at, entry.key

    return max(entries, key=order)


def _is_left_out(entry: VersionEntry, documents: Iterable[Document]) -> bool:
    """Check whether what a version brought is in none of some documents."""
    if not entry.update or entry.version.redacted:
        return False
    return not any(_has_update(document, entry) for document in documents)


def _describe(entries: Sequence[VersionEntry]) -> str:
    if not entries:
        return "both copies changed the same parts of it, and the history before is gone"
    who = ", ".join(sorted({entry.version.by for entry in entries}))
    return f"what {who} wrote was made to text that the other copy compacted; it is at the end now"


def _choose(one: VersionEntry, other: VersionEntry) -> VersionEntry:
    """Choose between two records of a version, under the lower of their numbers."""
    best = max(one, other, key=lambda each: each.worth)
    number = min(one.version.number, other.version.number)
    version = best.version
    if version.number == number:
        return best
    node = number if version.node == version.number else version.node
    return VersionEntry(replace(version, number=number, node=node), best.update)


def _start_with(entries: Sequence[VersionEntry], place: int, state: bytes) -> HistoryStart:
    """Begin a document with the state of one of its versions; with nothing before the first."""
    document = Document.load(state)
    known: list[VersionEntry] = []
    left_out: list[VersionEntry] = []
    for entry in entries[: place + 1]:
        (known if _has_update(document, entry) else left_out).append(entry)
    fit: list[VersionEntry] = []
    for entry in entries[place + 1 :]:
        try:
            document.merge(entry.update)
            if entry.is_lost or (not entry.update and not _has_update(document, entry)):
                raise DocumentCorrupt("its update is gone")
            fit.append(entry)
        except DocumentCorrupt:
            left_out.append(entry)
            document = Document.load(state, (each.update for each in fit))
    return HistoryStart(state, len(known), known + fit, left_out)


def _has_update(document: Document, entry: VersionEntry) -> bool:
    """Check whether a document has what a version brought; of one that was compacted that is assumed."""
    if not entry.update:
        known = document.operations()
        return all(counter < known.get(peer, 0) for peer, counter in parse_frontiers(entry.version.frontiers))
    before = document.frontiers
    with suppress(DocumentCorrupt):
        probe = document.fork()
        probe.merge(entry.update)
        return probe.frontiers == before
    return False
