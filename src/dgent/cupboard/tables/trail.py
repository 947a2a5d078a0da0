"""The trail: an exploration that is completed or abandoned as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar

from dgent import clock
from dgent.cupboard import errors, lease
from dgent.cupboard.change import Changeset
from dgent.cupboard.kind import ENDED, TRAIL_STATES
from dgent.cupboard.record import TRAIL, TrailRecord
from dgent.cupboard.tables.crumb import remove_crumbs
from dgent.cupboard.tables.entity import Memory, Propertied, check_time
from dgent.cupboard.tables.scope import check_stash_name
from dgent.cupboard.tables.table import Table
from dgent.model import html
from dgent.model.ref import Ref

FOLLOWS: dict[str, tuple[str, ...]] = {
    "": TRAIL_STATES,
    "draft": ("draft", "pending", "active"),
    "pending": ("pending", "active"),
    "active": ("active", "completed", "abandoned"),
    "completed": (),
    "abandoned": (),
}


@dataclass
class Trail(Propertied):
    """Work that is tried out: draft, pending, active, and in the end completed or abandoned.

    `reason` and `lesson` say why it was abandoned and what was learned; `crumbs` are the ids of the crumbs it
    had when it ended.
    """

    name: str = ""
    goal: str = ""
    state: str = ""
    reason: str | None = field(default=None, kw_only=True)
    lesson: str | None = field(default=None, kw_only=True)
    completed_at: datetime | None = field(default=None, kw_only=True)
    updated_at: datetime | None = field(default=None, kw_only=True)
    crumbs: tuple[str, ...] = field(default=(), init=False, repr=False)
    short_id: str = field(default="", init=False)

    SCOPE: ClassVar[str] = "trail"
    OWN: ClassVar[tuple[str, ...]] = (
        "name",
        "goal",
        "state",
        "reason",
        "lesson",
        "completed_at",
        "properties",
        "extra",
    )

    def _recall(self, memory: Memory) -> None:
        super()._recall(memory)
        self.crumbs = tuple(ref.id for ref in memory.record.crumbs)

    def _repr_html_(self) -> str:
        """Return the trail as a notebook shows it."""
        fields = {name: getattr(self, name) for name in ("id", "goal", "state", "reason", "lesson")}
        return html.draw_fields(f"trail {self.name}", fields | {"crumbs": len(self.crumbs) or None})

    @property
    def handle(self) -> str:
        """The id for people: the short one, or that of its record if it has none."""
        return self.short_id or self.id

    @property
    def trail_id(self) -> str:
        """The same as `id`."""
        return self.id

    @property
    def ended(self) -> bool:
        """True when it was completed or abandoned."""
        return self.state in ENDED

    def set_state(self, state: str) -> None:
        """Change the state in memory; raises InvalidState where it cannot follow the current one."""
        check_state(state)
        follows = FOLLOWS.get(self.state, ())
        if state not in follows:
            allowed = ", ".join(follows) or "nothing"
            raise errors.InvalidState(
                f"a trail that is {self.state} cannot become {state}", hint=f"{allowed} can follow"
            )
        self.state = state
        if state in ENDED and self.completed_at is None:
            self.completed_at = clock.now()

    def complete(self) -> None:
        """Mark it as completed in memory; when it is stored, its crumbs become permanent."""
        self._end("completed")

    def abandon(self, reason: str | None = None, lesson: str | None = None) -> None:
        """Mark it as abandoned in memory; when it is stored, its crumbs are deleted, and the lesson stays."""
        self._end("abandoned")
        self.reason = reason if reason is not None else self.reason
        self.lesson = lesson if lesson is not None else self.lesson

    def _end(self, state: str) -> None:
        if self.state != "active":
            raise errors.InvalidState(
                f"a trail that is {self.state or 'new'} cannot become {state}",
                hint="only an active trail can end",
            )
        self.state, self.completed_at = state, clock.now()


def check_state(state: object) -> str:
    """Return the state of a trail; raises InvalidState unless it is one of the known states."""
    if not isinstance(state, str) or state not in TRAIL_STATES:
        raise errors.InvalidState(
            f"{state!r} is not a valid state of a trail", hint=f"use one of {', '.join(TRAIL_STATES)}"
        )
    return state


class Trails(Table[Trail]):
    """The explorations, newest first."""

    name = "trails"
    noun = "trail"
    alias = "trail_id"
    entity = Trail
    schema = TRAIL
    newest_first = True
    short_ids = True
    columns: ClassVar[Mapping[str, str]] = {
        "id": "texts",
        "trail_id": "texts",
        "name": "texts",
        "short_id": "texts",
        "state": "texts",
        "states": "list",
        "properties": "map",
        "created_at": "time",
        "updated_at": "time",
        "completed_at": "time",
    }

    async def _write(self, changeset: Changeset, id: str, entity: Trail, old: TrailRecord | None) -> None:
        fields = self._merge_fields(changeset, id, entity, old)
        if old is not None and self._base(changeset, id, entity) is None:
            fields["name"] = fields["name"] or old.name
        was = "" if old is None else old.state
        fields["state"] = check_state(fields["state"] or was or "draft")
        fields["properties"] = changeset.definitions.encode_values("trail", fields["properties"])
        ended = fields["completed_at"]
        if fields["state"] in ENDED:
            fields["completed_at"] = changeset.now if ended is None else check_time("completed_at", ended)
        else:
            fields["completed_at"] = None
        if old is None:
            made_at = entity._creation_time(changeset.now)
            touched = made_at if entity.updated_at is None else check_time("updated_at", entity.updated_at)
            made = TrailRecord(**fields, updated_at=max(touched, made_at))
            changeset.put(id, made, created_at=made_at)
            return
        trail = replace(old, **fields, updated_at=max(changeset.now, old.updated_at))
        if trail.state != was and trail.state in ENDED:
            trail = await end_trail(changeset, id, trail)
        changeset.put(id, trail)

    def _fill(self, entity: Trail, record: TrailRecord) -> None:
        super()._fill(entity, record)
        entity.crumbs = tuple(ref.id for ref in record.crumbs)

    async def _remove(self, changeset: Changeset, id: str) -> None:
        """Delete a trail with every link to it; its crumbs and stashes stay.

        Its stashes are then scoped to no trail: refused where another of those has the name.
        """
        stashes = [link.from_id for link in (await changeset.links("to_id", id, "scoped_to")).values()]
        for end in ("from_id", "to_id"):
            for link_id in await changeset.links(end, id):
                changeset.drop(link_id)
        for stash in stashes:
            await check_stash_name(changeset, stash, None)
        changeset.drop(id)

    async def _where(self, wanted: Any) -> dict[str, Any]:
        values = dict(wanted.values)
        chosen = [set(values.pop(column)) for column in ("state", "states") if column in values]
        where = await super()._where(wanted._replace(values=values))
        states = {"state": {"$in": sorted(set.intersection(*chosen))}} if chosen else {}
        return {"$and": [states, where]} if states and where else states or where


async def end_trail(changeset: Changeset, id: str, trail: TrailRecord) -> TrailRecord:
    """Make the crumbs of a completed trail permanent, or delete those of an abandoned one."""
    members = await changeset.links("to_id", id, "belongs_to")
    crumbs = [link.from_id for link in members.values()]
    if trail.state == "completed":
        for link_id in members:
            changeset.drop(link_id)
    else:
        changeset.freed += await remove_crumbs(changeset, crumbs)
        await _remove_stashes(changeset, id)
    # A trail that was reopened by an undo and ends again keeps the crumbs of its first end.
    known = dict.fromkeys([*(ref.id for ref in trail.crumbs), *crumbs])
    return replace(trail, crumbs=tuple(Ref(crumb) for crumb in known))


async def _remove_stashes(changeset: Changeset, id: str) -> None:
    """Delete the stashes of an abandoned trail, even locks that are held."""
    for link_id, link in (await changeset.links("to_id", id, "scoped_to")).items():
        changeset.drop(link_id)
        await changeset.load([link.from_id])
        await lease.drop_leases(changeset, [link.from_id])
        changeset.drop(link.from_id)
