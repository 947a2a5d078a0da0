"""Merge blocks that two copies of a store edited apart.

The versions of both sides survive. Those that only one side has get new numbers after the last one that both
have: in the order of their own numbers, so that no version comes before one that it builds on. The document
is the merge of all their updates, whichever side merges. What was redacted on one side stays redacted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from dgent import clock
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import render_document
from dgent.blocks.document.shape import load_shape
from dgent.blocks.errors import DocumentCorrupt
from dgent.blocks.history import log
from dgent.blocks.history.join import OVER_LIMIT
from dgent.blocks.history.pack import Pack, decode_pack, encode_pack
from dgent.blocks.history.version import REWRITES, Version
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
    Merged,
    Rules,
    Settlement,
    merge_lists,
    merge_records,
    says_the_same,
)

_PART = re.compile(r"(.+)/(?:u/(\d{10})|p/\d{10}(?:/[^/]+)?|s(?:/[^/]+)?|t|redacted)")
_PACKED = frozenset((PACK.name, SNAPSHOT.name))
_DOCUMENT = frozenset((VERSION.name, PACK.name, SNAPSHOT.name, REDACTION.name))


@dataclass(frozen=True)
class _VersionEntry:
    """A version under its number in a copy, with its update; empty where the update is gone."""

    version: Version
    update: bytes

    @property
    def key(self) -> tuple[int, str, str]:
        """The identity of a version, independent of its number."""
        return clock.to_us(self.version.at), self.version.by, self.version.op

    @property
    def worth(self) -> tuple[bool, bool]:
        """The rank of this record of a version: redacted first, then one with its update."""
        return self.version.redacted, bool(self.update)

    @property
    def is_lost(self) -> bool:
        """True when its update is no longer stored."""
        version = self.version
        brought = bool(version.lost or version.added or version.removed)
        return brought and not self.update and version.op not in REWRITES


def _settle(settlement: Settlement) -> None:
    """Merge every block whose versions diverged, or that holds versions of two copies side by side."""
    diverged = _blocks(settlement.diverged)
    touched = _blocks(id for schema in _DOCUMENT for id in settlement.touched.get(schema, ())) - diverged
    torn = {block for block in touched if _is_torn(settlement, block)}
    for block in sorted(diverged | torn):
        with suppress(DgentError, ValueError, TypeError, KeyError):  # then the later version wins
            _BlockMerge(settlement, block).run()


def _blocks(ids: Iterable[str]) -> set[str]:
    """Return the ids of the blocks that some records are parts of."""
    return {match[1] for id in ids if (match := _PART.fullmatch(id)) is not None}


def _parts(settlement: Settlement, block: str) -> list[str]:
    """Return the ids of the records that hold a block's versions, deleted ones too."""
    found = ((id, _PART.fullmatch(id)) for id in settlement.ids(f"{block}/"))
    return [id for id, match in found if match is not None and match[1] == block]


def _is_torn(settlement: Settlement, block: str) -> bool:
    """Check whether a version number is there twice: one copy packed it, the other has its own record."""
    live = [each for each in map(settlement.get, _parts(settlement, block)) if each is not None]
    packs = [each.data for each in live if each.schema == PACK.name]
    numbers = [number for pack in packs for number in range(pack["first"], pack["last"] + 1)]
    numbers += [int(each.id.rpartition("/")[2]) for each in live if each.schema == VERSION.name]
    return len(numbers) != len(set(numbers)) or sum(each.schema == SNAPSHOT.name for each in live) > 1


class _BlockMerge:
    """The merge of one block."""

    def __init__(self, settlement: Settlement, block: str) -> None:
        self._settlement, self._block = settlement, block
        self._tips = {id: self._versions_of(id) for id in _parts(settlement, block)}
        self._kept: dict[tuple[int, str, str], bytes] = {}  # states of versions that were compacted
        self._start, self._entries, self._left_out = self._find_start(self._find_entries())
        self._old: dict[int, list[_VersionEntry]] = {}
        for entry in self._entries:
            self._old.setdefault(entry.version.number, []).append(entry)
        numbers = enumerate(self._entries, 1)
        self._common = next(
            (n - 1 for n, each in numbers if len(self._old.get(n, ())) != 1), len(self._entries)
        )

    def _versions_of(self, id: str) -> list[Datum]:
        tips = self._settlement.diverged.get(id)
        versions = [self._settlement.get(id)] if tips is None else [tip.version for tip in tips]
        return [each for each in versions if each is not None]

    def _of(self, schema: str) -> Iterator[Datum]:
        return (each for some in self._tips.values() for each in some if each.schema == schema)

    # -- the versions of both sides --------------------------------------------------------

    def _find_entries(self) -> list[_VersionEntry]:
        """Return every version once, in the order of their new numbers."""
        found: dict[tuple[int, str, str], _VersionEntry] = {}
        for entry in self._each_entry():
            known = found.get(entry.key)
            if known is None:
                found[entry.key] = entry
                continue
            best = max(known, entry, key=lambda each: each.worth)
            number = min(known.version.number, entry.version.number)
            found[entry.key] = best if best.version.number == number else _renumber_entry(best, number)
        return sorted(found.values(), key=lambda each: (each.version.number, each.key))

    def _each_entry(self) -> Iterator[_VersionEntry]:
        for stored in self._of(PACK.name):
            pack = decode_pack(self._block, stored.data["first"], stored.data["last"], stored.content)
            for entry in map(_VersionEntry, pack.versions, pack.updates):
                if entry.version.number in pack.kept:
                    self._kept[entry.key] = pack.kept[entry.version.number]
                yield entry
        for each in self._of(VERSION.name):
            number = int(each.id.rpartition("/")[2])
            version = Version(number, each.created_at, each.author or "", **_version_fields(each.data))
            yield _VersionEntry(version, each.content)

    # -- the document ----------------------------------------------------------------------

    def _find_start(
        self, entries: list[_VersionEntry]
    ) -> tuple[bytes, list[_VersionEntry], list[_VersionEntry]]:
        """Return the start of the document, the versions that fit it, and those that do not.

        The start is empty unless history was compacted: then it is a snapshot, and versions of the other copy
        that build on what is gone cannot be merged.
        """
        if not any(entry.is_lost for entry in entries):
            return b"", entries, []
        lost = max(entry.version.number for entry in entries if entry.is_lost)
        snapshots = [each for each in self._of(SNAPSHOT.name) if each.data.get("version", 0) >= lost]
        redactions = max((each.data.get("redactions", 0) for each in snapshots), default=0)
        found = [
            (each.content, *_split_fitting(each.content, entries))
            for each in sorted(snapshots, key=lambda each: -each.data.get("version", 0))
            if each.data.get("redactions", 0) == redactions
        ]
        if not found:
            raise DocumentCorrupt(f"the block {self._block!r} has no snapshot")
        return max(found, key=lambda each: len(each[1]))

    def run(self) -> None:
        """Renumber the versions, and write the records that hold them."""
        made, document = self._number_again()
        self._write(made, document)

    def _number_again(self) -> tuple[list[_VersionEntry], Document]:
        document = Document.load(self._start)
        whole = Document.load(self._start, (entry.update for entry in self._entries))
        measure = self._measure()
        numbers: dict[tuple[int, str, str], int] = {}
        made: list[_VersionEntry] = []
        for number, entry in enumerate(self._entries, 1):
            numbers[entry.key] = number
            old = entry.version
            document.merge(entry.update)
            if number <= self._common:
                made.append(entry)
                continue
            node, parent = (self._renumber(each, entry, whole, numbers) for each in (old.node, old.parent))
            version = replace(
                old,
                number=number,
                node=number if old.node == old.number else node,
                parent=parent,
                size=measure(document, old.size),
                frontiers=document.frontiers if old.frontiers else "",
            )
            made.append(_VersionEntry(version, entry.update))
        return made, document

    def _renumber(self, old: int, entry: _VersionEntry, whole: Document, numbers: Mapping[Any, int]) -> int:
        """Return the new number of the version that another one refers to by its old number."""
        candidates = [each for each in self._old.get(old, ()) if each.key in numbers]
        if len(candidates) > 1:
            states = [each.version.frontiers for each in candidates]
            before = [whole.is_before(state, entry.version.frontiers) for state in states]
            # Of several that it follows, the one that includes the others.
            last = [sum(whole.is_before(other, state) for other in states) for state in states]
            best = max(range(len(states)), key=lambda place: (before[place], last[place]))
            return numbers[candidates[best].key]
        return numbers[candidates[0].key] if candidates else old

    def _measure(self) -> Any:
        """Return a function that measures a document as its block shows it."""
        header = self._settlement.get(self._block)

        def measure(document: Document, instead: int) -> int:
            if header is None:
                return instead
            with suppress(DgentError):
                shape = load_shape(header.data.get("document", "text"), header.data.get("shape") or {})
                return len(render_document(shape, document, header.data.get("limit")))
            return instead

        return measure

    # -- the records -----------------------------------------------------------------------

    def _write(self, made: Sequence[_VersionEntry], document: Document) -> None:
        packed = self._count_reusable()
        wanted: dict[str, Datum | None] = {}
        if packed is None:
            # Only a pack records that a version was redacted or compacted.
            lost = max((each.version.number for each in made if each.version.lost), default=0)
            packed = max(len(made) - log.KEEP, min(lost, len(made) - 1), 0)
            wanted |= self._pack(made[:packed])
        else:
            # The later of two equal snapshots, and packs as they are.
            wanted |= {
                id: some[-1] for id, some in self._tips.items() if some and some[-1].schema != VERSION.name
            }
        for entry in made[packed:]:
            wanted[version_id(self._block, entry.version.number)] = self._version_datum(entry)
        for id in self._tips:
            wanted.setdefault(id, None)
        wanted |= self._update_dependents(made, document)
        changed = {
            id: version
            for id, version in wanted.items()
            if id in self._settlement.diverged or not says_the_same(version, self._settlement.get(id))
        }
        disputed = {version_id(self._block, entry.version.number) for entry in self._left_out}
        self._settlement.put(changed, disputed & changed.keys())

    def _count_reusable(self) -> int | None:
        """Return how many versions are packed if the packs and the snapshot can stay; else None."""
        snapshots = [int(each.data["version"]) for each in self._of(SNAPSHOT.name)]
        packed = snapshots[0] if snapshots else 0
        if any(number != packed for number in snapshots) or packed > self._common:
            return None
        if len({id for id, some in self._tips.items() for each in some if each.schema == SNAPSHOT.name}) > 1:
            return None
        redactions = [some for id, some in self._tips.items() if id.endswith("/redacted")]
        if any(len(some) > 1 for some in redactions):
            return None
        return packed if self._are_packs_dense(packed) else None

    def _are_packs_dense(self, upto: int) -> bool:
        """Check whether the packs hold every version up to a number, each once."""
        last = 0
        for first, end in sorted((each.data["first"], each.data["last"]) for each in self._of(PACK.name)):
            if first != last + 1:
                return False
            last = end
        return last == upto

    def _pack(self, entries: Sequence[_VersionEntry]) -> dict[str, Datum | None]:
        """Build packs and a snapshot of some versions, under ids that no record had before."""
        redaction = max(self._of(REDACTION.name), key=_redaction_order, default=None)
        document = Document.load(self._start)
        wanted = self._build_packs(entries, document)
        if entries:
            redactions = max((each.data.get("redactions", 0) for each in self._of(SNAPSHOT.name)), default=0)
            place = "" if redaction is None else str(redaction.data.get("snapshot", ""))
            id = snapshot_id(self._block, place)
            data = {"version": len(entries), "redactions": redactions}
            wanted[id] = self._datum(id, SNAPSHOT, data, document.snapshot(), entries[-1])
        if redaction is not None:
            numbers = {clock.text(entry.version.at): entry.version.number for entry in entries}
            wanted[redaction.id] = _unite_redactions(redaction, self._of(REDACTION.name), numbers)
            # Packs of the other side may still hold what was redacted.
            stale = [
                id
                for id, some in self._tips.items()
                if some and id not in wanted and some[-1].schema in _PACKED
            ]
            wanted[erasure_id(self._block)] = self._erasure(stale, redaction)
        return wanted

    def _build_packs(self, entries: Sequence[_VersionEntry], document: Document) -> dict[str, Datum | None]:
        """Build the packs of some versions, and merge their updates into a document."""
        seed = repr([(entry.key, entry.version.lost) for entry in self._entries])
        fresh = "m" + hashlib.sha256(seed.encode()).hexdigest()[:12]
        wanted: dict[str, Datum | None] = {}
        for start in range(0, len(entries), log.PACK_SIZE):
            some = entries[start : start + log.PACK_SIZE]
            document.merge_all(entry.update for entry in some)
            state = (
                document.state() if start // log.PACK_SIZE % log.STATE_EVERY == log.STATE_EVERY - 1 else b""
            )
            kept = {each.version.number: self._kept[each.key] for each in some if each.key in self._kept}
            pack = Pack([each.version for each in some], [each.update for each in some], state, kept)
            first, last = pack.versions[0].number, pack.versions[-1].number
            data = {"block": self._block, "first": first, "last": last, "state": bool(state)}
            id = pack_id(self._block, last, fresh)
            wanted[id] = self._datum(id, PACK, data, encode_pack(pack), some[-1])
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

    # -- records that refer to version numbers --------------------------------------------

    def _update_dependents(
        self, made: Sequence[_VersionEntry], document: Document
    ) -> dict[str, Datum | None]:
        """Update checkpoints, seen versions and the over-limit flag to the new numbers."""
        wanted = self._update_checkpoints({entry.key: entry.version.number for entry in made})
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

    def _update_checkpoints(self, numbers: Mapping[Any, int]) -> dict[str, Datum | None]:
        """Return the checkpoints whose versions have new numbers."""
        wanted: dict[str, Datum | None] = {}
        for each in self._settlement.records(CHECKPOINT.name):
            number = int(each.data.get("version", 0))
            old = self._old.get(number, []) if each.data.get("block") == self._block else []
            if old and number > self._common:
                own = _choose_named(old, each)
                wanted[each.id] = each.replace(data={**each.data, "version": numbers[own.key]})
        return wanted


def _choose_named(entries: Iterable[_VersionEntry], checkpoint: Datum) -> _VersionEntry:
    """Choose which of several versions a checkpoint names: its author's, the last before it."""

    def order(entry: _VersionEntry) -> tuple[bool, bool, Any]:
        version = entry.version
        return version.by == checkpoint.author, version.at <= checkpoint.created_at, entry.key

    return max(entries, key=order)


_VERSION_FIELDS = ("op", "node", "parent", "size", "added", "removed", "frontiers", "message")


def _version_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in _VERSION_FIELDS if name in data}


def _split_fitting(
    snapshot: bytes, entries: Iterable[_VersionEntry]
) -> tuple[list[_VersionEntry], list[_VersionEntry]]:
    """Split versions into those whose updates fit a snapshot and the others."""
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


def _renumber_entry(entry: _VersionEntry, number: int) -> _VersionEntry:
    """Return a version under the number that another copy gave it."""
    version = entry.version
    node = number if version.node == version.number else version.node
    return _VersionEntry(replace(version, number=number, node=node), entry.update)


def _redaction_order(each: Datum) -> tuple[int, str]:
    return len(each.data.get("redacted") or ()), str(each.data.get("snapshot"))


def _unite_redactions(chosen: Datum, all: Iterable[Datum], numbers: Mapping[str, int]) -> Datum:
    """Unite the redactions of both sides, by the new version numbers."""
    united: dict[tuple[Any, str], dict[str, Any]] = {}
    for each in all:
        for one in each.data.get("redacted") or ():
            at = str(one.get("at"))
            number = numbers.get(at, one.get("version"))
            cleared = bool(one.get("cleared")) or bool(united.get((number, at), {}).get("cleared"))
            united[number, at] = {**one, "version": number, "cleared": cleared}
    return chosen.replace(data={**chosen.data, "redacted": [united[key] for key in sorted(united)]})


# -- records of one kind --------------------------------------------------------------------------


def _merge_seen(base: Datum | None, left: Datum | None, right: Datum | None) -> Merged:
    """Merge seen versions: the older one wins, so that no news is missed."""
    if left is None or right is None:
        return Merged(left or right)
    return Merged(min(left, right, key=lambda each: each.data.get("version", 0)))


def _merge_erasure(base: Datum | None, left: Datum | None, right: Datum | None) -> Merged:
    """Merge lists of records to erase: all of them."""

    def resolve(path: str, base: Any, one: Any, other: Any) -> Any:
        if path == "ids" and isinstance(one, list) and isinstance(other, list):
            return merge_lists((), one, other)
        return MISSING

    if left is None or right is None:
        return Merged(left or right)
    return Merged(merge_records(base, left, right, resolve).version)


def _merge_grant(base: Datum | None, left: Datum | None, right: Datum | None) -> Merged:
    """Merge a permission: what one side revoked stays revoked."""
    if (left is None or right is None) and base is not None:
        kept = left or right
        return Merged(None, () if kept is None or says_the_same(kept, base) else (DELETED,))
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
