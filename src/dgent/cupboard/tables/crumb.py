"""The crumb: one piece of work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar

from dgent import clock
from dgent.cupboard import errors, lease
from dgent.cupboard.change import Changeset
from dgent.cupboard.kind import CRUMB_STATES
from dgent.cupboard.record import CRUMB, LINK, METADATA, CrumbRecord
from dgent.cupboard.tables.entity import Propertied, check_time
from dgent.cupboard.tables.filter import Filter, read_filter, take_page
from dgent.cupboard.tables.table import Table
from dgent.cupboard.waiting import is_blocking
from dgent.model.crystal import Crystal
from dgent.model.query import Query


@dataclass
class Crumb(Propertied):
    """A work item: draft, pending, ready, taken, and in the end pebble (done) or dust (dropped).

    `cupboard.take` sets `holder`, `lease_until` and `token`, which grows with each claim. Without a lease,
    `lease_until` is None: it is held until it is released or finished. An empty state means draft when it is
    new. `open_parents` is how many others it waits for.
    """

    name: str = ""
    state: str = ""
    defer_until: datetime | None = None
    updated_at: datetime | None = field(default=None, kw_only=True)
    holder: str | None = field(default=None, init=False)
    lease_until: datetime | None = field(default=None, init=False)
    token: int = field(default=0, init=False)
    short_id: str = field(default="", init=False)
    open_parents: int = field(default=0, init=False)

    SCOPE: ClassVar[str] = "crumb"
    OWN: ClassVar[tuple[str, ...]] = ("name", "state", "defer_until", "properties", "extra")

    @property
    def handle(self) -> str:
        """The id for people: the short one, or that of its record if it has none."""
        return self.short_id or self.id

    @property
    def crumb_id(self) -> str:
        """The same as `id`."""
        return self.id

    @property
    def _taken_by(self) -> str | None:
        """The agent for which `take` returned it."""
        return None if self._memory is None else self._memory.taken_by

    def set_state(self, state: str) -> None:
        """Change the state in memory; any state may follow any other."""
        self.state = check_state(state)
        self._touch()

    def pebble(self) -> None:
        """Mark it as done in memory; raises InvalidTransition unless it is taken."""
        if self.state != "taken":
            raise errors.InvalidTransition(
                f"this crumb is {self.state or 'new'}, so it cannot become a pebble",
                hint="take it first, or use set_state",
            )
        self.set_state("pebble")

    def dust(self) -> None:
        """Mark it as dropped in memory: it failed, or is no longer wanted."""
        self.set_state("dust")

    def defer(self, until: datetime | None) -> None:
        """Keep it out of the queue until a time; None ends that."""
        self.defer_until = None if until is None else clock.from_us(clock.to_us(until))
        self._touch()

    def _touch(self) -> None:
        self.updated_at = clock.now()


def check_state(state: object) -> str:
    """Return the state of a crumb; raises InvalidState unless it is one of the known states."""
    if not isinstance(state, str) or state not in CRUMB_STATES:
        raise errors.InvalidState(
            f"{state!r} is not a valid state of a crumb", hint=f"use one of {', '.join(CRUMB_STATES)}"
        )
    return state


_BY_LINK = {"trail_id": "belongs_to", "parent_id": "child_of", "whole_id": "part_of"}


class Crumbs(Table[Crumb]):
    """The work items, newest first."""

    name = "crumbs"
    noun = "crumb"
    alias = "crumb_id"
    entity = Crumb
    schema = CRUMB
    newest_first = True
    short_ids = True
    columns: ClassVar[Mapping[str, str]] = {
        "id": "texts",
        "crumb_id": "texts",
        "name": "texts",
        "short_id": "texts",
        "state": "texts",
        "states": "list",
        "trail_id": "text",
        "parent_id": "text",
        "whole_id": "text",
        "properties": "map",
        "owner": "text",
        "holder": "text",
        "created_at": "time",
        "updated_at": "time",
    }

    async def _write(self, changeset: Changeset, id: str, entity: Crumb, old: CrumbRecord | None) -> None:
        fields = self._merge_fields(changeset, id, entity, old)
        if not isinstance(fields["name"], str) or not fields["name"]:
            raise errors.InvalidName("a crumb needs a name", field="name")
        was = "" if old is None else old.state
        if fields["defer_until"] is not None:
            fields["defer_until"] = check_time("defer_until", fields["defer_until"])
        fields["state"] = check_state(fields["state"] or was or "draft")
        fields["properties"] = changeset.definitions.encode_values("crumb", fields["properties"])
        if old is None:
            made_at = entity._creation_time(changeset.now)
            touched = made_at if entity.updated_at is None else check_time("updated_at", entity.updated_at)
            made = CrumbRecord(**fields, updated_at=max(touched, made_at))
            changeset.put(id, made, created_at=made_at)
            changeset.put_crumb(id, made)
            return
        if (
            fields["state"] != was
            and entity.token != old.token
            and self._base(changeset, id, entity) is not None
        ):
            raise errors.NotLockHolder(
                f"{id!r} was taken by {old.holder!r} since it was read; its token is {old.token}", id=id
            )
        crumb = replace(old, **fields, updated_at=max(changeset.now, old.updated_at))
        if fields["state"] != "taken" and was == "taken":
            crumb = replace(crumb, holder=None, lease_until=None)
        changeset.put_crumb(id, crumb)
        await update_waiting(changeset, id, was, crumb.state)

    async def _remove(self, changeset: Changeset, id: str) -> None:
        await remove_crumbs(changeset, [id])

    async def _where(self, wanted: Filter) -> dict[Any, Any]:
        values = dict(wanted.values)
        where: dict[Any, Any] = {}
        states = set(values.pop("states", ())), set(values.pop("state", ()))
        if any(states):
            chosen = states[0] & states[1] if all(states) else states[0] | states[1]
            where["state"] = {"$in": sorted(chosen)}
        if "owner" in values:
            values["properties"] = {"owner": values.pop("owner"), **values.get("properties", {})}
        for gone in ("trail_id", "parent_id", "whole_id"):
            values.pop(gone, None)
        rest = await super()._where(Filter(values, None, 0))
        return {"$and": [where, rest]} if where and rest else where or rest

    async def _select(self, universe: Any, wanted: Filter) -> list[Crystal[Any]]:
        narrowed = await self._by_links(universe, wanted)
        if narrowed is None:
            return await super()._select(universe, wanted)
        test = await self._query(wanted)
        found = [each for each in await load_crumbs(universe, narrowed) if test.matches(each.datum)]
        return take_page(self._sort(found), wanted)

    async def _condition(self, universe: Any, filters: dict[str, Any]) -> Callable[[Crystal[Any]], bool]:
        """Return a function that checks whether a crumb passes a filter."""
        if not filters:
            return lambda _found: True
        wanted = read_filter(None, filters, self.columns)
        narrowed = await self._by_links(universe, wanted)
        query = await self._query(wanted)
        return lambda found: (narrowed is None or found.id in narrowed) and query.matches(found.datum)

    async def _by_links(self, universe: Any, wanted: Filter) -> set[str] | None:
        """Return the ids that the filter names, directly or by a link; None when it names none."""
        named: list[set[str]] = []
        if "id" in wanted.values:
            named.append(set(wanted.values["id"]))
        for column, link_type in _BY_LINK.items():
            if column in wanted.values:
                table = self._cupboard.trails if column == "trail_id" else self
                where = {"to_id": await table._resolve(wanted.values[column])}
                query = Query(schema=LINK.name, tags={link_type}, where=where, limit=None)
                named.append({link.value.from_id for link in await universe.recall(query)})
        return set.intersection(*named) if named else None


def check_claim(id: str, crumb: CrumbRecord, token: int | None, agent: str) -> None:
    """Raise NotLockHolder unless a crumb is held with this token, by this agent, or by nobody."""
    if token is not None and (crumb.token != token or crumb.state != "taken"):
        raise errors.NotLockHolder(
            f"{id!r} is {crumb.state} with token {crumb.token}, not taken with {token}", id=id
        )
    if token is None and crumb.state == "taken" and crumb.holder not in (None, agent):
        raise errors.NotLockHolder(
            f"{id!r} is taken by {crumb.holder!r}, not by {agent!r}",
            hint=f"give the claim's token, or agent={crumb.holder!r}; force=True overrides",
            id=id,
            holder=crumb.holder,
        )


async def load_crumbs(universe: Any, wanted: Iterable[str]) -> list[Crystal[Any]]:
    """Load the crumbs among some ids."""
    found = await universe.get_many(list(wanted))
    return [each for each in found if isinstance(each, Crystal) and each.schema_name == CRUMB.name]


async def update_waiting(changeset: Changeset, id: str, was: str, now: str) -> None:
    """Adjust the crumbs that wait for a crumb after its state has changed."""
    by = (now != "pebble") - (was != "pebble")
    if by:
        children = await changeset.children(id)
        await changeset.load(children)
        await changeset.load_links("to_id", children)
        for child in children:
            await changeset.adjust_waiting(child, by)


async def remove_crumbs(changeset: Changeset, wanted: list[str]) -> list[str]:
    """Delete crumbs with their metadata and links; return the crumbs that no longer wait for them."""
    await changeset.load(wanted)
    await changeset.load_links("from_id", wanted)
    await changeset.load_links("to_id", wanted)
    for entry in await changeset.select(METADATA.name, "crumb_id", wanted):
        changeset.add_loaded(entry)
        changeset.drop(entry.id)
    freed = []
    going = set(wanted)
    await lease.drop_leases(changeset, [id for id in wanted if getattr(changeset.record(id), "token", 0)])
    for id in wanted:
        for link_id, link in changeset.get_loaded_links(id).items():
            waits = link.to_id == id and is_blocking(link.link_type, changeset.record(id))
            changeset.drop(link_id)
            if waits and link.from_id not in going:
                freed.append(link.from_id)
                await changeset.adjust_waiting(link.from_id, -1)
        changeset.drop(id)
    return list(dict.fromkeys(freed))
