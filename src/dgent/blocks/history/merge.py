"""Merge blocks that two copies of a store edited apart.

The versions of both sides survive. Those that only one side has are numbered anew after the last that
both have: in the order of their own numbers, so that no version comes before one that it builds on. The
document is what all their updates come to, whoever merges. What was redacted on one side stays so.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dgent import clock
from dgent.blocks.document import shape as shapes
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import render_document
from dgent.blocks.errors import DocumentCorrupt
from dgent.blocks.history import log
from dgent.blocks.history.join import OVER_LIMIT
from dgent.blocks.history.pack import Pack, decode_pack, encode_pack
from dgent.blocks.history.version import COMPACTED, REWRITES, Version
from dgent.blocks.record import (
    BLOCK,
    CHECKPOINT,
    ERASURE,
    MEMBER,
    PACK,
    REDACTION,
    SEEN,
    SHARE,
    SNAPSHOT,
    VERSION,
    erasure_id,
    pack_id,
    snapshot_id,
    version_id,
)
from dgent.errors import DgentError
from dgent.model.datum import Datum
from dgent.store.engine.merge import (
    DELETED,
    MISSING,
    MergedRecord,
    Rules,
    Settlement,
    merge_lists,
    merge_records,
    says_the_same,
)

_Key = tuple[int, str, str]
_PART = re.compile(r"(.+)/(?:u/(\d{10})|p/\d{10}(?:/[^/]+)?|s(?:/[^/]+)?|t|redacted)")
_PACKED = frozenset((PACK.name, SNAPSHOT.name))
_DOCUMENT = frozenset((VERSION.name, PACK.name, SNAPSHOT.name, REDACTION.name))


@dataclass(frozen=True)
class _VersionEntry:
    """A version of a copy under its number there, with its update; empty where that is gone."""

    version: Version
    update: bytes

    @property
    def key(self) -> _Key:
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


class _Start(NamedTuple):
    """The start of a document, the versions that fit it, and those that do not.

    `known` is how many of the versions are in the state: of those only lines are left, but for the last.
    """

    state: bytes
    known: int
    entries: list[_VersionEntry]
    left_out: list[_VersionEntry]


def _settle(settlement: Settlement) -> None:
    """Merge every block whose versions diverged, or that holds versions of two copies beside each other."""
    diverged = _blocks(settlement.diverged_tips)
    touched = _blocks(id for schema in _DOCUMENT for id in settlement.touched_ids.get(schema, ())) - diverged
    torn = {block for block in touched if _is_torn(settlement, block)}
    for block in sorted(diverged | torn):
        with suppress(DgentError, ValueError, TypeError, KeyError):  # then the later version counts
            _Merging(settlement, block).run()


def _blocks(ids: Iterable[str]) -> set[str]:
    """The blocks that some records are parts of."""
    return {match[1] for id in ids if (match := _PART.fullmatch(id)) is not None}


def _parts(settlement: Settlement, block: str) -> list[str]:
    """The ids of the records that hold a block's versions, also of deleted ones."""
    found = ((id, _PART.fullmatch(id)) for id in settlement.ids(f"{block}/"))
    return [id for id, match in found if match is not None and match[1] == block]


def _is_torn(settlement: Settlement, block: str) -> bool:
    """Check whether a version is there twice: one copy packed those of its own under a number of another."""
    live = [each for each in map(settlement.get, _parts(settlement, block)) if each is not None]
    packs = [each.data for each in live if each.schema == PACK.name]
    numbers = [number for pack in packs for number in range(pack["first"], pack["last"] + 1)]
    numbers += [int(each.id.rpartition("/")[2]) for each in live if each.schema == VERSION.name]
    return len(numbers) != len(set(numbers)) or sum(each.schema == SNAPSHOT.name for each in live) > 1


class _Merging:
    """One block while it is merged."""

    def __init__(self, settlement: Settlement, block: str) -> None:
        self._settlement, self._block = settlement, block
        self._tips = {id: self._versions_of(id) for id in _parts(settlement, block)}
        self._kept: dict[_Key, bytes] = {}  # states of versions that were compacted
        self._states: list[tuple[_Key, bytes]] = []  # of versions that a history begins with
        self._lines: set[tuple[int, _Key, bool]] = set()  # without updates, and whether redacted
        found = self._find_entries()
        self._start, self._known, self._entries, self._left_out = self._find_start(found)
        self._old: dict[int, list[_VersionEntry]] = {}
        for entry in self._entries:
            self._old.setdefault(entry.version.number, []).append(entry)
        self._keep_named()
        numbers = enumerate(self._entries, 1)
        self._common = next(
            (n - 1 for n, each in numbers if len(self._old.get(n, ())) != 1), len(self._entries)
        )

    def _versions_of(self, id: str) -> list[Datum]:
        tips = self._settlement.diverged_tips.get(id)
        versions = [self._settlement.get(id)] if tips is None else [tip.version for tip in tips]
        return [each for each in versions if each is not None]

    def _of(self, schema: str) -> Iterator[Datum]:
        return (each for some in self._tips.values() for each in some if each.schema == schema)

    # -- the versions of both sides --------------------------------------------------------

    def _find_entries(self) -> list[_VersionEntry]:
        """Return every version once, in the order of their new numbers."""
        found: dict[_Key, _VersionEntry] = {}
        for entry in self._each_entry():
            if entry.version.compacted or entry.is_lost:
                self._lines.add((entry.version.number, entry.key, entry.version.redacted))
            known = found.get(entry.key)
            if known is None:
                found[entry.key] = entry
                continue
            best = max(known, entry, key=lambda each: each.worth)
            number = min(known.version.number, entry.version.number)
            found[entry.key] = best if best.version.number == number else _number_as(best, number)
        return sorted(found.values(), key=lambda each: (each.version.number, each.key))

    def _each_entry(self) -> Iterator[_VersionEntry]:
        for pack in self._of(PACK.name):
            packed = decode_pack(self._block, pack.data["first"], pack.data["last"], pack.content)
            if packed.state and not any(packed.updates):
                self._states.append((_VersionEntry(packed.versions[-1], b"").key, packed.state))
            for entry in map(_VersionEntry, packed.versions, packed.updates):
                if entry.version.number in packed.kept:
                    self._kept[entry.key] = packed.kept[entry.version.number]
                yield entry
        for each in self._of(VERSION.name):
            number = int(each.id.rpartition("/")[2])
            version = Version(number, each.created_at, each.author or "", **_version_fields(each.data))
            yield _VersionEntry(version, each.content)

    # -- the document ----------------------------------------------------------------------

    def _find_start(self, entries: list[_VersionEntry]) -> _Start:
        """Find what the document begins with.

        That is nothing, unless a history was ended: then the state that it goes on from, and what was written
        elsewhere on top of what is not kept any more cannot be merged.
        """
        if not any(entry.is_lost for entry in entries):
            self._kept = {}
            return _Start(b"", 0, entries, [])
        hidden = self._find_hidden(entries)
        numbers = {entry.key: entry.version.number for entry in entries}
        self._states = sorted(each for each in self._states if numbers[each[0]] < hidden)
        self._kept = {
            entry.key: self._kept[entry.key]
            for entry in entries
            if entry.key in self._kept and entry.version.number < hidden
        }
        compacted = {number for number, _, _ in self._lines}
        found = [
            _start_with(entries, place, state)
            for key, state in self._states
            for place, entry in enumerate(entries)
            if entry.key == key and entry.version.number - 1 in compacted
        ]
        found += [_start_with(entries, -1, b""), *self._from_snapshots(entries)]
        return max(found, key=lambda each: (len(each.entries), -each.known, each.state))

    def _keep_named(self) -> None:
        """Keep the states of checkpointed versions of which only lines would be left, if there are any."""
        places = {entry.key: place for place, entry in enumerate(self._entries)}
        states = [(places[key], state) for key, state in self._states if key in places]
        for each in self._settlement.records(CHECKPOINT.name):
            old = self._old.get(int(each.data.get("version", 0)), [])
            meant = _find_named(old, each) if old and each.data.get("block") == self._block else None
            if meant is None or meant.key in self._kept or places[meant.key] >= self._known - 1:
                continue
            place = places[meant.key]
            for since, state in sorted([(-1, b""), *(one for one in states if one[0] <= place)])[::-1]:
                between = self._entries[since + 1 : place + 1]
                if not any(entry.is_lost for entry in between):
                    with suppress(DocumentCorrupt):
                        updates = (entry.update for entry in between)
                        self._kept[meant.key] = Document.load(state, updates).state()
                        break

    def _find_hidden(self, entries: Iterable[_VersionEntry]) -> float:
        """The first version that one side redacted and another compacted: later states may have its text."""
        plain = {key for _, key, redacted in self._lines if not redacted}
        found = (each.version.number for each in entries if each.version.redacted and each.key in plain)
        return min(found, default=math.inf)

    def _from_snapshots(self, entries: Sequence[_VersionEntry]) -> Iterator[_Start]:
        """Begin with a snapshot: less of the history is left, but nothing that was redacted is in it.

        The record of redactions that names a snapshot lists what was taken out of it.
        """
        redacted = {clock.text(entry.version.at) for entry in entries if entry.version.redacted}
        gone: dict[str, set[str]] = {}
        for each in self._of(REDACTION.name):
            id = snapshot_id(self._block, str(each.data.get("snapshot", "")))
            gone.setdefault(id, set()).update(str(one.get("at")) for one in each.data.get("redacted") or ())
        for each in self._of(SNAPSHOT.name):
            frontiers = Document.load(each.content).frontiers
            places = [place for place, entry in enumerate(entries) if entry.version.frontiers == frontiers]
            if places and redacted <= gone.get(each.id, set()):
                yield _start_with(entries, places[-1], Document.load(each.content).state())

    def run(self) -> None:
        """Number the versions, and write the records that hold them."""
        made, document = self._number_again()
        self._write(made, document)

    def _number_again(self) -> tuple[list[_VersionEntry], Document]:
        document = Document.load(self._start)
        whole = Document.load(self._start, (entry.update for entry in self._entries))
        measure = self._measure()
        numbers: dict[_Key, int] = {}
        made: list[_VersionEntry] = []
        for number, entry in enumerate(self._entries, 1):
            numbers[entry.key] = number
            old = entry.version
            if number > self._known:
                document.merge(entry.update)
            elif number < self._known:
                line = replace(old, frontiers="", lost=old.lost or COMPACTED)
                entry = entry if entry.key in self._kept else _VersionEntry(line, b"")
            else:
                entry = _VersionEntry(old, b"")
            if number <= self._common:
                made.append(entry)
                continue
            old = entry.version
            node, parent = (self._renumber(each, entry, whole, numbers) for each in (old.node, old.parent))
            version = replace(
                old,
                number=number,
                node=number if old.node == old.number else node,
                parent=parent,
                size=old.size if number < self._known else measure(document, old.size),
                frontiers=document.frontiers if old.frontiers and number >= self._known else old.frontiers,
            )
            made.append(_VersionEntry(version, entry.update))
        return made, document

    def _renumber(self, old: int, entry: _VersionEntry, whole: Document, numbers: Mapping[Any, int]) -> int:
        """The number that a version has now which another one calls by its old number."""
        candidates = [each for each in self._old.get(old, ()) if each.key in numbers]
        if len(candidates) > 1:
            states = [each.version.frontiers for each in candidates]
            before = [whole.is_before(state, entry.version.frontiers) for state in states]
            # Of several that it follows, the one that has the others in it.
            last = [sum(whole.is_before(other, state) for other in states) for state in states]
            best = max(range(len(states)), key=lambda place: (before[place], last[place]))
            return numbers[candidates[best].key]
        return numbers[candidates[0].key] if candidates else old

    def _measure(self) -> Any:
        """Return what measures a document as its block shows it."""
        header = self._settlement.get(self._block)

        def measure(document: Document, instead: int) -> int:
            if header is None:
                return instead
            with suppress(DgentError):
                shape = shapes.load_shape(header.data.get("document", "text"), header.data.get("shape") or {})
                return len(render_document(shape, document, header.data.get("limit")))
            return instead

        return measure

    # -- the records -----------------------------------------------------------------------

    def _write(self, made: Sequence[_VersionEntry], document: Document) -> None:
        packed_count = self._count_packed_alike()
        wanted: dict[str, Datum | None] = {}
        if packed_count is None:
            # Only a pack says of a version that it was redacted or compacted.
            lost = max((each.version.number for each in made if each.version.lost), default=0)
            packed_count = max(len(made) - log.KEEP, min(max(lost, self._known), len(made) - 1), 0)
            wanted |= self._pack_versions(made[:packed_count])
        else:
            # The later of two snapshots that hold the same, and packs as they are.
            wanted |= {
                id: some[-1] for id, some in self._tips.items() if some and some[-1].schema != VERSION.name
            }
        for entry in made[packed_count:]:
            wanted[version_id(self._block, entry.version.number)] = self._version_datum(entry)
        for id in self._tips:
            wanted.setdefault(id, None)
        wanted |= self._depending(made, document)
        changed = {
            id: version
            for id, version in wanted.items()
            if id in self._settlement.diverged_tips or not says_the_same(version, self._settlement.get(id))
        }
        left_out = {version_id(self._block, entry.version.number) for entry in self._left_out}
        disputed = left_out & changed.keys()
        if self._left_out and not disputed:  # none of them has a record of its own
            newest = version_id(self._block, made[-1].version.number)
            changed[newest], disputed = wanted[newest], {newest}
        self._settlement.put(changed, disputed)

    def _count_packed_alike(self) -> int | None:
        """Count the packed versions, if packs and snapshot can stay as they are; else None."""
        snapshots = [int(each.data["version"]) for each in self._of(SNAPSHOT.name)]
        packed_count = snapshots[0] if snapshots else 0
        if any(number != packed_count for number in snapshots) or packed_count > self._common:
            return None
        if len({id for id, some in self._tips.items() for each in some if each.schema == SNAPSHOT.name}) > 1:
            return None
        redactions = [some for id, some in self._tips.items() if id.endswith("/redacted")]
        if any(len(some) > 1 for some in redactions):
            return None
        last = 0
        for first, end in sorted((each.data["first"], each.data["last"]) for each in self._of(PACK.name)):
            if first != last + 1:
                return None
            last = end
        return packed_count if last == packed_count else None

    def _pack_versions(self, entries: Sequence[_VersionEntry]) -> dict[str, Datum | None]:
        """Pages and a snapshot with some versions, under ids that no record had before."""
        redaction = max(self._of(REDACTION.name), key=_redaction_order, default=None)
        seed = repr([(entry.key, entry.version.lost) for entry in self._entries])
        fresh = "m" + hashlib.sha256(seed.encode()).hexdigest()[:12]
        wanted: dict[str, Datum | None] = {}
        document = Document.load(self._start)
        for turn, some in enumerate(_divide_into_packs(entries, self._known), 1):
            document.merge_all(entry.update for entry in some)
            after = some[-1].version.number - self._known  # at 0, the history begins with it
            wants = after == 0 or (after > 0 and turn % log.STATE_EVERY == 0)
            state = document.state() if wants else b""
            kept = {each.version.number: self._kept[each.key] for each in some if each.key in self._kept}
            pack = Pack([each.version for each in some], [each.update for each in some], state, kept)
            first, last = pack.versions[0].number, pack.versions[-1].number
            data = {"block": self._block, "first": first, "last": last, "state": bool(state)}
            id = pack_id(self._block, last, fresh)
            wanted[id] = self._datum(id, PACK, data, encode_pack(pack), some[-1])
        if entries:
            redactions = max((each.data.get("redactions", 0) for each in self._of(SNAPSHOT.name)), default=0)
            named = "" if redaction is None else str(redaction.data.get("snapshot", ""))
            id = snapshot_id(self._block, named)
            data = {"version": len(entries), "redactions": redactions}
            wanted[id] = self._datum(id, SNAPSHOT, data, document.snapshot(), entries[-1])
        if redaction is not None:
            numbers = {clock.text(entry.version.at): entry.version.number for entry in entries}
            united = _unite_redactions(redaction, self._of(REDACTION.name), numbers)
            place = {} if entries else {"snapshot": ""}  # there is none to be named
            wanted[redaction.id] = united.replace(data={**united.data, **place})
            # What the other side packed may still hold what was redacted.
            stale = [
                id
                for id, some in self._tips.items()
                if some and id not in wanted and some[-1].schema in _PACKED
            ]
            wanted[erasure_id(self._block)] = self._erasure(stale, redaction)
        return wanted

    def _erasure(self, ids: Sequence[str], redaction: Datum) -> Datum:
        known = self._settlement.get(erasure_id(self._block))
        listed = [] if known is None else list(known.data.get("ids") or ())
        data = {"block": self._block, "ids": [*listed, *(id for id in ids if id not in listed)]}
        if known is not None:
            return known.replace(data=data)
        return redaction.replace(
            id=erasure_id(self._block), data=data, schema=ERASURE.name, schema_version=ERASURE.version
        )

    def _version_datum(self, entry: _VersionEntry) -> Datum:
        data = {name: value for name, value in vars(entry.version).items() if name in _VERSION_FIELDS}
        id = version_id(self._block, entry.version.number)
        return self._datum(id, VERSION, data, entry.update, entry)

    def _datum(
        self, id: str, schema: Any, data: dict[str, Any], content: bytes, entry: _VersionEntry
    ) -> Datum:
        return Datum(
            id,
            entry.version.at,
            data,
            content,
            author=entry.version.by or None,
            schema=schema.name,
            schema_version=schema.version,
        )

    # -- what speaks of versions by their numbers --------------------------------------------

    def _depending(self, made: Sequence[_VersionEntry], document: Document) -> dict[str, Datum | None]:
        """Checkpoints, what agents have seen, and whether the document is too long now."""
        wanted: dict[str, Datum | None] = {}
        numbers = {entry.key: entry.version.number for entry in made}
        for each in self._settlement.records(CHECKPOINT.name):
            number = int(each.data.get("version", 0))
            old = self._old.get(number, []) if each.data.get("block") == self._block else []
            if old and number > self._common:
                own = _find_named(old, each)
                wanted[each.id] = each.replace(data={**each.data, "version": numbers[own.key]})
            elif number > len(made) and each.data.get("block") == self._block:
                wanted[each.id] = None  # what it names could not be merged
        for each in self._settlement.records(SEEN.name):
            if each.data.get("block") == self._block and each.data.get("version", 0) > self._common:
                wanted[each.id] = each.replace(data={**each.data, "version": self._common})
        header = self._settlement.get(self._block)
        if header is not None and header.schema == BLOCK.name and made:
            size = self._measure()(document, made[-1].version.size)
            extra = {k: v for k, v in (header.data.get("extra") or {}).items() if k != OVER_LIMIT}
            extra |= {OVER_LIMIT: size} if size > header.data.get("limit", size) else {}
            if extra != (header.data.get("extra") or {}):
                wanted[header.id] = header.replace(data={**header.data, "extra": extra})
        return wanted


def _find_named(entries: Iterable[_VersionEntry], checkpoint: Datum) -> _VersionEntry:
    """Choose of several versions of one number that a checkpoint names: its author's, the last before it."""

    def order(entry: _VersionEntry) -> tuple[bool, bool, Any]:
        version = entry.version
        return version.by == checkpoint.author, version.at <= checkpoint.created_at, entry.key

    return max(entries, key=order)


_VERSION_FIELDS = ("op", "node", "parent", "size", "added", "removed", "frontiers", "message")


def _version_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in _VERSION_FIELDS if name in data}


def _divide_into_packs(entries: Sequence[_VersionEntry], known: int) -> Iterator[Sequence[_VersionEntry]]:
    """Divide versions into packs; the one that a history begins with has a pack of its own."""
    for part in (entries[: max(0, known - 1)], entries[max(0, known - 1) : known], entries[known:]):
        for start in range(0, len(part), log.PACK_SIZE):
            yield part[start : start + log.PACK_SIZE]


def _start_with(entries: Sequence[_VersionEntry], place: int, state: bytes) -> _Start:
    """Begin a document with the state of one of its versions; with nothing before the first."""
    document = Document.load(state)
    known: list[_VersionEntry] = []
    left_out: list[_VersionEntry] = []
    for entry in entries[: place + 1]:
        (known if _has_update(document, entry) else left_out).append(entry)
    lost = [entry for entry in entries[place + 1 :] if entry.is_lost]
    fit, others = _split_fitting(state, (entry for entry in entries[place + 1 :] if not entry.is_lost))
    return _Start(state, len(known), known + fit, left_out + lost + others)


def _has_update(document: Document, entry: _VersionEntry) -> bool:
    """Check whether a document has what a version brought; of one whose update is gone that is assumed."""
    before = document.frontiers
    with suppress(DocumentCorrupt):
        probe = document.fork()
        probe.merge(entry.update)
        return probe.frontiers == before
    return False


def _split_fitting(
    snapshot: bytes, entries: Iterable[_VersionEntry]
) -> tuple[list[_VersionEntry], list[_VersionEntry]]:
    """Split versions into those whose updates fit to a snapshot and others."""
    document = Document.load(snapshot)
    fit: list[_VersionEntry] = []
    left_out: list[_VersionEntry] = []
    for entry in entries:
        try:
            document.merge(entry.update)
            fit.append(entry)
        except DocumentCorrupt:
            left_out.append(entry)
            document = Document.load(snapshot, (each.update for each in fit))
    return fit, left_out


def _number_as(entry: _VersionEntry, number: int) -> _VersionEntry:
    """A version under the number that another copy gave it."""
    version = entry.version
    node = number if version.node == version.number else version.node
    return _VersionEntry(replace(version, number=number, node=node), entry.update)


def _redaction_order(each: Datum) -> tuple[int, str]:
    return len(each.data.get("redacted") or ()), str(each.data.get("snapshot"))


def _unite_redactions(chosen: Datum, all: Iterable[Datum], numbers: Mapping[str, int]) -> Datum:
    """Unite the redactions of both sides, by the new numbers of the versions."""
    united: dict[tuple[Any, str], dict[str, Any]] = {}
    for each in all:
        for one in each.data.get("redacted") or ():
            at = str(one.get("at"))
            number = numbers.get(at, one.get("version"))
            cleared = bool(one.get("cleared")) or bool(united.get((number, at), {}).get("cleared"))
            united[number, at] = {**one, "version": number, "cleared": cleared}
    return chosen.replace(data={**chosen.data, "redacted": [united[key] for key in sorted(united)]})


# -- records of one kind --------------------------------------------------------------------------


def _merge_seen(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
    """Merge what an agent has seen: the older version, so that nothing new is passed over."""
    if left is None or right is None:
        return MergedRecord(left or right)
    return MergedRecord(min(left, right, key=lambda each: each.data.get("version", 0)))


def _merge_erasure(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
    """Merge what is still to be erased: all of it."""

    def resolve(path: str, base: Any, one: Any, other: Any) -> Any:
        if path == "ids" and isinstance(one, list) and isinstance(other, list):
            return merge_lists((), one, other)
        return MISSING

    if left is None or right is None:
        return MergedRecord(left or right)
    return MergedRecord(merge_records(base, left, right, resolve).version)


def _merge_grant(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
    """Merge a permission: what one side took back stays so."""
    if (left is None or right is None) and base is not None:
        kept = left or right
        return MergedRecord(None, () if kept is None or says_the_same(kept, base) else (DELETED,))
    return merge_records(base, left, right)


RULES = Rules(
    {
        SEEN.name: _merge_seen,
        ERASURE.name: _merge_erasure,
        MEMBER.name: _merge_grant,
        SHARE.name: _merge_grant,
    },
    joint=_DOCUMENT,
    internal=_DOCUMENT | {SEEN.name, ERASURE.name},
    settle=_settle,
)
