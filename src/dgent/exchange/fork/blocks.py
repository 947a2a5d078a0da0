"""Merge blocks: their documents by their changes, their headers as `header` does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import msgspec

from dgent.blocks.document.document import Document
from dgent.blocks.errors import DocumentCorrupt, VersionNotFound
from dgent.blocks.history import join
from dgent.blocks.history.join import JoinResult, JoinStep
from dgent.blocks.history.log import VersionLog
from dgent.blocks.history.version import Version
from dgent.blocks.record import BLOCK, CHECKPOINT, PACK, REDACTION, ROOM, SNAPSHOT, VERSION, BlockRecord
from dgent.exchange.copy import BATCH
from dgent.exchange.fork.baseline import Base, BaseEntry
from dgent.exchange.fork.header import HeaderMerge, MergedHeader, make_label_clash
from dgent.exchange.fork.records import FORGOTTEN, ForkChange
from dgent.exchange.fork.report import BlockMerged, ForkClash, MergeMethod, MergeTally
from dgent.exchange.fork.resolve import LEFT_OPEN, OPEN, Resolver
from dgent.exchange.fork.selection import carry, read_block
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.store.upkeep import forgotten_among
from dgent.universe import write
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

NO_VERSION = "its version was not merged separately, so it has no number here"


async def renumber_checkpoints(
    source: Universe, target: Universe, changes: Sequence[ForkChange], base: Base, tally: MergeTally
) -> list[ForkChange]:
    """Return checkpoints with the numbers of their versions here; those without one are reported."""
    here: dict[str, dict[tuple[object, ...], int]] = {}
    found: list[ForkChange] = []
    for change in changes:
        if change.theirs is None:
            found.append(change)
            continue
        block, number = str(change.theirs.data.get("block")), change.theirs.data.get("version")
        known = base.get(block)
        if type(number) is int and known is not None and number <= known.point:
            found.append(change)
            continue
        if block not in here:
            versions = await VersionLog(target.for_room(ROOM), block).versions()
            here[block] = {_identify_version(each): each.number for each in versions}
        try:
            theirs = await VersionLog(source.for_room(ROOM), block).find(number if type(number) is int else 0)
        except VersionNotFound:
            theirs = None
        at = None if theirs is None else here[block].get(_identify_version(theirs))
        if at is None:
            tally.skip(change.id, CHECKPOINT.name, NO_VERSION)
        else:
            data = {**change.theirs.data, "version": at}
            found.append(change._replace(theirs=change.theirs.replace(data=data)))
    return found


def _identify_version(version: Version) -> tuple[object, ...]:
    """Return what identifies a version in every store."""
    return version.at, version.by, version.op, version.message


CARD: MergeMethod = "card"
DOCUMENT = frozenset((VERSION.name, PACK.name, SNAPSHOT.name, REDACTION.name))
REDACTED_HERE = "something was redacted here that the other side still has, and the histories do not fit"
REDACTED_THERE = "what was redacted {where} is still here: redact it here, too"
BOTH_EDITED = "edited on both sides"


class Theirs(NamedTuple):
    """A block on the other side: its header and newest version, and its base."""

    card: Crystal[BlockRecord]
    version: int
    base: BaseEntry | None

    @property
    def is_edited(self) -> bool:
        """True when the other side made versions of it."""
        return self.base is None or self.version > self.base.version

    @property
    def is_changed(self) -> bool:
        """True when the other side changed it in any way."""
        return self.is_edited or (self.base is not None and self.base.card != self.card.datum.data)


class BlockMerge:
    """Merges blocks one by one; an interrupted merge can be repeated."""

    def __init__(
        self,
        source: Universe,
        target: Universe,
        versions: dict[str, int],
        tally: MergeTally,
        note: str,
        dry_run: bool,
        resolver: Resolver,
    ) -> None:
        self._source, self._target = source.for_room(ROOM), target.for_room(ROOM)
        self._here = versions  # the newest version of each block here
        self._tally, self._note, self._dry_run, self._resolver = tally, note, dry_run, resolver
        self._planned: dict[str, BlockRecord] = {}
        self._headers = HeaderMerge(resolver, tally.side, self._planned)
        self.reached: dict[str, int] = {}
        """The version here of each block after it was joined, if nobody else wrote to it meanwhile."""
        self.added: set[str] = set()
        """The ids of blocks that were not here, and have the same versions on both sides now."""

    async def merge(self, theirs: Theirs) -> None:
        """Merge one block if the other side changed it."""
        if not theirs.is_changed:
            return
        id = theirs.card.id
        there = await self._target.get(id)
        if there is None:
            await self._add_new(theirs)
            return
        if not isinstance(there, Crystal) or there.schema_name != BLOCK.name:
            await self._keep_beside(theirs, "its id is taken here by another record")
            return
        choice = await self._choose_document(theirs)
        merged = await self._merge_header(theirs, choice == OPEN)
        self._tally.conflicts += merged.clashes
        if merged.is_open or choice == OPEN:
            self._tally.skip(id, BLOCK.name, LEFT_OPEN)
            return
        how, done = (
            await self._merge_document(theirs, choice)
            if theirs.is_edited
            else (CARD, JoinResult(0, 0, merged.value.limit))
        )
        if done.number and done.number - done.versions == self._here.get(id, 0):
            self.reached[id] = done.number
        if done.versions or merged.value != there.value:
            self._report(id, merged.value, how if done.versions else CARD, done)

    async def _choose_document(self, theirs: Theirs) -> str:
        """Choose the text of a block that both sides edited; `both` merges them without a conflict."""
        edited_here = theirs.base is not None and self._here.get(theirs.card.id, 0) > theirs.base.synced
        if self._resolver.choice == "both" or not theirs.is_edited or not edited_here:
            return "both"
        clash = ForkClash(theirs.card.id, BLOCK.name, BOTH_EDITED, theirs.card.value.label)
        choice = await self._resolver.resolve(clash)
        self._tally.conflicts.append(msgspec.structs.replace(clash, choice=choice))
        return choice

    def _report(self, id: str, value: BlockRecord, how: MergeMethod, done: JoinResult) -> None:
        size = (done.versions, done.size, value.limit, done.over_limit)
        self._tally.blocks.append(BlockMerged(id, value.owner, value.label, how, *size))

    # -- the header -----------------------------------------------------------------------

    async def _merge_header(self, theirs: Theirs, is_open: bool) -> MergedHeader:
        """Merge the header in a transaction that sees the labels of others; an open one is not stored."""
        id, data = theirs.card.id, theirs.card.datum.data
        # A block of both sides without a base came here by an earlier merge.
        base = dict(data) if theirs.base is None or theirs.base.card is None else theirs.base.card
        synced = theirs.version if theirs.base is None else theirs.base.synced
        changed = {"changed_here": self._here.get(id, 0) > synced, "changed_there": theirs.is_edited}
        if self._resolver.choice == "ask":  # before the transaction, which does not wait for a person
            found = await self._target.get(id)
            await self._headers.merge(self._target, found, base, dict(data), **changed)
        done: list[MergedHeader] = []

        async def work(tx: Transaction) -> None:
            card = await tx.get(id)
            done[:] = [await self._headers.merge(tx, card, base, dict(data), **changed)]
            stays = self._dry_run or is_open or done[0].is_open
            if done[0].value != card.value and not stays:
                await tx.store(card.replace(value=done[0].value))

        await self._target.transact(work, note=self._note)
        self._plan(id, done[0].value)
        return done[0]

    def _plan(self, id: str, value: BlockRecord) -> None:
        if self._dry_run:
            self._planned[id] = value

    # -- the document ---------------------------------------------------------------------

    async def _merge_document(self, theirs: Theirs, choice: str) -> tuple[MergeMethod, JoinResult]:
        """Merge the changes of the other side, as closely as both histories still allow.

        With `theirs` or `mine` one more version makes the text that of the chosen side; the versions of both
        stay in the history.
        """
        id, since = theirs.card.id, 0 if theirs.base is None else theirs.base.version
        chain, here = VersionLog(self._source, id), VersionLog(self._target, id)
        steps = await join.steps_after(chain, since)
        await here.refresh()
        author = self._target.author
        last: list[JoinStep] = []
        if choice in ("theirs", "mine"):
            chosen = chain.document if choice == "theirs" else here.document.fork()
            last = [join.step_of_content(chosen, author, f"the text of {choice} was chosen")]
        where = self._tally.side.where
        if chain.redactions > here.redactions:
            self._tally.skip(id, VERSION.name, REDACTED_THERE.format(where=where), again=False)
        with suppress(DocumentCorrupt):
            if steps is not None:
                return "versions", await self._apply_steps(id, [*steps, *last])
        why = f"changes made {where}, as one version"
        with suppress(DocumentCorrupt):
            if await _has_state(here, chain, since):
                step = join.step_of_all(chain.document, author, why)
                return "changes", await self._apply_steps(id, [step, *last])
        none = JoinResult(0, 0, theirs.card.value.limit)
        if here.redactions > chain.redactions:
            self._tally.skip(id, BLOCK.name, REDACTED_HERE)
            return CARD, none
        before = await self._load_base_document(chain, here, theirs, since)
        if before is not None:
            step = join.step_of_difference(before, chain.document, author, why)
            return "compared", await self._apply_steps(id, [step, *last])
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
        """Copy a block that is only on the other side, with its history, under the same id."""
        id = theirs.card.id
        if id in await forgotten_among(self._target.backend, [id]):
            self._tally.skip(id, BLOCK.name, FORGOTTEN)
            return
        if theirs.base is not None:
            what = f"deleted here, changed {self._tally.side.where}"
            clash = ForkClash(id, BLOCK.name, what, theirs.card.value.label)
            choice = await self._resolver.resolve(clash)
            self._tally.conflicts.append(msgspec.structs.replace(clash, choice=choice))
            if choice == OPEN:
                self._tally.skip(id, BLOCK.name, LEFT_OPEN)
            if choice in ("mine", OPEN):
                return
        await self._carry(theirs, id, "new")
        self.added.add(id)

    async def _keep_beside(self, theirs: Theirs, why: str) -> None:
        """Copy the other side's block as a separate block, so that nothing of either side is lost."""
        id = write.keyed_id(BLOCK.name, f"{theirs.card.id}/{theirs.version}")
        if await self._target.exists(id):
            return
        label = await self._carry(theirs, id, "beside")
        self._tally.conflicts.append(ForkClash(theirs.card.id, BLOCK.name, why, label))

    async def _carry(self, theirs: Theirs, id: str, how: MergeMethod) -> str:
        """Copy a whole block; its header comes last, so there never is one without its document."""
        inside = [
            _move_part(each, theirs.card.id, id) for each in await read_block(self._source, theirs.card.id)
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
                label = await self._headers.find_free_label(tx, value.owner, label, id)
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
    """Check whether the history of the document here still has the base state of the other side."""
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
