"""Merge blocks that two copies of a store edited apart.

The versions of both sides survive. Those that only one side has are numbered anew after the last that
both have: in the order of their own numbers, so that no version comes before one that it builds on. The
document is what all their updates come to, whoever merges. What was redacted on one side stays so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dgent import clock
from dgent.blocks.document import shape as shapes
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import render_document
from dgent.blocks.history import log
from dgent.blocks.history.copies import (
    VERSION_FIELDS,
    Copies,
    Key,
    VersionEntry,
    find_named,
    strip_version,
)
from dgent.blocks.history.join import OVER_LIMIT
from dgent.blocks.history.pack import Pack, encode_pack
from dgent.blocks.record import (
    ARCHIVE_SHARE,
    BLOCK,
    CHECKPOINT,
    ERASURE,
    MEMBER,
    PACK,
    REDACTION,
    SEEN,
    SHARE,
    SNAPSHOT,
    TEXT,
    VERSION,
    erasure_id,
    pack_id,
    redaction_id,
    snapshot_id,
    text_id,
    version_id,
)
from dgent.errors import DgentError
from dgent.model.datum import Datum
from dgent.model.schema import Schema
from dgent.store.engine.merge import (
    DELETED,
    MISSING,
    UNREADABLE,
    MergedRecord,
    Rules,
    Settlement,
    merge_lists,
    merge_records,
    says_the_same,
)

_PART = re.compile(r"(.+)/(?:u/(\d{10})|p/\d{10}(?:/[^/]+)?|s(?:/[^/]+)?|t|redacted)")
_DOCUMENT = frozenset((VERSION.name, PACK.name, SNAPSHOT.name, REDACTION.name))

Records = dict[str, Datum | None]
Measure = Callable[[Document, int], int]


def _settle(settlement: Settlement) -> None:
    """Merge every block whose versions diverged, or that holds versions of two copies beside each other."""
    diverged = _blocks(settlement.diverged_tips)
    touched = _blocks(id for schema in _DOCUMENT for id in settlement.touched_ids.get(schema, ())) - diverged
    torn = {block for block in touched if _is_torn(settlement, block)}
    for block in sorted(diverged | torn):
        try:
            _Merging(settlement, block).run()
        except UNREADABLE as error:  # then the later records count
            tips = ((id, settlement.diverged_tips.get(id)) for id in _parts(settlement, block))
            settlement.put({id: some[-1].version for id, some in tips if some})
            _report(settlement, block, f"its versions cannot be merged: {_describe(error)}")
    _drop_texts(settlement)


def _drop_texts(settlement: Settlement) -> None:
    """Drop the texts of redacted blocks: one side may have made them before it knew of that."""
    touched = settlement.touched_ids
    ids = [*touched.get(TEXT.name, ()), *touched.get(REDACTION.name, ())]
    for block in sorted({id.rpartition("/")[0] for id in ids}):
        id = text_id(block)
        if settlement.get(id) is not None and settlement.get(redaction_id(block)) is not None:
            settlement.put({id: None}, erased=[id])


def _describe(error: Exception) -> str:
    return error.message if isinstance(error, DgentError) else repr(error)


def _report(settlement: Settlement, block: str, reason: str) -> None:
    """Dispute a block: its header, or its newest version if that is not there."""
    parts = [block, *_parts(settlement, block)[::-1]]
    id = next((each for each in parts if settlement.get(each) is not None), None)
    if id is not None:
        settlement.put({id: settlement.get(id)}, {id: reason})


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
    """One block while it is merged: its versions are read, numbered, and written."""

    def __init__(self, settlement: Settlement, block: str) -> None:
        self._settlement, self._block = settlement, block
        self._tips = {id: self._versions_of(id) for id in _parts(settlement, block)}
        self._copies = Copies(block, (each for some in self._tips.values() for each in some))
        self._checkpoints = [
            each for each in settlement.records(CHECKPOINT.name) if each.data.get("block") == block
        ]
        self._history = self._copies.find_history(set(self._list_named().values()))
        self._entries, self._known = self._history.start.entries, self._history.start.known
        self._common = self._count_common()

    def _versions_of(self, id: str) -> list[Datum]:
        tips = self._settlement.diverged_tips.get(id)
        versions = [self._settlement.get(id)] if tips is None else [tip.version for tip in tips]
        return [each for each in versions if each is not None]

    def _list_named(self) -> dict[str, Key]:
        """Return the versions that checkpoints name, by the checkpoints' ids."""
        found = (
            (each, self._copies.by_number.get(int(each.data.get("version", 0)))) for each in self._checkpoints
        )
        return {each.id: find_named(entries, each).key for each, entries in found if entries}

    def _count_common(self) -> int:
        """Count the first versions, up to which all copies have the same under the same numbers."""
        for number, entry in enumerate(self._entries, 1):
            if self._copies.by_number.get(number) != [entry]:
                return number - 1
        return len(self._entries)

    def run(self) -> None:
        """Number the versions, and write the records that hold them."""
        document = Document.load(self._history.start.state)
        made = self._number(document)
        packed = self._count_packed()
        if packed is None:
            count = self._count_to_pack(made)
            wanted = self._pack_versions(made[:count])
        else:  # the later of two snapshots that hold the same, and packs as they are
            count = packed
            wanted = {
                id: some[-1] for id, some in self._tips.items() if some and some[-1].schema != VERSION.name
            }
        for entry in made[count:]:
            wanted[version_id(self._block, entry.version.number)] = self._version_datum(entry)
        wanted = dict.fromkeys(self._tips) | wanted
        wanted |= self._renumber_checkpoints(made) | self._reset_seen() | self._flag_length(made, document)
        changed = {
            id: version
            for id, version in wanted.items()
            if id in self._settlement.diverged_tips or not _is_same(version, self._settlement.get(id))
        }
        erased = self._list_stale(changed, packed is None)
        # A record that stays is written anew: all of its lines until now are erased.
        changed |= {id: wanted[id] for id in erased}
        changed = {id: each for id, each in changed.items() if each is not None or id not in erased}
        changed |= self._list_replaced(wanted, erased)
        self._settlement.put(changed, erased=erased)
        if self._history.unsure:
            _report(self._settlement, self._block, self._history.unsure)

    # -- numbers ---------------------------------------------------------------------------

    def _number(self, document: Document) -> list[VersionEntry]:
        """Return the versions under their new numbers, and merge their updates into the document."""
        whole, measure = self._history.start.load(), self._measure()
        numbers: dict[Key, int] = {}
        made: list[VersionEntry] = []
        for number, entry in enumerate(self._entries, 1):
            numbers[entry.key] = number
            entry = self._thin(entry, number)
            document.merge_all([entry.update] if number > self._known else [])
            if number <= self._common:
                made.append(entry)
                continue
            old, has_state = entry.version, number >= self._known
            node, parent = (self._find_number(each, entry, whole, numbers) for each in (old.node, old.parent))
            before = [numbers[key] for key in self._copies.needed.get(entry.key, ()) if entry.update]
            if old.node == old.number:
                node, parent = number, made[max(before) - 1].version.node if before else parent
            version = replace(
                old,
                number=number,
                node=node,
                parent=parent,
                size=measure(document, old.size) if has_state else old.size,
                frontiers=document.frontiers if old.frontiers and has_state else old.frontiers,
            )
            made.append(VersionEntry(version, entry.update))
        return made

    def _thin(self, entry: VersionEntry, number: int) -> VersionEntry:
        """Return a version as it is stored: of those in the state that the history begins with, the line."""
        if number > self._known:
            return entry
        if number == self._known or entry.key in self._history.kept:
            return VersionEntry(entry.version, b"")
        return strip_version(entry)

    def _find_number(self, old: int, entry: VersionEntry, whole: Document, numbers: Mapping[Key, int]) -> int:
        """The number that a version has now which another one calls by its old number."""
        candidates = [each for each in self._copies.by_number.get(old, ()) if each.key in numbers]
        if len(candidates) > 1:
            states = [each.version.frontiers for each in candidates]
            before = [whole.is_before(state, entry.version.frontiers) for state in states]
            # Of several that it follows, the one that has the others in it.
            last = [sum(whole.is_before(other, state) for other in states) for state in states]
            best = max(range(len(states)), key=lambda place: (before[place], last[place]))
            return numbers[candidates[best].key]
        return numbers[candidates[0].key] if candidates else old

    def _measure(self) -> Measure:
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

    # -- packs and the snapshot --------------------------------------------------------------

    def _count_packed(self) -> int | None:
        """Count the packed versions, if packs and snapshot can stay as they are; else None."""
        snapshots = {(each.id, int(each.data["version"])) for each in self._copies.of(SNAPSHOT.name)}
        packs = sorted((each.data["first"], each.data["last"]) for each in self._copies.of(PACK.name))
        last = packs[-1][1] if packs else 0
        ends = [0, *(end for _, end in packs)]
        dense = all(first == end + 1 for (first, _), end in zip(packs, ends, strict=False))
        alike = len(snapshots) <= 1 and all(number == last for _, number in snapshots)
        redacted_apart = len(self._tips.get(redaction_id(self._block), ())) > 1
        fits = dense and alike and not redacted_apart and bool(packs) == bool(snapshots)
        return last if fits and self._known <= last <= self._common else None

    def _count_to_pack(self, made: Sequence[VersionEntry]) -> int:
        """Count the versions to pack: also all that were redacted or compacted, which only a pack says."""
        lost = max((each.version.number for each in made if each.version.lost), default=0)
        return max(len(made) - log.KEEP, min(max(lost, self._known), len(made) - 1), 0)

    def _pack_versions(self, entries: Sequence[VersionEntry]) -> Records:
        """Packs and a snapshot with some versions, under ids that no record had before."""
        seed = repr([(entry.key, entry.version.lost) for entry in self._entries])
        fresh = "m" + hashlib.sha256(seed.encode()).hexdigest()[:12]
        wanted: Records = {}
        document = Document.load(self._history.start.state)
        for turn, some in enumerate(_divide_into_packs(entries, self._known), 1):
            document.merge_all(entry.update for entry in some)
            after = some[-1].version.number - self._known  # at 0, the history begins with it
            state = document.state() if after == 0 or (after > 0 and turn % log.STATE_EVERY == 0) else b""
            made = self._pack_datum(some, state, fresh)
            wanted[made.id] = made
        redactions = list(self._copies.of(REDACTION.name))
        if entries:
            id = snapshot_id(self._block, fresh if redactions else "")
            counts = (each.data.get("redactions", 0) for each in self._copies.of(SNAPSHOT.name))
            data = {"version": len(entries), "redactions": max(counts, default=0)}
            wanted[id] = self._datum(id, SNAPSHOT, data, document.snapshot(), entries[-1])
        if redactions:
            united = _unite_redactions(redactions, entries, fresh if entries else "")
            wanted[united.id] = united
        return wanted

    def _pack_datum(self, entries: Sequence[VersionEntry], state: bytes, fresh: str) -> Datum:
        kept = self._history.kept
        states = {each.version.number: kept[each.key] for each in entries if each.key in kept}
        pack = Pack([each.version for each in entries], [each.update for each in entries], state, states)
        first, last = entries[0].version.number, entries[-1].version.number
        data = {"block": self._block, "first": first, "last": last, "state": bool(state)}
        return self._datum(pack_id(self._block, last, fresh), PACK, data, encode_pack(pack), entries[-1])

    def _list_stale(self, changed: Records, packed_anew: bool) -> set[str]:
        """List the records that may hold what was redacted, which one side wrote before it knew of that."""
        redacted = [entry.key for entry in self._entries if entry.version.redacted]
        records = [each.version for key in redacted for each in self._copies.records_of(key)]
        is_clean = all(each.redacted for each in records)
        if not records or (is_clean and not packed_anew):
            return set()
        stale = {version_id(self._block, each.number) for each in records} | self._list_replaced_before()
        return {id for id in self._tips if id in changed or id in stale} - {redaction_id(self._block)}

    def _list_replaced_before(self) -> set[str]:
        """Return the ids that earlier merges have listed for the next redaction."""
        known = self._settlement.get(erasure_id(self._block))
        return set() if known is None else {str(each) for each in known.data.get("ids") or ()}

    def _list_replaced(self, wanted: Records, erased: set[str]) -> Records:
        """List the records whose former versions hold what is elsewhere now, for the next redaction."""
        numbers = {entry.key: number for number, entry in enumerate(self._entries, 1)}
        moved = {
            version_id(self._block, each.version.number)
            for key, number in numbers.items()
            for each in self._copies.records_of(key)
            if each.version.number != number
        }
        packed = {id for id, some in self._tips.items() if some and some[-1].schema != VERSION.name}
        found = {id for id in self._tips if id in moved or (id in packed and wanted[id] is None)}
        before = self._list_replaced_before()
        listed = (before | found) - erased
        if listed == before:
            return {}
        id, data = erasure_id(self._block), {"block": self._block, "ids": sorted(listed)}
        return {id: self._datum(id, ERASURE, data, b"", self._entries[-1]) if listed else None}

    def _version_datum(self, entry: VersionEntry) -> Datum:
        data = {name: value for name, value in vars(entry.version).items() if name in VERSION_FIELDS}
        id = version_id(self._block, entry.version.number)
        return self._datum(id, VERSION, data, entry.update, entry)

    def _datum(
        self, id: str, schema: Schema[Any], data: dict[str, Any], content: bytes, entry: VersionEntry
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

    def _renumber_checkpoints(self, made: Sequence[VersionEntry]) -> Records:
        numbers = {entry.key: entry.version.number for entry in made}
        named = self._list_named()
        return {
            each.id: each.replace(data={**each.data, "version": numbers[named[each.id]]})
            for each in self._checkpoints
            if each.id in named and int(each.data["version"]) > self._common
        }

    def _reset_seen(self) -> Records:
        """Set what agents have seen back to the last common version."""
        seen = (each for each in self._settlement.records(SEEN.name) if each.data.get("block") == self._block)
        return {
            each.id: each.replace(data={**each.data, "version": self._common})
            for each in seen
            if each.data.get("version", 0) > self._common
        }

    def _flag_length(self, made: Sequence[VersionEntry], document: Document) -> Records:
        """Flag the header if the document is too long now."""
        header = self._settlement.get(self._block)
        if header is None or header.schema != BLOCK.name or not made:
            return {}
        size = self._measure()(document, made[-1].version.size)
        extra = {k: v for k, v in (header.data.get("extra") or {}).items() if k != OVER_LIMIT}
        extra |= {OVER_LIMIT: size} if size > header.data.get("limit", size) else {}
        same = extra == (header.data.get("extra") or {})
        return {} if same else {header.id: header.replace(data={**header.data, "extra": extra})}


def _is_same(one: Datum | None, other: Datum | None) -> bool:
    """Check whether two records are the same; those of two versions may differ in their times alone."""
    made = [(each.created_at, each.author) for each in (one, other) if each is not None]
    return says_the_same(one, other) and len(set(made)) <= 1


def _divide_into_packs(entries: Sequence[VersionEntry], known: int) -> Iterator[Sequence[VersionEntry]]:
    """Divide versions into packs; the one that a history begins with has a pack of its own."""
    for part in (entries[: max(0, known - 1)], entries[max(0, known - 1) : known], entries[known:]):
        for start in range(0, len(part), log.PACK_SIZE):
            yield part[start : start + log.PACK_SIZE]


def _unite_redactions(all: Iterable[Datum], entries: Iterable[VersionEntry], snapshot: str) -> Datum:
    """Unite the redactions of both sides, by the new numbers of the versions."""
    records = sorted(
        all, key=lambda each: (len(each.data.get("redacted") or ()), str(each.data.get("snapshot")))
    )
    numbers = {clock.text(entry.version.at): entry.version.number for entry in entries}
    united: dict[tuple[Any, str], dict[str, Any]] = {}
    for one in (one for each in records for one in each.data.get("redacted") or ()):
        at = str(one.get("at"))
        number = numbers.get(at, one.get("version"))
        cleared = bool(one.get("cleared")) or bool(united.get((number, at), {}).get("cleared"))
        united[number, at] = {**one, "version": number, "cleared": cleared}
    data = {**records[-1].data, "snapshot": snapshot, "redacted": [united[key] for key in sorted(united)]}
    return records[-1].replace(data=data)


# -- records of one kind --------------------------------------------------------------------------


def _merge_seen(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
    """Merge what an agent has seen: the older version, so that nothing new is passed over."""
    if left is None or right is None:
        return MergedRecord(left or right)
    return MergedRecord(min(left, right, key=lambda each: each.data.get("version", 0)))


def _merge_text(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
    """Drop the text of a block that both sides made: it is made again from what they come to."""
    return MergedRecord(None)


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
        TEXT.name: _merge_text,
        ERASURE.name: _merge_erasure,
        MEMBER.name: _merge_grant,
        SHARE.name: _merge_grant,
        ARCHIVE_SHARE.name: _merge_grant,
    },
    joint=_DOCUMENT,
    internal=_DOCUMENT | {SEEN.name, ERASURE.name, TEXT.name},
    settle=_settle,
)
