"""Merge blocks: their documents by their changes, their headers field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, NamedTuple

from dgent import ids
from dgent.blocks.access.actor import Header, Reader
from dgent.blocks.document.document import Document
from dgent.blocks.errors import DocumentCorrupt, VersionNotFound
from dgent.blocks.history import join
from dgent.blocks.history.join import OVER_LIMIT, JoinResult, JoinStep
from dgent.blocks.history.log import VersionLog
from dgent.blocks.history.version import Version
from dgent.blocks.record import BLOCK, CHECKPOINT, PACK, REDACTION, ROOM, SNAPSHOT, VERSION, BlockRecord
from dgent.exchange.copy import BATCH
from dgent.exchange.fork.baseline import Base, BaseEntry
from dgent.exchange.fork.records import FORGOTTEN, ForkChange
from dgent.exchange.fork.report import BlockMerged, ForkClash, MergeMethod, MergeTally
from dgent.exchange.fork.selection import carry, read_block
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.upkeep import forgotten_among
from dgent.universe import write
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

NO_VERSION = "its version was not merged separately, so it has no number here"


async def renumber_checkpoints(
    fork: Universe, target: Universe, changes: Sequence[ForkChange], base: Base, tally: MergeTally
) -> list[ForkChange]:
    """Return checkpoints with the numbers of their versions here; those without one are reported."""
    here: dict[str, dict[tuple[object, ...], int]] = {}
    found: list[ForkChange] = []
    for change in changes:
        if change.fork is None:
            found.append(change)
            continue
        block, number = str(change.fork.data.get("block")), change.fork.data.get("version")
        known = base.get(block)
        if type(number) is int and known is not None and number <= known.point:
            found.append(change)
            continue
        if block not in here:
            versions = await VersionLog(target.for_room(ROOM), block).versions()
            here[block] = {_identify_version(each): each.number for each in versions}
        try:
            theirs = await VersionLog(fork.for_room(ROOM), block).find(number if type(number) is int else 0)
        except VersionNotFound:
            theirs = None
        at = None if theirs is None else here[block].get(_identify_version(theirs))
        if at is None:
            tally.skip(change.id, CHECKPOINT.name, NO_VERSION)
        else:
            data = {**change.fork.data, "version": at}
            found.append(change._replace(fork=change.fork.replace(data=data)))
    return found


def _identify_version(version: Version) -> tuple[object, ...]:
    """Return what identifies a version in every store."""
    return version.at, version.by, version.op, version.message


NAMES = tuple(each.name for each in fields(BlockRecord))


Planned = Mapping[str, BlockRecord]
"""Headers as they would be by now if this were no dry run."""


class MergedHeader(NamedTuple):
    """A merged header, and the conflicts of its fields."""

    value: BlockRecord
    clashes: list[ForkClash]


async def merge_header(
    reader: Reader,
    card: Header,
    base: dict[str, Any],
    theirs: dict[str, Any],
    *,
    changed_here: bool,
    changed_there: bool,
    planned: Planned,
) -> MergedHeader:
    """Merge the header of the fork into the one here; `changed_…`: that side edited the document."""
    ours = {name: getattr(card.value, name) for name in NAMES}
    made, clashes = _merge_fields(card.id, base, theirs, ours)
    what = _describe_deletion(base, theirs, ours, changed_here, changed_there)
    if what:
        made["active"] = True
        clashes.append(ForkClash(card.id, BLOCK.name, what, made["label"]))
    value = replace(card.value, **made)
    if value.active and (value.label != card.value.label or not card.value.active):
        label = await find_free_label(reader, value.owner, value.label, card.id, planned)
        if label != value.label:
            clashes.append(make_label_clash(card.id, value, label))
            value = replace(value, label=label)
    return MergedHeader(value, clashes)


def _merge_fields(
    id: str, base: dict[str, Any], theirs: dict[str, Any], ours: dict[str, Any]
) -> tuple[dict[str, Any], list[ForkClash]]:
    """Merge the fields of a header one by one; where both sides changed one, ours stays and is reported."""
    clashes: list[ForkClash] = []
    made: dict[str, Any] = {}
    for name in NAMES:
        before, there, here = base.get(name), theirs.get(name, ours[name]), ours[name]
        if name == "extra":
            made[name] = _merge_extra(before or {}, there or {}, here or {})
        elif name == "active":
            made[name] = there if here == before else here
        elif there in (before, here):
            made[name] = here
        elif here == before:
            made[name] = there
        else:
            made[name] = here
            what = f"{name} changed on both sides"
            clashes.append(ForkClash(id, BLOCK.name, what, theirs={name: there}))
    return made, clashes


def make_label_clash(id: str, value: BlockRecord, label: str) -> ForkClash:
    """Return the conflict for a label that another block has here."""
    return ForkClash(id, BLOCK.name, f"another block of {value.owner} has the label {value.label!r}", label)


async def find_free_label(reader: Reader, owner: str, label: str, id: str, planned: Planned) -> str:
    """Return a label that no other block of an owner has: this one, or it with a suffix."""
    where = {"owner": owner, "active": True}
    cards = await reader.recall(Query(schema=BLOCK.name, where=where, limit=None))
    used = {card.value.label for card in cards if card.id != id and card.id not in planned}
    used |= {each.label for other, each in planned.items() if _is_active_of(each, owner) and other != id}
    if label not in used:
        return label
    stem = label.encode()[: ids.MAX_NAME_BYTES - 16].decode(errors="ignore")
    names = (f"{stem}-fork" if step == 1 else f"{stem}-fork-{step}" for step in range(1, len(used) + 2))
    return next(name for name in names if name not in used)


def _is_active_of(card: BlockRecord, owner: str) -> bool:
    return card.active and card.owner == owner


def _describe_deletion(
    base: dict[str, Any],
    theirs: dict[str, Any],
    ours: dict[str, Any],
    changed_here: bool,
    changed_there: bool,
) -> str:
    """Say which side deleted a block that the other one changed; empty if neither did."""
    if not base.get("active") or bool(theirs.get("active")) == bool(ours["active"]):
        return ""
    if ours["active"]:
        return "deleted in the fork, changed here" if changed_here or _differs(base, ours) else ""
    return "deleted here, changed in the fork" if changed_there or _differs(base, theirs) else ""


def _differs(base: dict[str, Any], change: dict[str, Any]) -> bool:
    """Check whether a side did more to a header than delete it."""
    return any(base.get(name) != change.get(name) for name in NAMES if name not in ("active", "extra"))


def _merge_extra(base: dict[str, Any], theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Merge the extra fields of a header key by key; where both changed one, ours wins."""
    made: dict[str, Any] = {}
    for key in {**ours, **theirs}:
        before, there, here = base.get(key), theirs.get(key), ours.get(key)
        chosen = here if key == OVER_LIMIT or here != before else there
        if chosen is not None:
            made[key] = chosen
    return made


CARD: MergeMethod = "card"
DOCUMENT = frozenset((VERSION.name, PACK.name, SNAPSHOT.name, REDACTION.name))
REDACTED_HERE = "something was redacted here that the fork still has, and the histories do not fit"
REDACTED_THERE = "what was redacted in the fork is still here: redact it here, too"


class Theirs(NamedTuple):
    """A block in the fork: its header and newest version, and its base."""

    card: Crystal[BlockRecord]
    version: int
    base: BaseEntry | None

    @property
    def is_edited(self) -> bool:
        """True when the fork made versions of it."""
        return self.base is None or self.version > self.base.version

    @property
    def is_changed(self) -> bool:
        """True when the fork changed it in any way."""
        return self.is_edited or (self.base is not None and self.base.card != self.card.datum.data)


class BlockMerge:
    """Merges blocks one by one; an interrupted merge can be repeated."""

    def __init__(
        self,
        fork: Universe,
        target: Universe,
        versions: dict[str, int],
        tally: MergeTally,
        note: str,
        dry_run: bool,
    ) -> None:
        self._fork, self._target = fork.for_room(ROOM), target.for_room(ROOM)
        self._here = versions  # the newest version of each block here
        self._tally, self._note, self._dry_run = tally, note, dry_run
        self._planned: dict[str, BlockRecord] = {}

    async def merge(self, theirs: Theirs) -> None:
        """Merge one block if the fork changed it."""
        if not theirs.is_changed:
            return
        there = await self._target.get(theirs.card.id)
        if there is None:
            await self._add_new(theirs)
            return
        if not isinstance(there, Crystal) or there.schema_name != BLOCK.name:
            await self._keep_beside(theirs, "its id is taken here by another record")
            return
        merged = await self._merge_header(theirs)
        self._tally.conflicts += merged.clashes
        how, done = (
            await self._merge_document(theirs)
            if theirs.is_edited
            else (CARD, JoinResult(0, 0, merged.value.limit))
        )
        if done.versions or merged.value != there.value:
            self._report(theirs.card.id, merged.value, how if done.versions else CARD, done)

    def _report(self, id: str, value: BlockRecord, how: MergeMethod, done: JoinResult) -> None:
        size = (done.versions, done.size, value.limit, done.over_limit)
        self._tally.blocks.append(BlockMerged(id, value.owner, value.label, how, *size))

    # -- the header -----------------------------------------------------------------------

    async def _merge_header(self, theirs: Theirs) -> MergedHeader:
        """Merge the header in a transaction that sees the labels of other blocks."""
        id, data = theirs.card.id, theirs.card.datum.data
        # A block of both sides without a base came here by an earlier merge.
        base = dict(data) if theirs.base is None or theirs.base.card is None else theirs.base.card
        version = theirs.version if theirs.base is None else theirs.base.version
        here = self._here.get(id, 0) > version
        done: list[MergedHeader] = []

        async def work(tx: Transaction) -> None:
            card = await tx.get(id)
            changed = {"changed_here": here, "changed_there": theirs.is_edited}
            done[:] = [await merge_header(tx, card, base, dict(data), **changed, planned=self._planned)]
            if done[0].value != card.value and not self._dry_run:
                await tx.store(card.replace(value=done[0].value))

        await self._target.transact(work, note=self._note)
        self._plan(id, done[0].value)
        return done[0]

    def _plan(self, id: str, value: BlockRecord) -> None:
        if self._dry_run:
            self._planned[id] = value

    # -- the document ---------------------------------------------------------------------

    async def _merge_document(self, theirs: Theirs) -> tuple[MergeMethod, JoinResult]:
        """Merge the changes of the fork, as closely as both histories still allow."""
        id, since = theirs.card.id, 0 if theirs.base is None else theirs.base.version
        chain, here = VersionLog(self._fork, id), VersionLog(self._target, id)
        steps = await join.steps_after(chain, since)
        await here.refresh()
        if chain.redactions > here.redactions:
            self._tally.skip(id, VERSION.name, REDACTED_THERE, again=False)
        with suppress(DocumentCorrupt):
            if steps is not None:
                return "versions", await self._apply_steps(id, steps)
        author, why = self._target.author, "changes of a fork, as one version"
        with suppress(DocumentCorrupt):
            if await _has_state(here, chain, since):
                return "changes", await self._apply_steps(id, [join.step_of_all(chain.document, author, why)])
        none = JoinResult(0, 0, theirs.card.value.limit)
        if here.redactions > chain.redactions:
            self._tally.skip(id, BLOCK.name, REDACTED_HERE)
            return CARD, none
        before = await self._load_base_document(chain, here, theirs, since)
        if before is not None:
            step = join.step_of_difference(before, chain.document, author, why)
            return "compared", await self._apply_steps(id, [step])
        await self._keep_beside(theirs, "its history does not fit the one here")
        return CARD, none

    async def _apply_steps(self, id: str, steps: list[JoinStep]) -> JoinResult:
        return await join.join(self._target, id, steps, self._note, dry_run=self._dry_run)

    async def _load_base_document(
        self, chain: VersionLog, here: VersionLog, theirs: Theirs, number: int
    ) -> Document | None:
        """Load the document at the base version, from whichever side still has it."""
        shared = theirs.base is not None and number <= theirs.base.point
        for each in (chain, here) if shared else (chain,):
            with suppress(VersionNotFound, DocumentCorrupt):
                return await each.at(number)
        return None

    # -- blocks that are not here ---------------------------------------------------------

    async def _add_new(self, theirs: Theirs) -> None:
        """Copy a block that is only in the fork, with its history, under the same id."""
        id = theirs.card.id
        if id in await forgotten_among(self._target.backend, [id]):
            self._tally.skip(id, BLOCK.name, FORGOTTEN)
            return
        if theirs.base is not None:
            what = "deleted here, changed in the fork"
            self._tally.conflicts.append(ForkClash(id, BLOCK.name, what, theirs.card.value.label))
        await self._carry(theirs, id, "new")

    async def _keep_beside(self, theirs: Theirs, why: str) -> None:
        """Copy the fork's block as a separate block, so that nothing of either side is lost."""
        id = write.keyed_id(BLOCK.name, f"{theirs.card.id}/{theirs.version}")
        if await self._target.exists(id):
            return
        label = await self._carry(theirs, id, "beside")
        self._tally.conflicts.append(ForkClash(theirs.card.id, BLOCK.name, why, label))

    async def _carry(self, theirs: Theirs, id: str, how: MergeMethod) -> str:
        """Copy a whole block; its header comes last, so there never is one without its document."""
        inside = [
            _move_part(each, theirs.card.id, id) for each in await read_block(self._fork, theirs.card.id)
        ]
        # Shares are merged as records, and seen marks do not apply here. A separate copy is not shared.
        wanted = DOCUMENT if how == "beside" else DOCUMENT | {CHECKPOINT.name}
        inside = [each for each in inside if each.schema in wanted]
        if not self._dry_run:
            for start in range(0, len(inside), BATCH):
                some = inside[start : start + BATCH]
                await carry(self._target, some, self._note)
        value = theirs.card.value
        done: list[str] = []

        async def work(tx: Transaction) -> None:
            label = value.label
            if value.active:
                label = await find_free_label(tx, value.owner, label, id, self._planned)
            done[:] = [label]
            if not self._dry_run and not await tx.exists(id):
                datum = theirs.card.datum.replace(id=id, rev=None, seq=None, updated_at=None)
                await tx.put(datum.replace(data={**datum.data, "label": label}))

        await self._target.transact(work, note=self._note)
        if done[0] != value.label and how == "new":
            self._tally.conflicts.append(make_label_clash(id, value, done[0]))
        made = replace(value, label=done[0])
        self._plan(id, made)
        self._report(id, made, how, JoinResult(theirs.version, 0, value.limit))
        return done[0]


async def _has_state(here: VersionLog, chain: VersionLog, number: int) -> bool:
    """Check whether the history of the document here still has the base state of the fork."""
    try:
        point = await chain.find(number)
    except VersionNotFound:
        return False
    return bool(point.frontiers) and here.document.knows(point.frontiers)


def _move_part(datum: Datum, old: str, new: str) -> Datum:
    """Return a part of a block as part of another one."""
    if old == new:
        return datum
    data = {**datum.data, "block": new} if datum.data.get("block") == old else datum.data
    return datum.replace(id=new + datum.id.removeprefix(old), data=data)
