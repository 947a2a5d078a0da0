"""Rewrite a block's history: redact what some versions brought, and compact old versions.

Both replace packs and the snapshot in one commit. What is redacted is erased afterwards with the records it
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
from dgent.blocks.access.permission import PermissionCheck
from dgent.blocks.document.document import Document
from dgent.blocks.document.redact import Redaction, select_traceable
from dgent.blocks.history.log import VersionLog
from dgent.blocks.history.pack import Pack, build_document
from dgent.blocks.history.version import COMPACT, COMPACTED, REDACT, REDACTED, Version
from dgent.blocks.record import (
    ErasureRecord,
    PackRecord,
    RedactedVersion,
    RedactionRecord,
    VersionRecord,
    erasure_id,
    redaction_id,
    text_id,
    version_id,
)
from dgent.errors import Conflict, InputError, VersionConflict
from dgent.model.crystal import Crystal
from dgent.store.backend import LIVE, Check, Delete, Op
from dgent.universe.universe import Universe


async def list_to_erase(log: VersionLog) -> tuple[list[str], int]:
    """Return the ids that are still to be erased from before, and the rev of the record that lists them."""
    found = await log._universe.get(erasure_id(log._block))
    return (list(found.value.ids), found.rev or 0) if isinstance(found, Crystal) else ([], 0)


async def erase(universe: Universe, block: str) -> bool:
    """Erase the records listed for a block; True when the bytes are gone from the disk."""
    found = await universe.get(erasure_id(block))
    if not isinstance(found, Crystal):
        return True
    gone = await universe.forget(*found.value.ids, only_deleted=True)
    if await universe.exists(text_id(block)):
        # A search has made it again meanwhile, in the place of the one that held what is redacted.
        gone = await universe.forget(text_id(block))
    if gone.erased:
        with suppress(VersionConflict):  # another redaction listed more, and erases that itself
            await universe.delete(found.id, expect=found.rev)
    return gone.erased


def record_redaction(log: VersionLog, versions: Iterable[Version], cleared: bool, fresh: str) -> Op:
    """Build the op that records which versions were redacted, and where the snapshot is now."""
    made = (RedactedVersion(each.number, each.at, cleared) for each in versions)
    known = log.redaction
    before = () if known is None else known.value.redacted
    record = RedactionRecord(log._block, fresh, join_redacted(before, made))
    rev = 0 if known is None else known.rev or 0
    return log.put(record, redaction_id(log._block), b"", rev)


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
PAUSE_S = 0.005  # the longest pause before the second attempt; doubled for each later one
LONGEST_S = 0.2
T = TypeVar("T")


@dataclass
class _Redactor:
    """Rewrites packs without what is redacted, and collects what was found on the way."""

    wanted: frozenset[int]
    clear: bool = False
    whole: Document = field(default_factory=Document)
    clean: Document = field(default_factory=Document)
    said: list[str] = field(default_factory=list)
    spans: list[tuple[int, int, int, int]] = field(default_factory=list)  # peer, from, to, version
    redacted: list[Version] = field(default_factory=list)
    begun: bool = False  # whether anything was merged into the documents

    def take(self, pack: Pack) -> Pack:
        """Return a pack without what is redacted, after merging all of it into the documents."""
        begins = self.begins(pack)
        if begins:
            self.whole, self.clean = Document.load(pack.state), Document.load(pack.state)
        versions, updates = [], []
        for version, update in zip(pack.versions, pack.updates, strict=True):
            versions.append(self._mark(version))
            updates.append(self._blank(version, update) if update else update)
        self.begun = self.begun or begins or any(pack.updates)
        state = self.clean.state() if pack.state and not begins else pack.state
        return Pack(versions, updates, state, pack.kept)

    def begins(self, pack: Pack) -> bool:
        """Check whether the kept history begins with a pack: nothing is kept of what led to its state.

        A pack of versions that only record a rewrite has no updates either, but comes later.
        """
        return bool(pack.state) and not any(pack.updates) and not self.begun

    def _mark(self, version: Version) -> Version:
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
            self.clean.mark_saved()
            return update
        made, said = self.clean.merge_redacted(update, self.whole)
        self.said += said
        return made

    def find_elsewhere(self) -> tuple[int, ...]:
        """Return the versions that are not redacted and brought some of the same text."""
        traces = select_traceable(self.said)
        found = set()
        for peer, counter, text in self.clean.iterate_texts() if traces else ():
            if any(trace in text for trace in traces):
                found |= {n for p, start, end, n in self.spans if p == peer and start <= counter < end}
        return tuple(sorted(found - self.wanted))


@dataclass(frozen=True)
class _RewritePlan:
    """The ops of a rewrite, up to a version; the versions after it stay as they are.

    `rest` must be able to merge what others add meanwhile.
    """

    ops: list[Op]
    upto: int
    rest: Document


async def redact(
    log: VersionLog,
    numbers: Collection[int],
    by: str,
    message: str,
    permission: PermissionCheck | None,
    clear: bool = False,
) -> Redaction:
    """Remove what some versions brought from all versions, and erase the records it was in.

    With `clear` the messages of these versions are removed too. Without a permission check nobody is asked:
    for a restore.
    """

    async def work() -> Redaction:
        _check_exist(log, numbers)
        wanted = frozenset(numbers)
        rewritten = _Redactor(wanted, clear)
        plan = await _plan_redaction(log, rewritten)
        number = await _carry_out(log, plan, (REDACT, message, by), permission)
        messages = tuple(each.number for each in rewritten.redacted if each.message)
        return Redaction(number, tuple(sorted(wanted)), rewritten.find_elsewhere(), False, messages)

    done = await _run_locked(log, permission, work)
    return replace(done, erased=await erase(log._universe, log._block))


async def _plan_redaction(log: VersionLog, rewritten: _Redactor) -> _RewritePlan:
    wanted, block, fresh = rewritten.wanted, log._block, ids.new_id()
    ops: list[Op] = []
    old, rev = await list_to_erase(log)
    for record in await log._packs.records():
        if record.value.last > log.last_packed:
            # Another writer packed them after the log was read: these versions are in both.
            raise VersionConflict("the block was packed meanwhile", id=record.id)
        pack = log._packs.read(record)
        _check_not_compacted(pack, wanted, rewritten.begins(pack))
        made = rewritten.take(pack)
        if record.value.last >= min(wanted) and (pack.state or made.versions != pack.versions):
            ops += [Delete(record.id, record.rev), log.put_pack(made, fresh)]
            old.append(record.id)
    count = _count_to_pack(log, {*old, *(version_id(block, each) for each in wanted)})
    upto = log.last_packed + count
    if count:
        made = rewritten.take(Pack(log.tail[:count], log._updates[:count]))
        ops.append(log.put_pack(made, fresh))
        ops += [Delete(version_id(block, each.number), LIVE) for each in log.tail[:count]]
    if log.snapshot is not None:
        ops.append(Delete(log.snapshot.id, log.snapshot.rev))
        old.append(log.snapshot.id)
    old += [*(version_id(block, each) for each in sorted(wanted)), text_id(block)]
    ops += [
        Delete(text_id(block)),
        log.put_snapshot(upto, rewritten.clean, fresh),
        record_redaction(log, rewritten.redacted, rewritten.clear, fresh),
        log.put(ErasureRecord(block, tuple(dict.fromkeys(old))), erasure_id(block), b"", rev),
    ]
    # Later versions are not part of the plan, and may contain the same text again.
    rewritten.take(Pack(log.tail[count:], log._updates[count:]))
    return _RewritePlan(ops, upto, rewritten.clean)


def _count_to_pack(log: VersionLog, to_erase: Collection[str]) -> int:
    """Count the versions to pack: up to the last whose record must be erased, and is deleted with that."""
    numbers = (each.number for each in log.tail if version_id(log._block, each.number) in to_erase)
    return max(numbers, default=log.last_packed) - log.last_packed


async def _run_locked(
    log: VersionLog, permission: PermissionCheck | None, work: Callable[[], Awaitable[T]]
) -> T:
    """Run a rewrite with the log locked and up to date; retry when another writer was faster."""
    for attempt in range(ATTEMPTS):
        async with log.lock:
            await log.refresh_locked()
            try:
                return await work()
            except VersionConflict as conflict:
                if permission is not None and permission.is_cause_of(conflict):
                    await permission.renew()
            finally:
                log.forget()
        await asyncio.sleep(random.uniform(0, min(PAUSE_S * 2**attempt, LONGEST_S)))
    raise errors.RewriteConflict("others kept changing the block while it was rewritten", id=log._block)


async def _carry_out(
    log: VersionLog, plan: _RewritePlan, said: tuple[str, str, str], permission: PermissionCheck | None
) -> int:
    """Commit a plan even if others add versions meanwhile; returns the number of its own version.

    A writer with an older state in memory finds that version first, and reads everything again.
    """
    op, message, by = said
    based = log.snapshot
    while True:
        newest = log.tail[-1]
        here, next_ = (version_id(log._block, newest.number + step) for step in (0, 1))
        record = VersionRecord(
            *(op, newest.node, newest.node, newest.size, 0, 0, log.document.frontiers, message)
        )
        ops = [log.put(record, next_, b"", 0, by), *(() if permission is None else permission.checks())]
        ops += [Check(here, LIVE)] if newest.number > plan.upto else []
        try:
            await log._universe.commit([*plan.ops, *ops], note=message)
        except VersionConflict as conflict:
            if conflict.details.get("id") not in (here, next_):
                raise
            await log.refresh_locked()
            try:
                plan.rest.merge_all(log._updates)
            except errors.DocumentCorrupt:
                raise conflict from None
            if log.snapshot is not based:
                raise
        else:
            return newest.number + 1


def _check_exist(log: VersionLog, numbers: Iterable[int]) -> None:
    """Raise VersionNotFound at the first that is missing: a caller may have asked for any number of them."""
    for each in numbers:
        if not 1 <= each <= log.number:
            raise errors.VersionNotFound(
                f"version {each} does not exist", hint=f"the newest is {log.number}", version=each
            )


def _check_not_compacted(pack: Pack, wanted: frozenset[int], begins: bool) -> None:
    """Raise InputError for a compacted version: its part of later states cannot be told apart."""
    lost = [
        each.number
        for each in pack.versions
        if each.number in wanted and (begins or each.compacted or each.number in pack.kept)
    ]
    if lost:
        raise InputError(
            f"version {lost[0]} was compacted, and what it brought cannot be found any more",
            hint="overwrite what is left of it, and redact or compact the versions before that",
            version=lost[0],
        )


# -- compaction -------------------------------------------------------------------------------------


async def compact(
    log: VersionLog, before: int, keep: frozenset[int], by: str, permission: PermissionCheck
) -> int:
    """Delete the content of the versions before one, except those to keep; returns how many.

    The document goes on from its state at a version, so documents in memory stay valid.
    """
    return await _run_locked(log, permission, lambda: _compact(log, before, keep, by, permission))


async def _compact(
    log: VersionLog, before: int, keep: frozenset[int], by: str, permission: PermissionCheck
) -> int:
    if log.last_packed < before and await log.pack_versions(log.number - before) is False:
        await log.refresh_locked()
    packs = [(record, log._packs.read(record)) for record in await log._packs.records()]
    cut = _find_cut(packs, min(before, log.last_packed), log._updates)
    if cut is None:
        return 0
    number, base, snapshot = cut
    ops, lost = _thin_packs(log, packs, number, base, keep)
    if lost:
        ops.append(log.put_snapshot(log.last_packed, snapshot))
        plan = _RewritePlan(ops, log.last_packed, snapshot)
        await _carry_out(log, plan, (COMPACT, f"compact {lost} versions", by), permission)
    return lost


_StoredPack = tuple[Crystal[PackRecord], Pack]


def _find_cut(
    packs: Sequence[_StoredPack], wanted: int, since: Sequence[bytes]
) -> tuple[int, bytes, Document] | None:
    """Find the newest version, up to a wanted one, that everything after it can build on.

    Returns its number, its state, and the document from there. A concurrent edit needs what was there before:
    then an older version is chosen.
    """
    flat = [pair for _, pack in packs for pair in zip(pack.versions, pack.updates, strict=True)]
    # Nothing can build on a version of which only the line, or the line and its state are left.
    kept = {number for _, pack in packs for number in pack.kept}
    gone = [version.compacted or version.number in kept for version, _ in flat]
    start = len(gone) - gone[::-1].index(True) if any(gone) else 0
    for place in range(min(wanted - flat[0][0].number, len(flat) - 1) if flat else -1, start, -1):
        base = build_document((pack for _, pack in packs), flat[place][0].number).state()
        snapshot = Document.load(base)
        try:
            snapshot.merge_all(each for _, each in flat[place + 1 :])
            snapshot.fork().merge_all(since)
        except errors.DocumentCorrupt:
            continue
        return flat[place][0].number, base, snapshot
    return None


def _thin_packs(
    log: VersionLog, packs: Sequence[_StoredPack], cut: int, base: bytes, keep: frozenset[int]
) -> tuple[list[Op], int]:
    """Return the ops that keep only the records of versions before a cut, and how many lost content."""
    ops: list[Op] = []
    lost, fresh_id = 0, ids.new_id()
    for record, pack in packs:
        if pack.versions[0].number > cut:
            break
        before = [each for each in pack.versions if each.number < cut]
        fresh = [each for each in before if not each.compacted and each.number not in keep]
        lost += len(fresh)
        parts = [_strip_pack(packs, before, keep)] if before else []
        parts += _split_pack(pack, len(before), base)
        # A pack of only checkpointed versions loses its updates too: what they build on is gone.
        has_content = pack.state or any(pack.updates)
        if has_content or fresh or len(before) < len(pack.versions):
            ops += [log.put_pack(part, fresh_id) for part in parts[:-1]]
            ops.append(log.put_pack(parts[-1], record=record))
    return ops, lost


def _split_pack(pack: Pack, at: int, base: bytes) -> list[Pack]:
    """Split a pack at a version whose state is `base`: that version, and those after it."""
    if at >= len(pack.versions):
        return []
    rest = pack.versions[at + 1 :]
    first = Pack([pack.versions[at]], [b""], base)
    return [first, Pack(rest, pack.updates[at + 1 :], pack.state)] if rest else [first]


def _strip_pack(packs: Sequence[_StoredPack], versions: Sequence[Version], keep: frozenset[int]) -> Pack:
    """Return a pack of versions without their updates, with the states of those to keep."""
    states = {each.number: _build_state(packs, each) for each in versions if each.number in keep}
    kept = {number: state for number, state in states.items() if state}
    lines = [each if each.number in kept else _strip_version(each) for each in versions]
    return Pack(lines, [b""] * len(lines), b"", kept)


def _build_state(packs: Sequence[_StoredPack], version: Version) -> bytes:
    """Return the state of a version; empty when it cannot be built any more."""
    if version.compacted:
        return b""
    try:
        return build_document((pack for _, pack in packs), version.number).state()
    except errors.DocumentCorrupt:
        return b""


def _strip_version(version: Version) -> Version:
    """Return a version without its content."""
    return replace(version, frontiers="", lost=version.lost or COMPACTED)


AGAIN = "redacted again in an older copy"


def list_redacted(pack: Pack) -> Iterator[RedactedVersion]:
    """Yield the redacted versions of a pack, for a block without a RedactionRecord."""
    for each in pack.versions:
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
        log = VersionLog(universe, block)
        try:
            for clear in (False, True):
                alike = {key for key, each in wanted.items() if each.cleared is clear}
                numbers = [each.number for each in await log.versions() if _is_left(each, alike, clear)]
                if numbers:
                    await redact(log, numbers, universe.author, AGAIN, None, clear)
                    done.update(numbers)
            await erase(universe, block)
        except (errors.DocumentCorrupt, InputError) as error:
            message = f"what was redacted in {block!r} cannot be redacted again: {error.message}"
            raise Conflict(message, id=block) from error
    await _record_redacted(universe, block, wanted.values())
    return len(done)


def _is_left(version: Version, alike: set[tuple[int, datetime]], clear: bool) -> bool:
    """Check whether a version of a copy must still be redacted, or its message cleared."""
    if (version.number, version.at) not in alike:
        return False
    return not version.redacted or (clear and bool(version.message))


async def _record_redacted(universe: Universe, block: str, redacted: Iterable[RedactedVersion]) -> None:
    log = VersionLog(universe, block)
    found = await log._read_record(redaction_id(block))
    known = RedactionRecord(block, "") if found is None else found.value
    joined = join_redacted(known.redacted, redacted)
    if joined != known.redacted:
        record = RedactionRecord(block, known.snapshot, joined)
        rev = 0 if found is None else found.rev or 0
        await universe.commit([log.put(record, redaction_id(block), b"", rev)])
