"""Join: changes made to a copy of a block elsewhere become versions of this one.

Each version of the copy becomes a version here, with its author, its message and its original time; what is
here already is left out, so joining twice changes nothing. A document that becomes longer than its limit is
kept, and its header is flagged until it is short enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from dgent import clock
from dgent.blocks import errors
from dgent.blocks.access.actor import Header
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import render_document
from dgent.blocks.document.shape import Shape, load_shape
from dgent.blocks.document.splice import count_changes
from dgent.blocks.history.log import VersionLog
from dgent.blocks.history.version import REWRITES, Version
from dgent.blocks.record import BlockRecord, VersionRecord, version_id
from dgent.errors import StorageError, VersionConflict
from dgent.model.datum import Datum
from dgent.store.backend import LIVE, Check, Op, Put
from dgent.universe import write
from dgent.universe.universe import Universe

OVER_LIMIT = "over_limit"
"""The key in a header's extra fields for the size of a document that a merge made too long."""


def is_over_limit(header: BlockRecord) -> bool:
    """Check whether a block is too long; a higher limit or an edit that shortens it ends this."""
    size = header.extra.get(OVER_LIMIT)
    return type(size) is int and size > header.limit


def set_over_limit(header: Header, size: int) -> Header:
    """Return a header flagged with the size of a document that is too long."""
    extra: dict[str, Any] = {**header.value.extra, OVER_LIMIT: size}
    return header.replace(value=replace(header.value, extra=extra))


def clear_over_limit(header: Header) -> Header:
    """Return a header without the over-limit flag."""
    extra = {name: each for name, each in header.value.extra.items() if name != OVER_LIMIT}
    return header.replace(value=replace(header.value, extra=extra))


ATTEMPTS = 200  # to write while others may write to the same block
AT_ONCE = 256  # versions in one commit
AT_ONCE_BYTES = 4 * 2**20


@dataclass(frozen=True)
class JoinStep:
    """One version to add: its change to the document, and the fields of its record."""

    change: Callable[[Document], None]
    op: str
    by: str
    at: datetime
    message: str = ""
    size: int = 0  # of its update in bytes, about


@dataclass(frozen=True)
class JoinResult:
    """The result of a join: the number of versions added, the size of the document, and its limit.

    `number` is the newest version of the block afterwards.
    """

    versions: int
    size: int
    limit: int
    number: int = 0

    @property
    def over_limit(self) -> bool:
        """True when the document is longer than its limit."""
        return self.size > self.limit


# -- steps ----------------------------------------------------------------------------


async def steps_after(log: VersionLog, number: int) -> list[JoinStep] | None:
    """Return the versions after one as steps; None when some are no longer stored one by one."""
    async with log.lock:
        await log.refresh_locked()
        found: list[tuple[Version, bytes]] = []
        if number < log.last_packed:
            for pack in map(log._packs.read, await log._packs.records()):
                found += zip(pack.versions, pack.updates, strict=True)
            found = [each for each in found if each[0].number <= log.last_packed]
        found += list(zip(log.tail, log._updates, strict=True))
        wanted = [each for each in found if each[0].number > number]
        expected = list(range(number + 1, log.number + 1))
    # Versions that record a rewrite of history bring nothing.
    brought = [(version, update) for version, update in wanted if version.op not in REWRITES]
    if [version.number for version, _ in wanted] != expected or not all(update for _, update in brought):
        return None
    return [_step(version, update) for version, update in brought]


def _step(version: Version, update: bytes) -> JoinStep:
    def change(document: Document) -> None:
        document.merge(update)
        document.check_usable()

    return JoinStep(change, version.op, version.by, version.at, version.message, len(update))


def step_of_all(theirs: Document, by: str, message: str) -> JoinStep:
    """Build one step with everything that another document has and this one does not."""

    def change(document: Document) -> None:
        update = theirs.updates_since(document)
        document.merge(update)

    return JoinStep(change, "merge", by, clock.now(), message)


def step_of_difference(before: Document, theirs: Document, by: str, message: str) -> JoinStep:
    """Build one step with what another document changed since the two were the same."""

    def change(document: Document) -> None:
        left, right = before.fork(), before.fork()
        left.become(document)
        right.become(theirs)
        left.merge(right.updates_since(left))
        document.become(left)

    return JoinStep(change, "merge", by, clock.now(), message)


def step_of_content(chosen: Document, by: str, message: str) -> JoinStep:
    """Build one step that gives this document the content of another one."""
    return JoinStep(lambda document: document.become(chosen), "merge", by, clock.now(), message)


# -- joining ------------------------------------------------------------------------------------


async def join(
    universe: Universe, block: str, steps: Sequence[JoinStep], note: str, *, dry_run: bool = False
) -> JoinResult:
    """Add steps as versions of a block; raises DocumentCorrupt when they do not fit it."""
    log = VersionLog(universe, block)
    done = JoinResult(0, 0, 0)
    for part in [list(steps)] if dry_run else _split_steps(steps):
        came = await _join(universe, log, part, note, dry_run)
        done = JoinResult(done.versions + came.versions, came.size, came.limit, came.number)
    return done


def _split_steps(steps: Iterable[JoinStep]) -> Iterator[list[JoinStep]]:
    """Split steps into parts small enough for one commit each."""
    part: list[JoinStep] = []
    size = 0
    for step in steps:
        if part and (len(part) == AT_ONCE or size + step.size > AT_ONCE_BYTES):
            yield part
            part, size = [], 0
        part.append(step)
        size += step.size
    if part:
        yield part


async def _join(
    universe: Universe, log: VersionLog, steps: Sequence[JoinStep], note: str, dry_run: bool
) -> JoinResult:
    for _ in range(ATTEMPTS):
        header = await universe.get(log._block)
        if header is None:
            raise errors.BlockNotFound("the block is gone")
        async with log.lock:
            await log.refresh_locked()
            shape = load_shape(header.value.document, header.value.shape)
            try:
                made = [*_build_versions(universe, log, steps, _measure(shape, header.value.limit))]
                size = made[-1][0].size if made else len(_measure(shape, header.value.limit)(log.document))
                done = JoinResult(len(made), size, header.value.limit, log.number + len(made))
                if not made or dry_run or await _commit(universe, log, made, header, note):
                    return done
            finally:
                log.forget()  # the document in memory may differ from what is stored
    raise VersionConflict("others kept writing to the block", hint="merge again", id=log._block)


def _measure(shape: Shape, limit: int) -> Callable[[Document], str]:
    return lambda document: render_document(shape, document, limit)


_NewVersion = tuple[VersionRecord, Datum]


def _build_versions(
    universe: Universe, log: VersionLog, steps: Sequence[JoinStep], text_of: Callable[[Document], str]
) -> Iterator[_NewVersion]:
    """Apply the steps and yield the records of those that change something."""
    document, number = log.document, log.number
    node = log.tail[-1].node if log.tail else 0
    before = text_of(document)
    for step in steps:
        step.change(document)
        update = document.take_update()
        if not update:
            continue  # already here
        document.mark_saved()
        number += 1
        after = text_of(document)
        added, removed = count_changes(before, after)
        message = step.message[:1000]
        record = VersionRecord(
            step.op, number, node, len(after), added, removed, document.frontiers, message=message
        )
        datum, _ = write.new_datum(
            universe.contracts,
            record,
            id=version_id(log._block, number),
            author=step.by,
            content=update,
            created_at=step.at,
        )
        before, node = after, number
        yield record, datum


async def _commit(
    universe: Universe, log: VersionLog, made: Sequence[_NewVersion], header: Header, note: str
) -> bool:
    """Store versions, all or none; False when another writer was faster."""
    ops: list[Op] = [Put(datum, 0, None, True) for _, datum in made]
    newest = version_id(log._block, log.number)
    if log.number:
        ops.append(Check(newest, LIVE))
    ops.append(_flag(universe, header, made[-1][0].size))
    try:
        await universe.commit(ops, note=note, kind="merge")
    except VersionConflict:
        return False
    log.forget()
    await log.refresh_locked()
    if log._needs_packing():
        with suppress(StorageError):  # the versions are stored; the next one tries to pack again
            await log.pack_versions()
    return True


def _flag(universe: Universe, header: Header, size: int) -> Op:
    """Return the op that stores whether a document is over its limit, or checks the header as read."""
    known = header.value.extra.get(OVER_LIMIT)
    if known == (size if size > header.value.limit else None):
        return Check(header.id, header.rev or 0)
    updated = set_over_limit(header, size) if size > header.value.limit else clear_over_limit(header)
    op, _ = write.store_op(universe.contracts, updated, header.rev)
    return op
