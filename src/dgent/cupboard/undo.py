"""Undoing a commit of the cupboard: what it changed is put back under the rules of now.

Links come back only where their ends are, names only where they are free, and what follows from states and
links is worked out anew. So a crumb that in the commit only came to wait for fewer others does not stand in
the way, however it has changed since.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dgent.cupboard import errors
from dgent.cupboard.change import Draft
from dgent.cupboard.kind import ENDED
from dgent.cupboard.record import (
    CATALOG,
    CRUMB,
    LEASE,
    PROPERTY,
    CategoryRecord,
    CrumbRecord,
    LinkRecord,
    MetadataRecord,
    PropertyRecord,
    StashRecord,
    TrailRecord,
)
from dgent.cupboard.tables.crumb import moved, remove_crumbs
from dgent.cupboard.tables.link import add_links, remove_link
from dgent.cupboard.tables.scope import check_stash_name, scope_of
from dgent.errors import Conflict, UndoConflict, Unreadable
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.store.backend import Committed, Reverted
from dgent.universe.history import refusal

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

_FIRST = (PropertyRecord, CategoryRecord, TrailRecord, CrumbRecord, StashRecord)
"""What must be there before links and metadata can be."""


class Undoing:
    """The keeper of the cupboard's rules when commits are undone."""

    def __init__(self, cupboard: Cupboard) -> None:
        self._cupboard = cupboard

    async def prepare(self) -> None:
        """Have the cupboard's schemas known here, if the store has one."""
        await self._cupboard._ready()

    async def undo(self, seq: int, records: list[Reverted], force: bool, dry_run: bool) -> Committed | None:
        """Put back what a commit changed; UndoConflict where somebody built on it since."""
        await self._cupboard._ready()
        records = await self._own_changes(records)
        changed = [record for record in records if record.now_rev != record.rev]
        if changed and not force:
            raise refusal(seq, changed)

        async def work(draft: Draft) -> None:
            await _put_back(draft, {record.id: self._before(record) for record in records}, force)

        try:
            _, draft = await self._cupboard._change(work, f"undo of {seq}", undo_of=seq, dry_run=dry_run)
        except (errors.EntityNotFound, errors.InvalidState) as error:
            raise UndoConflict(f"commit {seq} cannot be undone: {error.message}") from None
        except Conflict as error:
            if isinstance(error, UndoConflict) or error.retryable:
                raise
            raise UndoConflict(f"commit {seq} cannot be undone: {error.message}") from None
        return None if dry_run else draft.tx.committed

    def _before(self, record: Reverted) -> tuple[Any, Datum] | None:
        """A record as it was before the commit; None when it was not there."""
        if record.before is None:
            return None
        found = self._cupboard._universe.contracts.crystal(record.before)
        if not isinstance(found, Crystal):  # of a newer program
            raise Unreadable(f"{record.id!r} cannot be put back: {found.problem}", hint="", id=record.id)
        return found.value, record.before

    async def _own_changes(self, records: list[Reverted]) -> list[Reverted]:
        """The records of a commit without those of which it only changed what follows from others."""
        found = await self._cupboard._universe.get_many([record.id for record in records], raw=True)
        own = []
        for record, now in zip(records, found, strict=True):
            datum = record.before or now
            if datum is None or datum.schema not in (CATALOG.name, LEASE.name):
                own += [] if await self._is_derived(record, now) else [record]
        return own

    async def _is_derived(self, record: Reverted, now: Datum | None) -> bool:
        """Whether a commit only changed a crumb in what follows from other records."""
        if record.before is None or record.before.schema != CRUMB.name:
            return False
        if record.now_rev != record.rev:
            after = await self._after(record)
        else:
            after = None if now is None else self._crumb(now)
        if after is None:
            return False
        before = self._before(record)
        return before is not None and _own(after) == _own(before[0])

    async def _after(self, record: Reverted) -> CrumbRecord | None:
        for version in await self._cupboard._universe.history(record.id):
            if version.rev == record.rev and version.datum is not None:
                return self._crumb(version.datum)
        return None

    def _crumb(self, datum: Datum) -> CrumbRecord | None:
        found = self._cupboard._universe.contracts.lenient(datum)
        return found.value if isinstance(found, Crystal) and isinstance(found.value, CrumbRecord) else None


def _own(crumb: CrumbRecord) -> CrumbRecord:
    """A crumb without what follows from others."""
    return replace(crumb, open_parents=0, queue=None)


async def _put_back(draft: Draft, before: dict[str, tuple[Any, Datum] | None], force: bool) -> None:
    await draft.load(before)
    now = {id: draft.record(id) for id in before}
    # What hangs on others goes first and comes last.
    unscoped: list[str] = []
    for id, found in now.items():
        if isinstance(found, LinkRecord):
            await remove_link(draft, id, named=False)
            unscoped += [found.from_id] if found.link_type == "scoped_to" else []
        elif isinstance(found, MetadataRecord):
            draft.drop(id)
    for id, found in now.items():
        if before[id] is None and isinstance(found, _FIRST):
            await _remove(draft, id, found, force)
    for id, was in before.items():
        if was is not None and isinstance(was[0], _FIRST):
            await _restore(draft, id, was[0], now[id], was[1])
    for id, was in before.items():
        if was is not None and not isinstance(was[0], (*_FIRST, LinkRecord)):
            if isinstance(was[0], MetadataRecord):
                await draft.get(CrumbRecord, was[0].crumb_id, "crumb")
            draft.put(id, was[0], created_at=was[1].created_at)
    links = {id: was for id, was in before.items() if was is not None and isinstance(was[0], LinkRecord)}
    await add_links(draft, [(id, was[0], was[1].created_at) for id, was in links.items()])
    for id, was in before.items():
        if was is not None and isinstance(was[0], TrailRecord):
            await _check_ended(draft, id, now[id], force)
    restored = [id for id, was in before.items() if was is not None and isinstance(was[0], StashRecord)]
    for id in dict.fromkeys(unscoped + restored):
        if await draft.find(StashRecord, id) is not None:
            await check_stash_name(draft, id, await scope_of(draft, id))


async def _check_ended(draft: Draft, id: str, now: Any, force: bool) -> None:
    """Refuse to end a trail again that others put crumbs on since; with force, take those off the trail."""
    trail = await draft.get(TrailRecord, id, "trail")
    if trail.state not in ENDED or (isinstance(now, TrailRecord) and now.state in ENDED):
        return
    members = await draft.links("to_id", id, "belongs_to")
    if members and not force:
        some = ", ".join(link.from_id for link in list(members.values())[:10])
        raise UndoConflict(f"the trail {id!r} would be {trail.state}, and has crumbs since: {some}", id=id)
    for link_id in members:
        await remove_link(draft, link_id)


async def _remove(draft: Draft, id: str, found: Any, force: bool) -> None:
    """Take back that something was made; refused while others hang on it."""
    if isinstance(found, PropertyRecord | CategoryRecord):
        draft.redefine()
        draft.drop(id)
        return
    hanging = {**await draft.links("from_id", id), **await draft.links("to_id", id)}
    if hanging and not force:
        raise UndoConflict(f"{id!r} has links since: {', '.join(list(hanging)[:10])}", id=id)
    if isinstance(found, CrumbRecord):
        await remove_crumbs(draft, [id])
        return
    for link_id in hanging:
        await remove_link(draft, link_id)
    draft.drop(id)


async def _restore(draft: Draft, id: str, was: Any, now: Any, datum: Datum) -> None:
    """Put back what something was."""
    if isinstance(was, CrumbRecord):
        waits = now.open_parents if isinstance(now, CrumbRecord) else 0
        # Tokens only grow: whoever took it in the commit that is undone must not be mistaken for the next.
        token = max(was.token, now.token) if isinstance(now, CrumbRecord) else was.token
        draft.put(id, was, created_at=datum.created_at)
        draft.place(id, replace(was, open_parents=waits, token=token))
        await moved(draft, id, now.state if isinstance(now, CrumbRecord) else was.state, was.state)
        return
    if isinstance(was, StashRecord) and isinstance(now, StashRecord):
        # Versions count on, also through an undo: whoever expects an old one must not be met again.
        was = replace(was, version=now.version + 1, operation="undo", updated_at=draft.now)
    draft.put(id, was, created_at=datum.created_at)
    if isinstance(was, PropertyRecord | CategoryRecord):
        draft.redefine()
    if isinstance(was, PropertyRecord) and await draft.named(PROPERTY.name, PropertyRecord, was.name) != [id]:
        raise errors.DuplicateName(f"there is another property {was.name!r} now", id=id)
