"""The table of trails, and what ending one does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dgent.cupboard.crumbs import remove_crumbs
from dgent.cupboard.draft import Draft
from dgent.cupboard.kind import ENDED
from dgent.cupboard.record import TRAIL, TrailRecord
from dgent.cupboard.table import Table
from dgent.cupboard.trail import Trail, check_state
from dgent.model.ref import Ref


class Trails(Table[Trail]):
    """The explorations, newest first."""

    name = "trails"
    noun = "trail"
    alias = "trail_id"
    entity = Trail
    schema = TRAIL
    newest_first = True
    columns: ClassVar[Mapping[str, str]] = {
        "id": "texts",
        "trail_id": "texts",
        "name": "texts",
        "state": "texts",
        "states": "texts",
        "created_at": "time",
        "updated_at": "time",
        "completed_at": "time",
    }

    async def _write(self, draft: Draft, id: str, entity: Trail, old: TrailRecord | None) -> None:
        fields = self._merged(entity, old)
        was = "" if old is None else old.state
        fields["state"] = check_state(fields["state"] or was or "draft")
        fields["properties"] = draft.definitions.stored("trail", fields["properties"])
        if fields["state"] in ENDED and fields["completed_at"] is None:
            fields["completed_at"] = draft.now
        if old is None:
            moment = entity.created_at or draft.now
            made = TrailRecord(**fields, updated_at=max(entity.updated_at or moment, moment))
            draft.put(id, made, created_at=moment)
            return
        trail = replace(old, **fields)
        if trail == old:
            return
        trail = replace(trail, updated_at=draft.now)
        if trail.state != was and trail.state in ENDED:
            trail = await end_trail(draft, id, trail)
        draft.put(id, trail)

    def _fill(self, entity: Trail, record: TrailRecord) -> None:
        super()._fill(entity, record)
        entity.crumbs = tuple(ref.id for ref in record.crumbs)

    async def _remove(self, draft: Draft, id: str) -> None:
        """A trail's crumbs and stashes stay; every link to it goes."""
        for end in ("from_id", "to_id"):
            for link_id in await draft.links(end, id):
                draft.drop(link_id)
        draft.drop(id)

    async def _where(self, wanted: Any) -> dict[str, Any]:
        values = dict(wanted.values)
        chosen = [set(values.pop(column)) for column in ("state", "states") if column in values]
        where = await super()._where(wanted._replace(values=values))
        if chosen:
            where["state"] = {"$in": sorted(set.intersection(*chosen))}
        return where


async def end_trail(draft: Draft, id: str, trail: TrailRecord) -> TrailRecord:
    """Do what ending a trail does to its crumbs: keep them all, or remove them all."""
    members = await draft.links("to_id", id, "belongs_to")
    crumbs = [link.from_id for link in members.values()]
    if trail.state == "completed":
        for link_id in members:
            draft.drop(link_id)
    else:
        draft.freed += await remove_crumbs(draft, crumbs)
        await _remove_stashes(draft, id)
    return replace(trail, crumbs=tuple(Ref(crumb) for crumb in crumbs))


async def _remove_stashes(draft: Draft, id: str) -> None:
    """The stashes of an abandoned trail go with it, locks that are held too: nobody needs them now."""
    for link_id, link in (await draft.links("to_id", id, "scoped_to")).items():
        draft.drop(link_id)
        await draft.load([link.from_id])
        draft.drop(link.from_id)
