"""Rewriting a block's past: taking out what some versions said, and letting go of old versions.

Both replace pages and the snapshot in one commit. What is redacted is erased afterwards with the records it
was in: so what replaces them has ids that nothing had before.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.access.permission import Permit
from dgent.blocks.document import redact as redaction
from dgent.blocks.document.document import Document
from dgent.blocks.document.redact import Redaction
from dgent.blocks.history.log import Chain
from dgent.blocks.history.pack import Page, built
from dgent.blocks.history.version import COMPACT, COMPACTED, REDACT, REDACTED, Version
from dgent.blocks.record import (
    ErasureRecord,
    PageRecord,
    RedactedVersion,
    RedactionRecord,
    VersionRecord,
    erasure_id,
    redaction_id,
    version_id,
)
from dgent.errors import Conflict, InputError, VersionConflict
from dgent.model.crystal import Crystal
from dgent.store.backend import LIVE, Check, Delete, Op
from dgent.universe.universe import Universe


async def list_to_erase(chain: Chain, ids: Iterable[str]) -> Op:
    """Make the op that lists ids to erase, with those still to be erased from before."""
    found = await chain._universe.get(erasure_id(chain._block))
    before = found.value.ids if isinstance(found, Crystal) else ()
    record = ErasureRecord(chain._block, tuple(dict.fromkeys((*before, *ids))))
    rev = found.rev or 0 if isinstance(found, Crystal) else 0
    return chain.put(record, erasure_id(chain._block), b"", rev)


async def erase(universe: Universe, block: str) -> bool:
    """Erase what is listed for it; True when the bytes are gone from the disk."""
    found = await universe.get(erasure_id(block))
    if not isinstance(found, Crystal):
        return True
    gone = await universe.forget(*found.value.ids, only_deleted=True)
    if gone.erased:
        with suppress(VersionConflict):  # another redaction listed more, and erases that itself
            await universe.delete(found.id, expect=found.rev)
    return gone.erased


def record_redaction(chain: Chain, versions: Iterable[Version], cleared: bool, fresh: str) -> Op:
    """Make the op that records which versions were redacted, and where the snapshot is now."""
    made = (RedactedVersion(each.number, each.at, cleared) for each in versions)
    known = chain.redaction
    before = () if known is None else known.value.redacted
    record = RedactionRecord(chain._block, fresh, join_redacted(before, made))
    rev = 0 if known is None else known.rev or 0
    return chain.put(record, redaction_id(chain._block), b"", rev)


def join_redacted(
    before: Iterable[RedactedVersion], more: Iterable[RedactedVersion]
) -> tuple[RedactedVersion, ...]:
    """Join two lists of redacted versions, each version once."""
    found = {(each.version, each.at): each for each in before}
    for each in more:
        known = found.get((each.version, each.at))
        if known is None or not known.cleared:
            found[each.version, each.at] = each
    return tuple(sorted(found.values(), key=lambda each: (each.version, each.at)))


ATTEMPTS = 64
PAUSE_S = 0.005  # before the second attempt at most; twice as long before each later one, up to the longest
LONGEST_S = 0.2
T = TypeVar("T")


@dataclass
class _Rewritten:
    """Pages as they come out of a redaction, and what is needed on the way."""

    wanted: frozenset[int]
    clear: bool = False
    whole: Document = field(default_factory=Document)
    clean: Document = field(default_factory=Document)
    said: list[str] = field(default_factory=list)
    spans: list[tuple[int, int, int, int]] = field(default_factory=list)  # peer, from, to, version
    redacted: list[Version] = field(default_factory=list)
    begun: bool = False  # whether the documents have taken in anything

    def take(self, page: Page) -> Page:
        """A page without what is redacted; the documents have taken in all of it."""
        begins = self.begins(page)
        if begins:
            self.whole, self.clean = Document.load(page.state), Document.load(page.state)
        versions, updates = [], []
        for version, update in zip(page.versions, page.updates, strict=True):
            versions.append(self._marked(version))
            updates.append(self._blank(version, update) if update else update)
        self.begun = self.begun or begins or any(page.updates)
        state = self.clean.state() if page.state and not begins else page.state
        return Page(versions, updates, state, page.kept)

    def begins(self, page: Page) -> bool:
        """Whether the history that is kept begins with a page: nothing is kept of what led to its state.

        A page of versions that only say that something was rewritten has no updates either, but comes later.
        """
        return bool(page.state) and not any(page.updates) and not self.begun

    def _marked(self, version: Version) -> Version:
        if version.number not in self.wanted:
            return version
        made = replace(version, lost=REDACTED, message="" if self.clear else version.message)
        self.redacted.append(made)
        return made

    def _blank(self, version: Version, update: bytes) -> bytes:
        self.spans += [(peer, *span, version.number) for peer, span in self.whole.spans(update).items()]
        if version.number not in self.wanted:
            self.whole.merge(update)
            self.clean.merge(update)
            self.clean.settled()
            return update
        made, said = self.clean.merge_redacted(update, self.whole)
        self.said += said
        return made

    def elsewhere(self) -> tuple[int, ...]:
        """The versions that are not redacted and brought some of the same text."""
        traces = redaction.traces(self.said)
        found = set()
        for peer, counter, text in self.clean.sayings() if traces else ():
            if any(trace in text for trace in traces):
                found |= {n for p, start, end, n in self.spans if p == peer and start <= counter < end}
        return tuple(sorted(found - self.wanted))


@dataclass(frozen=True)
class _Plan:
    """What a commit is to rewrite, up to a version; those after it stay as they are.

    `rest` takes in what others add meanwhile: it must be able to.
    """

    ops: list[Op]
    upto: int
    rest: Document


async def redact(
    chain: Chain, numbers: Collection[int], by: str, message: str, permit: Permit | None, clear: bool = False
) -> Redaction:
    """Take what some versions brought out of all versions, and erase the records it was in.

    With `clear` the messages of these versions go too. Without a permit nobody is asked: for a restore.
    """
    wanted = frozenset(numbers)

    async def work() -> Redaction:
        _check_there(chain, wanted)
        rewritten = _Rewritten(wanted, clear)
        plan = await _redacted(chain, rewritten)
        number = await _carried_out(chain, plan, (REDACT, message, by), permit)
        messages = tuple(each.number for each in rewritten.redacted if each.message)
        return Redaction(number, tuple(sorted(wanted)), rewritten.elsewhere(), False, messages)

    done = await _alone(chain, permit, work)
    return replace(done, erased=await erase(chain._universe, chain._block))


async def _redacted(chain: Chain, rewritten: _Rewritten) -> _Plan:
    wanted, block, fresh = rewritten.wanted, chain._block, ids.new_id()
    ops: list[Op] = []
    old: list[str] = []
    for record in await chain._past.records():
        page = chain._past.read(record)
        _check_kept(page, wanted, rewritten.begins(page))
        made = rewritten.take(page)
        if record.value.last >= min(wanted) and (page.state or made.versions != page.versions):
            ops += [Delete(record.id, record.rev), chain.put_page(made, fresh)]
            old.append(record.id)
    count = max(0, max(wanted) - chain.folded)
    upto = chain.folded + count
    if count:
        made = rewritten.take(Page(chain.tail[:count], chain._updates[:count]))
        ops.append(chain.put_page(made, fresh))
        ops += [Delete(version_id(block, each.number), LIVE) for each in chain.tail[:count]]
    if chain.snapshot is not None:
        ops.append(Delete(chain.snapshot.id, chain.snapshot.rev))
        old.append(chain.snapshot.id)
    old += [version_id(block, each) for each in sorted(wanted)]
    ops += [
        chain.put_snapshot(upto, rewritten.clean, fresh),
        record_redaction(chain, rewritten.redacted, rewritten.clear, fresh),
        await list_to_erase(chain, old),
    ]
    # Those after it are no part of the plan, and may say the same once more.
    rewritten.take(Page(chain.tail[count:], chain._updates[count:]))
    return _Plan(ops, upto, rewritten.clean)


async def _alone(chain: Chain, permit: Permit | None, work: Callable[[], Awaitable[T]]) -> T:
    """Do something with what a block is now; again when somebody else was faster."""
    for attempt in range(ATTEMPTS):
        async with chain.alone:
            await chain.renew()
            try:
                return await work()
            except VersionConflict as conflict:
                if permit is not None and permit.is_of(conflict):
                    await permit.renew()
            finally:
                chain.forget()
        await asyncio.sleep(random.uniform(0, min(PAUSE_S * 2**attempt, LONGEST_S)))
    raise errors.RewriteConflict("others went on changing the block while it was rewritten", id=chain._block)


async def _carried_out(chain: Chain, plan: _Plan, said: tuple[str, str, str], permit: Permit | None) -> int:
    """Commit a plan, whatever others add meanwhile; returns the number of the version that says so.

    Who is about to write from what is in memory finds that version first, and reads everything again.
    """
    op, message, by = said
    based = chain.snapshot
    while True:
        newest = chain.tail[-1]
        here, next_ = (version_id(chain._block, newest.number + step) for step in (0, 1))
        record = VersionRecord(
            *(op, newest.node, newest.node, newest.size, 0, 0, chain.document.frontiers, message)
        )
        told = [chain.put(record, next_, b"", 0, by), *(() if permit is None else permit.checks())]
        told += [Check(here, LIVE)] if newest.number > plan.upto else []
        try:
            await chain._universe.commit([*plan.ops, *told], note=message)
        except VersionConflict as conflict:
            if conflict.details.get("id") not in (here, next_):
                raise
            await chain.renew()
            try:
                plan.rest.merge_all(chain._updates)
            except errors.DocumentCorrupt:
                raise conflict from None
            if chain.snapshot is not based:
                raise
        else:
            return newest.number + 1


def _check_there(chain: Chain, wanted: frozenset[int]) -> None:
    if missing := sorted(each for each in wanted if not 1 <= each <= chain.number):
        raise errors.VersionNotFound(
            f"there is no version {missing[0]}", hint=f"the newest is {chain.number}", version=missing[0]
        )


def _check_kept(page: Page, wanted: frozenset[int], begins: bool) -> None:
    """What is compacted may be part of what came after it, and cannot be told from the rest there."""
    lost = [
        each.number
        for each in page.versions
        if each.number in wanted and (begins or each.compacted or each.number in page.kept)
    ]
    if lost:
        raise InputError(
            f"version {lost[0]} was compacted, and what it brought cannot be found any more",
            hint="overwrite what is left of it, and redact or compact the versions before that",
            version=lost[0],
        )


# -- compaction -------------------------------------------------------------------------------------


async def compact(chain: Chain, before: int, keep: frozenset[int], by: str, permit: Permit) -> int:
    """Let go of what versions before one held, but for some that are kept; returns how many that were.

    The document goes on from its state at a version, so whoever has it in memory goes on too.
    """
    return await _alone(chain, permit, lambda: _compacted(chain, before, keep, by, permit))


async def _compacted(chain: Chain, before: int, keep: frozenset[int], by: str, permit: Permit) -> int:
    if chain.folded < before and await chain.fold(chain.number - before) is False:
        await chain.renew()
    pages = [(record, chain._past.read(record)) for record in await chain._past.records()]
    cut = _cut(pages, min(before, chain.folded), chain._updates)
    if cut is None:
        return 0
    number, base, snapshot = cut
    ops, lost = _thinned(chain, pages, number, base, keep)
    if lost:
        ops.append(chain.put_snapshot(chain.folded, snapshot))
        plan = _Plan(ops, chain.folded, snapshot)
        await _carried_out(chain, plan, (COMPACT, f"compact {lost} versions", by), permit)
    return lost


_Read = tuple[Crystal[PageRecord], Page]


def _cut(pages: Sequence[_Read], wanted: int, since: Sequence[bytes]) -> tuple[int, bytes, Document] | None:
    """The newest version up to a wanted one that everything after it can go on from: its state, and the rest.

    An edit that was made beside it needs what was there before: then the history goes on from an older one.
    """
    flat = [pair for _, page in pages for pair in zip(page.versions, page.updates, strict=True)]
    start = next((place for place, (version, _) in enumerate(flat) if not version.compacted), len(flat))
    for place in range(min(wanted - flat[0][0].number, len(flat) - 1) if flat else -1, start, -1):
        base = built((page for _, page in pages), flat[place][0].number).state()
        snapshot = Document.load(base)
        try:
            snapshot.merge_all(each for _, each in flat[place + 1 :])
            snapshot.fork().merge_all(since)
        except errors.DocumentCorrupt:
            continue
        return flat[place][0].number, base, snapshot
    return None


def _thinned(
    chain: Chain, pages: Sequence[_Read], cut: int, base: bytes, keep: frozenset[int]
) -> tuple[list[Op], int]:
    """The ops that leave only lines of the versions before a cut, and how many of them had more until now."""
    ops: list[Op] = []
    lost, fresh_id = 0, ids.new_id()
    for record, page in pages:
        if page.versions[0].number > cut:
            break
        before = [each for each in page.versions if each.number < cut]
        fresh = [each for each in before if not each.compacted and each.number not in keep]
        lost += len(fresh)
        parts = []
        if before:
            states = {each.number: _state(pages, each) for each in before if each.number in keep}
            kept = {number: state for number, state in states.items() if state}
            lines = [each if each.number in kept else _line(each) for each in before]
            parts.append(Page(lines, [b""] * len(lines), b"", kept))
        if len(before) < len(page.versions):
            rest = page.versions[len(before) + 1 :]
            parts.append(Page([page.versions[len(before)]], [b""], base))
            parts += [Page(rest, page.updates[len(before) + 1 :], page.state)] if rest else []
        # One that holds only checkpointed versions loses its updates too: what they build on is gone.
        if any(page.updates) or page.state or fresh or len(before) < len(page.versions):
            ops += [chain.put_page(part, fresh_id) for part in parts[:-1]]
            ops.append(chain.put_page(parts[-1], record=record))
    return ops, lost


def _state(pages: Sequence[_Read], version: Version) -> bytes:
    """The document of a version; empty when it cannot be built any more."""
    if version.compacted:
        return b""
    try:
        return built((page for _, page in pages), version.number).state()
    except errors.DocumentCorrupt:
        return b""


def _line(version: Version) -> Version:
    """A version of which only this is left."""
    return replace(version, frontiers="", lost=version.lost or COMPACTED)


AGAIN = "redacted again in an older copy"


def redacted_in(page: Page) -> Iterator[RedactedVersion]:
    """Find the redacted versions of a page, for a block without a RedactionRecord."""
    for each in page.versions:
        if each.redacted:
            yield RedactedVersion(each.number, each.at)


async def redact_again(universe: Universe, block: str, redacted: Iterable[RedactedVersion]) -> int:
    """Redact in an older copy of a block what was redacted in a newer one; returns how many versions.

    Versions that the copy does not have are recorded only: another copy may have them. Raises Conflict when
    one of them cannot be redacted here.
    """
    wanted = {(each.version, each.at): each for each in redacted}
    done: set[int] = set()
    if await universe.exists(block):
        chain = Chain(universe, block)
        try:
            for clear in (False, True):
                alike = {key for key, each in wanted.items() if each.cleared is clear}
                numbers = [each.number for each in await chain.versions() if _is_left(each, alike, clear)]
                if numbers:
                    await redact(chain, numbers, universe.author, AGAIN, None, clear)
                    done.update(numbers)
            await erase(universe, block)
        except (errors.DocumentCorrupt, InputError) as error:
            message = f"what was redacted in {block!r} cannot be redacted again: {error.message}"
            raise Conflict(message, id=block) from error
    await _record(universe, block, wanted.values())
    return len(done)


def _is_left(version: Version, alike: set[tuple[int, datetime]], clear: bool) -> bool:
    """Whether a version of a copy must be redacted, or its message cleared."""
    if (version.number, version.at) not in alike:
        return False
    return not version.redacted or (clear and bool(version.message))


async def _record(universe: Universe, block: str, redacted: Iterable[RedactedVersion]) -> None:
    chain = Chain(universe, block)
    found = await chain._stored(redaction_id(block))
    known = RedactionRecord(block, "") if found is None else found.value
    joined = join_redacted(known.redacted, redacted)
    if joined != known.redacted:
        record = RedactionRecord(block, known.snapshot, joined)
        rev = 0 if found is None else found.rev or 0
        await universe.commit([chain.put(record, redaction_id(block), b"", rev)])
