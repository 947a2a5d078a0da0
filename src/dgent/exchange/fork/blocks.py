"""Merging blocks: their documents by the changes themselves, their cards field by field."""

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
from dgent.exchange.fork.baseline import Base, Known
from dgent.exchange.fork.records import FORGOTTEN, Side
from dgent.exchange.fork.report import BlockMerged, ForkClash, How, Tally
from dgent.exchange.fork.selection import carry, read_block
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.upkeep import forgotten_among
from dgent.universe import write
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

NO_VERSION = "its version did not come one by one, so there is none of it here"


async def numbered(
    fork: Universe, target: Universe, sides: Sequence[Side], base: Base, tally: Tally
) -> list[Side]:
    """Checkpoints with the numbers that their versions have here; those without one are told of."""
    here: dict[str, dict[tuple[object, ...], int]] = {}
    found: list[Side] = []
    for side in sides:
        if side.fork is None:
            found.append(side)
            continue
        block, number = str(side.fork.data.get("block")), side.fork.data.get("version")
        known = base.get(block)
        if type(number) is int and known is not None and number <= known.point:
            found.append(side)
            continue
        if block not in here:
            versions = await VersionLog(target.for_room(ROOM), block).versions()
            here[block] = {_mark(each): each.number for each in versions}
        try:
            theirs = await VersionLog(fork.for_room(ROOM), block).find(number if type(number) is int else 0)
        except VersionNotFound:
            theirs = None
        at = None if theirs is None else here[block].get(_mark(theirs))
        if at is None:
            tally.leave(side.id, CHECKPOINT.name, NO_VERSION)
        else:
            data = {**side.fork.data, "version": at}
            found.append(side._replace(fork=side.fork.replace(data=data)))
    return found


def _mark(version: Version) -> tuple[object, ...]:
    """What a version keeps when it goes elsewhere."""
    return version.at, version.by, version.op, version.message


NAMES = tuple(each.name for each in fields(BlockRecord))


Planned = Mapping[str, BlockRecord]
"""Cards as they would be by now, if this were not only a trial."""


class Settled(NamedTuple):
    """A card as it shall be, and what could not be decided."""

    value: BlockRecord
    clashes: list[ForkClash]


async def settle(
    reader: Reader,
    card: Header,
    base: dict[str, Any],
    theirs: dict[str, Any],
    *,
    changed_here: bool,
    changed_there: bool,
    planned: Planned,
) -> Settled:
    """The card here with what the fork did to it; `changed_…` says whether a side edited the document."""
    ours = {name: getattr(card.value, name) for name in NAMES}
    clashes: list[ForkClash] = []
    made: dict[str, Any] = {}
    for name in NAMES:
        before, there, here = base.get(name), theirs.get(name, ours[name]), ours[name]
        if name == "extra":
            made[name] = _merged_extra(before or {}, there or {}, here or {})
        elif name == "active":
            made[name] = there if here == before else here
        elif there in (before, here):
            made[name] = here
        elif here == before:
            made[name] = there
        else:
            made[name] = here
            what = f"{name} changed on both sides"
            clashes.append(ForkClash(card.id, BLOCK.name, what, theirs={name: there}))
    edited_here = changed_here or _differs(base, ours)
    edited_there = changed_there or _differs(base, theirs)
    if base.get("active") and not theirs.get("active") and card.value.active and edited_here:
        made["active"] = True
        clashes.append(ForkClash(card.id, BLOCK.name, "deleted in the fork, changed here", made["label"]))
    if base.get("active") and theirs.get("active") and not card.value.active and edited_there:
        made["active"] = True
        clashes.append(ForkClash(card.id, BLOCK.name, "deleted here, changed in the fork", made["label"]))
    value = replace(card.value, **made)
    if value.active and (value.label != card.value.label or not card.value.active):
        label = await free_label(reader, value.owner, value.label, card.id, planned)
        if label != value.label:
            clashes.append(taken(card.id, value, label))
            value = replace(value, label=label)
    return Settled(value, clashes)


def taken(id: str, value: BlockRecord, label: str) -> ForkClash:
    """That another block has the label here."""
    return ForkClash(id, BLOCK.name, f"another block of {value.owner} has the label {value.label!r}", label)


async def free_label(reader: Reader, owner: str, label: str, id: str, planned: Planned) -> str:
    """A label that no other block of an owner has: this one, or one like it."""
    where = {"owner": owner, "active": True}
    cards = await reader.recall(Query(schema=BLOCK.name, where=where, limit=None))
    used = {card.value.label for card in cards if card.id != id and card.id not in planned}
    used |= {each.label for other, each in planned.items() if _has(each, owner) and other != id}
    if label not in used:
        return label
    stem = label.encode()[: ids.MAX_NAME_BYTES - 16].decode(errors="ignore")
    names = (f"{stem}-fork" if step == 1 else f"{stem}-fork-{step}" for step in range(1, len(used) + 2))
    return next(name for name in names if name not in used)


def _has(card: BlockRecord, owner: str) -> bool:
    return card.active and card.owner == owner


def _differs(base: dict[str, Any], side: dict[str, Any]) -> bool:
    """Whether a side did more to a card than delete it."""
    return any(base.get(name) != side.get(name) for name in NAMES if name not in ("active", "extra"))


def _merged_extra(base: dict[str, Any], theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """What else a card keeps, key by key; what both changed is as it is here."""
    made: dict[str, Any] = {}
    for key in {**ours, **theirs}:
        before, there, here = base.get(key), theirs.get(key), ours.get(key)
        chosen = here if key == OVER_LIMIT or here != before else there
        if chosen is not None:
            made[key] = chosen
    return made


CARD: How = "card"
DOCUMENT = frozenset((VERSION.name, PACK.name, SNAPSHOT.name, REDACTION.name))
REDACTED_HERE = "something was redacted here that the fork still says, and its history does not fit"
REDACTED_THERE = "what was redacted in the fork is still said here: redact it here, too"


class Theirs(NamedTuple):
    """A block in the fork: its card and its newest version, and what these were at the fork point."""

    card: Crystal[BlockRecord]
    version: int
    base: Known | None

    @property
    def is_edited(self) -> bool:
        """Whether the fork made versions of it."""
        return self.base is None or self.version > self.base.version

    @property
    def is_changed(self) -> bool:
        """Whether the fork did anything to it."""
        return self.is_edited or (self.base is not None and self.base.card != self.card.datum.data)


class Blocks:
    """Merging blocks, one after the other; each of them whole or to be gone on with."""

    def __init__(
        self,
        fork: Universe,
        target: Universe,
        versions: dict[str, int],
        tally: Tally,
        note: str,
        dry_run: bool,
    ) -> None:
        self._fork, self._target = fork.for_room(ROOM), target.for_room(ROOM)
        self._here = versions  # the newest version of each block here
        self._tally, self._note, self._dry_run = tally, note, dry_run
        self._planned: dict[str, BlockRecord] = {}

    async def merge(self, theirs: Theirs) -> None:
        """Merge one block, if the fork did anything to it."""
        if not theirs.is_changed:
            return
        there = await self._target.get(theirs.card.id)
        if there is None:
            await self._bring(theirs)
            return
        if not isinstance(there, Crystal) or there.schema_name != BLOCK.name:
            await self._beside(theirs, "its id is taken here by another record")
            return
        settled = await self._settle(theirs)
        self._tally.conflicts += settled.clashes
        how, done = (
            await self._join(theirs) if theirs.is_edited else (CARD, JoinResult(0, 0, settled.value.limit))
        )
        if done.versions or settled.value != there.value:
            self._tell(theirs.card.id, settled.value, how if done.versions else CARD, done)

    def _tell(self, id: str, value: BlockRecord, how: How, done: JoinResult) -> None:
        size = (done.versions, done.size, value.limit, done.over_limit)
        self._tally.blocks.append(BlockMerged(id, value.owner, value.label, how, *size))

    # -- the card -------------------------------------------------------------------------

    async def _settle(self, theirs: Theirs) -> Settled:
        """Bring the card up to date, in a transaction that sees the other blocks' labels."""
        id, data = theirs.card.id, theirs.card.datum.data
        # A block of both sides that was not there at the fork point came here by an earlier merge.
        base = dict(data) if theirs.base is None or theirs.base.card is None else theirs.base.card
        version = theirs.version if theirs.base is None else theirs.base.version
        here = self._here.get(id, 0) > version
        done: list[Settled] = []

        async def work(tx: Transaction) -> None:
            card = await tx.get(id)
            changed = {"changed_here": here, "changed_there": theirs.is_edited}
            done[:] = [await settle(tx, card, base, dict(data), **changed, planned=self._planned)]
            if done[0].value != card.value and not self._dry_run:
                await tx.store(card.replace(value=done[0].value))

        await self._target.transact(work, note=self._note)
        self._plan(id, done[0].value)
        return done[0]

    def _plan(self, id: str, value: BlockRecord) -> None:
        if self._dry_run:
            self._planned[id] = value

    # -- the document ---------------------------------------------------------------------

    async def _join(self, theirs: Theirs) -> tuple[How, JoinResult]:
        """Take in what the fork did, as closely as both histories still allow."""
        id, since = theirs.card.id, 0 if theirs.base is None else theirs.base.version
        chain, here = VersionLog(self._fork, id), VersionLog(self._target, id)
        steps = await join.steps_after(chain, since)
        await here.refresh()
        if chain.redactions > here.redactions:
            self._tally.leave(id, VERSION.name, REDACTED_THERE, again=False)
        with suppress(DocumentCorrupt):
            if steps is not None:
                return "versions", await self._take(id, steps)
        author, why = self._target.author, "what a fork did, as one version"
        with suppress(DocumentCorrupt):
            if await _knows(here, chain, since):
                return "changes", await self._take(id, [join.step_of_all(chain.document, author, why)])
        none = JoinResult(0, 0, theirs.card.value.limit)
        if here.redactions > chain.redactions:
            self._tally.leave(id, BLOCK.name, REDACTED_HERE)
            return CARD, none
        before = await self._at(chain, here, theirs, since)
        if before is not None:
            step = join.step_of_difference(before, chain.document, author, why)
            return "compared", await self._take(id, [step])
        await self._beside(theirs, "its history does not fit to the one here")
        return CARD, none

    async def _take(self, id: str, steps: list[JoinStep]) -> JoinResult:
        return await join.join(self._target, id, steps, self._note, dry_run=self._dry_run)

    async def _at(self, chain: VersionLog, here: VersionLog, theirs: Theirs, number: int) -> Document | None:
        """What the fork began with, or last merged; from whichever side still has it."""
        shared = theirs.base is not None and number <= theirs.base.point
        for each in (chain, here) if shared else (chain,):
            with suppress(VersionNotFound, DocumentCorrupt):
                return await each.at(number)
        return None

    # -- blocks that are not here ---------------------------------------------------------

    async def _bring(self, theirs: Theirs) -> None:
        """A block that is only in the fork: with all of its history, under the same id."""
        id = theirs.card.id
        if id in await forgotten_among(self._target.backend, [id]):
            self._tally.leave(id, BLOCK.name, FORGOTTEN)
            return
        if theirs.base is not None:
            what = "deleted here, changed in the fork"
            self._tally.conflicts.append(ForkClash(id, BLOCK.name, what, theirs.card.value.label))
        await self._carry(theirs, id, "new")

    async def _beside(self, theirs: Theirs, why: str) -> None:
        """Keep the fork's block as one of its own: nothing of it is lost, and nothing here is touched."""
        id = write.keyed_id(BLOCK.name, f"{theirs.card.id}/{theirs.version}")
        if await self._target.exists(id):
            return
        label = await self._carry(theirs, id, "beside")
        self._tally.conflicts.append(ForkClash(theirs.card.id, BLOCK.name, why, label))

    async def _carry(self, theirs: Theirs, id: str, how: How) -> str:
        """Bring a whole block; the card comes last, so there never is one without its document."""
        inside = [_moved(each, theirs.card.id, id) for each in await read_block(self._fork, theirs.card.id)]
        # Shares come as records do, and nobody has seen it here. One beside another is shared with nobody.
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
                label = await free_label(tx, value.owner, label, id, self._planned)
            done[:] = [label]
            if not self._dry_run and not await tx.exists(id):
                datum = theirs.card.datum.replace(id=id, rev=None, seq=None)
                await tx.put(datum.replace(data={**datum.data, "label": label}))

        await self._target.transact(work, note=self._note)
        if done[0] != value.label and how == "new":
            self._tally.conflicts.append(taken(id, value, done[0]))
        made = replace(value, label=done[0])
        self._plan(id, made)
        self._tell(id, made, how, JoinResult(theirs.version, 0, value.limit))
        return done[0]


async def _knows(here: VersionLog, chain: VersionLog, number: int) -> bool:
    """Whether the document here still has the state that the fork began with in its history."""
    try:
        point = await chain.find(number)
    except VersionNotFound:
        return False
    return bool(point.frontiers) and here.document.knows(point.frontiers)


def _moved(datum: Datum, old: str, new: str) -> Datum:
    """A part of a block as part of another one."""
    if old == new:
        return datum
    data = {**datum.data, "block": new} if datum.data.get("block") == old else datum.data
    return datum.replace(id=new + datum.id.removeprefix(old), data=data)
