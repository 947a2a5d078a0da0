"""Joining: what was done to a copy of a block somewhere else becomes versions of this one.

Each version of the copy is a version here, with its author, its message and its time of origin; what is here
already is left out, so joining twice changes nothing. A document that gets longer than its limit by that is
kept, and the card says so until it is short enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from dgent import clock
from dgent.blocks import errors
from dgent.blocks.access.standing import Card
from dgent.blocks.document import shape as shapes
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import rendered
from dgent.blocks.document.shape import Shape
from dgent.blocks.document.splice import counts
from dgent.blocks.history.log import Chain
from dgent.blocks.history.version import REWRITES, Version
from dgent.blocks.record import BlockRecord, VersionRecord, version_id
from dgent.errors import StorageError, VersionConflict
from dgent.model.datum import Datum
from dgent.store.backend import LIVE, Check, Op, Put
from dgent.universe import write
from dgent.universe.universe import Universe

OVER_LIMIT = "over_limit"
"""In a card's extra: how long the document was after the merge, where that was more than its limit."""


def is_over_limit(card: BlockRecord) -> bool:
    """Whether a block is too long; a higher limit ends it, and so does an edit that makes it short enough."""
    size = card.extra.get(OVER_LIMIT)
    return type(size) is int and size > card.limit


def flagged(card: Card, size: int) -> Card:
    """The card of a block that is so long."""
    extra: dict[str, Any] = {**card.value.extra, OVER_LIMIT: size}
    return card.replace(value=replace(card.value, extra=extra))


def unflagged(card: Card) -> Card:
    """The card of a block that is not too long."""
    extra = {name: each for name, each in card.value.extra.items() if name != OVER_LIMIT}
    return card.replace(value=replace(card.value, extra=extra))


ATTEMPTS = 200  # at writing what somebody else may write to at the same time
AT_ONCE = 256  # versions in one commit
AT_ONCE_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Step:
    """One version that is to come: what it does to a document, and what is told of it."""

    change: Callable[[Document], None]
    op: str
    by: str
    at: datetime
    message: str = ""
    size: int = 0  # of the bytes it brings, about


@dataclass(frozen=True)
class Joined:
    """What joining came to: how many versions came, how long the document is now, and the limit."""

    versions: int
    size: int
    limit: int

    @property
    def over_limit(self) -> bool:
        """Whether it is longer than it may be."""
        return self.size > self.limit


# -- what is to come ----------------------------------------------------------------------------


async def steps_after(chain: Chain, number: int) -> list[Step] | None:
    """The versions of a chain after one; None when some of them are not kept one by one any more."""
    async with chain.alone:
        await chain.renew()
        found: list[tuple[Version, bytes]] = []
        if number < chain.folded:
            for page in map(chain._past.read, await chain._past.records()):
                found += zip(page.versions, page.updates, strict=True)
            found = [each for each in found if each[0].number <= chain.folded]
        found += list(zip(chain.tail, chain._updates, strict=True))
        wanted = [each for each in found if each[0].number > number]
        expected = list(range(number + 1, chain.number + 1))
    # Those that say that the past was rewritten bring nothing.
    brought = [(version, update) for version, update in wanted if version.op not in REWRITES]
    if [version.number for version, _ in wanted] != expected or not all(update for _, update in brought):
        return None
    return [_step(version, update) for version, update in brought]


def _step(version: Version, update: bytes) -> Step:
    def change(document: Document) -> None:
        document.merge(update)
        document.check_usable()

    return Step(change, version.op, version.by, version.at, version.message, len(update))


def step_of_all(theirs: Document, by: str, message: str) -> Step:
    """One version with everything that another document has and this one has not."""

    def change(document: Document) -> None:
        update = theirs.updates_since(document)
        document.merge(update)

    return Step(change, "merge", by, clock.now(), message)


def step_of_difference(before: Document, theirs: Document, by: str, message: str) -> Step:
    """One version with what another document holds otherwise than when the two were the same."""

    def change(document: Document) -> None:
        left, right = before.fork(), before.fork()
        left.become(document)
        right.become(theirs)
        left.merge(right.updates_since(left))
        document.become(left)

    return Step(change, "merge", by, clock.now(), message)


# -- joining ------------------------------------------------------------------------------------


async def join(
    universe: Universe, block: str, steps: Sequence[Step], note: str, *, dry_run: bool = False
) -> Joined:
    """Make what was done elsewhere versions of a block; DocumentCorrupt when they do not fit it."""
    chain = Chain(universe, block)
    done = Joined(0, 0, 0)
    for part in [list(steps)] if dry_run else _parts(steps):
        came = await _join(universe, chain, part, note, dry_run)
        done = Joined(done.versions + came.versions, came.size, came.limit)
    return done


def _parts(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Steps as they go into commits: not too many at once."""
    part: list[Step] = []
    size = 0
    for step in steps:
        if part and (len(part) == AT_ONCE or size + step.size > AT_ONCE_BYTES):
            yield part
            part, size = [], 0
        part.append(step)
        size += step.size
    if part:
        yield part


async def _join(universe: Universe, chain: Chain, steps: Sequence[Step], note: str, dry_run: bool) -> Joined:
    for _ in range(ATTEMPTS):
        card = await universe.get(chain._block)
        if card is None:
            raise errors.BlockNotFound("the block is gone")
        async with chain.alone:
            await chain.renew()
            shape = shapes.load(card.value.document, card.value.shape)
            try:
                made = [*_made(universe, chain, steps, _measure(shape, card.value.limit))]
                size = made[-1][0].size if made else len(_measure(shape, card.value.limit)(chain.document))
                done = Joined(len(made), size, card.value.limit)
                if not made or dry_run or await _commit(universe, chain, made, card, note):
                    return done
            finally:
                chain.forget()  # what was done to the document in memory may not be what is stored
    raise VersionConflict("others write to the block all the time", hint="merge again", id=chain._block)


def _measure(shape: Shape, limit: int) -> Callable[[Document], str]:
    return lambda document: rendered(shape, document, limit)


_Made = tuple[VersionRecord, Datum]


def _made(
    universe: Universe, chain: Chain, steps: Sequence[Step], text_of: Callable[[Document], str]
) -> Iterator[_Made]:
    """The versions that bring something new, as they will be stored."""
    document, number = chain.document, chain.number
    node = chain.tail[-1].node if chain.tail else 0
    before = text_of(document)
    for step in steps:
        step.change(document)
        update = document.take_update()
        if not update:
            continue  # it is here already
        document.settled()
        number += 1
        after = text_of(document)
        added, removed = counts(before, after)
        told = step.message[:1000]
        record = VersionRecord(
            step.op, number, node, len(after), added, removed, document.frontiers, message=told
        )
        datum, _ = write.new_datum(
            universe.contracts,
            record,
            id=version_id(chain._block, number),
            author=step.by,
            content=update,
            created_at=step.at,
        )
        before, node = after, number
        yield record, datum


async def _commit(universe: Universe, chain: Chain, made: Sequence[_Made], card: Card, note: str) -> bool:
    """Store versions, all or none; False when somebody else was faster."""
    ops: list[Op] = [Put(datum, 0, None, True) for _, datum in made]
    newest = version_id(chain._block, chain.number)
    if chain.number:
        ops.append(Check(newest, LIVE))
    ops.append(_flag(universe, card, made[-1][0].size))
    try:
        await universe.commit(ops, note=note, kind="merge")
    except VersionConflict:
        return False
    chain.forget()
    await chain.renew()
    if chain._is_due():
        with suppress(StorageError):  # the versions are stored; the next one tries to fold again
            await chain.fold()
    return True


def _flag(universe: Universe, card: Card, size: int) -> Op:
    """The op that keeps whether a document is over its limit; or only that the limit is as it was read."""
    known = card.value.extra.get(OVER_LIMIT)
    if known == (size if size > card.value.limit else None):
        return Check(card.id, card.rev or 0)
    told = flagged(card, size) if size > card.value.limit else unflagged(card)
    op, _ = write.store_op(universe.contracts, told, card.rev)
    return op
