"""Undo a commit of the cupboard under the current rules.

Links are restored only where both ends exist, names only where they are free, and derived fields are
recomputed. A crumb of which the commit changed only derived fields never conflicts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dgent.cupboard import errors
from dgent.cupboard.builtin import PROPERTIES
from dgent.cupboard.change import Changeset
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
from dgent.cupboard.tables.crumb import remove_crumbs, update_waiting
from dgent.cupboard.tables.link import add_links, remove_link
from dgent.cupboard.tables.property import load_values, remove_category, remove_property
from dgent.cupboard.tables.scope import check_stash_name, find_scope
from dgent.errors import Conflict, UndoConflict, Unreadable
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.store.backend import Committed, Reverted
from dgent.universe.history import find_changed, refusal

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

_FIRST = (PropertyRecord, CategoryRecord, TrailRecord, CrumbRecord, StashRecord)
"""Records that must exist before links and metadata can refer to them."""


class CupboardUndo:
    """The undo handler of the cupboard, which the universe calls for commits of this room."""

    def __init__(self, cupboard: Cupboard) -> None:
        self._cupboard = cupboard

    async def undo(self, seq: int, records: list[Reverted], force: bool, dry_run: bool) -> Committed | None:
        """Revert the records of a commit; raises UndoConflict where later commits rely on them.

        Raises NotLockHolder where somebody below a partner would take a crumb or a lock from its holder.
        """
        await self._cupboard._ready()
        records = await self._own_changes(records)
        if not force and (changed := await find_changed(self._cupboard._universe, records)):
            raise refusal(seq, changed)

        async def work(changeset: Changeset) -> None:
            await _revert(changeset, {record.id: self._before(record) for record in records}, force)

        try:
            _, changeset = await self._cupboard._change(work, f"undo of {seq}", undo_of=seq, dry_run=dry_run)
        except (errors.EntityNotFound, errors.InvalidState) as error:
            raise UndoConflict(f"commit {seq} cannot be undone: {error.message}") from None
        except Conflict as error:
            if isinstance(error, UndoConflict | errors.NotLockHolder) or error.retryable:
                raise
            raise UndoConflict(f"commit {seq} cannot be undone: {error.message}") from None
        return None if dry_run else changeset.tx.committed

    def _before(self, record: Reverted) -> tuple[Any, Datum] | None:
        """Return a record as it was before the commit; None when it did not exist."""
        if record.before is None:
            return None
        found = self._cupboard._universe.contracts.crystal(record.before)
        if not isinstance(found, Crystal):  # of a newer program
            raise Unreadable(f"{record.id!r} cannot be restored: {found.problem}", hint="", id=record.id)
        return found.value, record.before

    async def _own_changes(self, records: list[Reverted]) -> list[Reverted]:
        """Return the records of a commit without those of which it changed only derived fields."""
        found = await self._cupboard._universe.get_many([record.id for record in records], raw=True)
        own = []
        for record, now in zip(records, found, strict=True):
            datum = record.before or now
            if datum is None or datum.schema not in (CATALOG.name, LEASE.name):
                own += [] if await self._is_derived(record, now) else [record]
        return own

    async def _is_derived(self, record: Reverted, now: Datum | None) -> bool:
        """Check whether a commit changed only derived fields of a crumb."""
        if record.before is None or record.before.schema != CRUMB.name:
            return False
        if record.now_rev != record.rev:
            after = await self._after(record)
        else:
            after = None if now is None else self._crumb(now)
        if after is None:
            return False
        before = self._before(record)
        return before is not None and _without_derived(after) == _without_derived(before[0])

    async def _after(self, record: Reverted) -> CrumbRecord | None:
        for version in await self._cupboard._universe.history(record.id):
            if version.rev == record.rev and version.datum is not None:
                return self._crumb(version.datum)
        return None

    def _crumb(self, datum: Datum) -> CrumbRecord | None:
        found = self._cupboard._universe.contracts.lenient(datum)
        return found.value if isinstance(found, Crystal) and isinstance(found.value, CrumbRecord) else None


def _without_derived(crumb: CrumbRecord) -> CrumbRecord:
    """Return a crumb without its derived fields."""
    return replace(crumb, open_parents=0, queue=None, short_id="", former_ids=(), parts=0)


async def _revert(changeset: Changeset, before: dict[str, tuple[Any, Datum] | None], force: bool) -> None:
    await changeset.load(before)
    now = {id: changeset.record(id) for id in before}
    # Links and metadata refer to other records: they are removed first and restored last.
    unscoped = await _remove_dependent(changeset, now)
    for id, found in sorted(now.items(), key=lambda each: not isinstance(each[1], PropertyRecord)):
        if before[id] is None and isinstance(found, _FIRST) and changeset.record(id) is not None:
            await _remove(changeset, id, found, force)
    existed = {id: was for id, was in before.items() if was is not None}
    # Definitions come first: a value is restored only if its property is there.
    existed = dict(sorted(existed.items(), key=lambda each: not isinstance(each[1][0], PropertyRecord)))
    for id, (record, datum) in existed.items():
        if isinstance(record, _FIRST):
            await _restore(changeset, id, record, changeset.record(id), datum)  # its links were removed since
    await _restore_dependent(changeset, existed)
    for id, (record, _) in existed.items():
        if isinstance(record, TrailRecord):
            await _check_ended(changeset, id, now[id], force)
    restored = [id for id, (record, _) in existed.items() if isinstance(record, StashRecord)]
    for id in dict.fromkeys(unscoped + restored):
        if await changeset.find(StashRecord, id) is not None:
            await check_stash_name(changeset, id, await find_scope(changeset, id))


async def _remove_dependent(changeset: Changeset, now: dict[str, Any]) -> list[str]:
    """Delete the links and metadata among some records; return the stashes that lost their scope."""
    unscoped: list[str] = []
    for id, found in now.items():
        if isinstance(found, LinkRecord):
            await remove_link(changeset, id, named=False)
            unscoped += [found.from_id] if found.link_type == "scoped_to" else []
        elif isinstance(found, MetadataRecord):
            changeset.drop(id)
    return unscoped


async def _restore_dependent(changeset: Changeset, existed: dict[str, tuple[Any, Datum]]) -> None:
    """Restore the links, metadata and other records that refer to those restored before."""
    links = []
    for id, (record, datum) in existed.items():
        if isinstance(record, LinkRecord):
            links.append((id, record, datum.created_at))
        elif not isinstance(record, _FIRST):
            if isinstance(record, MetadataRecord):
                await changeset.get(CrumbRecord, record.crumb_id, "crumb")
            changeset.put(id, record, created_at=datum.created_at)
    await add_links(changeset, links)


async def _check_ended(changeset: Changeset, id: str, now: Any, force: bool) -> None:
    """Refuse to end a trail again that has new crumbs since; with `force`, take those off the trail."""
    trail = await changeset.get(TrailRecord, id, "trail")
    if trail.state not in ENDED or (isinstance(now, TrailRecord) and now.state in ENDED):
        return
    members = await changeset.links("to_id", id, "belongs_to")
    if members and not force:
        some = ", ".join(link.from_id for link in list(members.values())[:10])
        raise UndoConflict(f"the trail {id!r} would be {trail.state}, but has new crumbs: {some}", id=id)
    for link_id in members:
        await remove_link(changeset, link_id)


async def _remove(changeset: Changeset, id: str, found: Any, force: bool) -> None:
    """Delete a record that the commit created; refused while others refer to it, unless forced."""
    if isinstance(found, PropertyRecord):
        held = await load_values(changeset, id)
        if held and not force:
            some = ", ".join(held[:10])
            raise UndoConflict(f"the property {found.name!r} has values since: {some}", id=id)
        await remove_property(changeset, id)
        return
    if isinstance(found, CategoryRecord):
        await remove_category(changeset, id)
        return
    hanging = {**await changeset.links("from_id", id), **await changeset.links("to_id", id)}
    if hanging and not force:
        raise UndoConflict(f"{id!r} has new links: {', '.join(list(hanging)[:10])}", id=id)
    if isinstance(found, CrumbRecord):
        await remove_crumbs(changeset, [id])
        return
    for link_id in hanging:
        await remove_link(changeset, link_id)
    changeset.drop(id)


async def _is_defined(changeset: Changeset, id: str) -> bool:
    return id in PROPERTIES or await changeset.find(PropertyRecord, id) is not None


async def _restore(changeset: Changeset, id: str, was: Any, now: Any, datum: Datum) -> None:
    """Restore a record as it was before the commit, without values of properties that are gone since."""
    if isinstance(was, CrumbRecord | TrailRecord | StashRecord):
        kept = {key: value for key, value in was.properties.items() if await _is_defined(changeset, key)}
        was = was if len(kept) == len(was.properties) else replace(was, properties=kept)
    if isinstance(was, CrumbRecord | TrailRecord) and isinstance(now, type(was)):
        was = replace(was, short_id=now.short_id, former_ids=now.former_ids)  # once given, they stay
    if isinstance(was, CrumbRecord):
        waits = now.open_parents if isinstance(now, CrumbRecord) else 0
        # Tokens only grow: the holder of the undone commit must not be mistaken for the next one.
        token = max(was.token, now.token) if isinstance(now, CrumbRecord) else was.token
        parts = max(was.parts, now.parts) if isinstance(now, CrumbRecord) else was.parts
        changeset.put(id, was, created_at=datum.created_at)
        changeset.put_crumb(id, replace(was, open_parents=waits, token=token, parts=parts))
        await update_waiting(
            changeset, id, now.state if isinstance(now, CrumbRecord) else was.state, was.state
        )
        return
    if isinstance(was, StashRecord) and isinstance(now, StashRecord):
        # Versions only grow, even through an undo, so that an expected version never matches by accident.
        was = replace(was, version=now.version + 1, operation="undo", updated_at=changeset.now)
    changeset.put(id, was, created_at=datum.created_at)
    if isinstance(was, PropertyRecord | CategoryRecord):
        changeset.mark_redefined()
    if isinstance(was, PropertyRecord) and await changeset.find_named(
        PROPERTY.name, PropertyRecord, was.name
    ) != [id]:
        raise errors.DuplicateName(f"another property is now named {was.name!r}", id=id)
