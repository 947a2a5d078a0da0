"""The link: an edge between crumbs, trails and stashes, and the rules of the graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from dgent.cupboard import errors
from dgent.cupboard.change import Changeset
from dgent.cupboard.kind import ENDED, LINK_RULES, LINK_TYPES, WAITING
from dgent.cupboard.record import LINK, CrumbRecord, LinkRecord, StashRecord, TrailRecord
from dgent.cupboard.short_id import can_be_short_id, resolve_id
from dgent.cupboard.tables.entity import Entity
from dgent.cupboard.tables.filter import Filter
from dgent.cupboard.tables.scope import check_stash_name
from dgent.cupboard.tables.table import Table
from dgent.cupboard.waiting import is_blocking
from dgent.model.query import Query

FEW = 8  # up to so many links are checked one by one; for more, everything above them is read once
SHOWN = 20


async def check_acyclic(changeset: Changeset, links: Collection[LinkRecord]) -> None:
    """Refuse links of a changeset by which a crumb would wait for itself; raises Cycle."""
    for link in links:
        if link.from_id == link.to_id:
            raise _make_cycle_error([link.from_id, link.to_id])
    left = await _without_new(changeset, links)
    if len(left) > FEW:
        left = await _without_ends(changeset, left)
    for link in left:
        await _check_link(changeset, link)


async def _without_new(changeset: Changeset, links: Iterable[LinkRecord]) -> list[LinkRecord]:
    """Return the links without those of new crumbs that no cycle can contain.

    These are crumbs that nothing waits for, or only such crumbs. All links of a new crumb are in the
    changeset, so this reads nothing; most often nothing is left.
    """
    starting: dict[str, list[LinkRecord]] = {}
    for link in links:
        starting.setdefault(link.from_id, []).append(link)
    waiting = {
        id: len(await changeset.links("to_id", id, *WAITING)) for id in starting if changeset.is_new(id)
    }
    free = [id for id, count in waiting.items() if not count]
    while free:
        for link in starting.pop(free.pop()):
            if link.to_id in waiting:
                waiting[link.to_id] -= 1
                if not waiting[link.to_id]:
                    free.append(link.to_id)
    return [link for some in starting.values() for link in some]


async def _without_ends(changeset: Changeset, links: Collection[LinkRecord]) -> list[LinkRecord]:
    """Return the links without those whose parents lead to no cycle."""
    ended = _find_ended(await _load_above(changeset, {link.to_id for link in links}))
    return [link for link in links if link.to_id not in ended]


async def _load_above(changeset: Changeset, ids: Collection[str]) -> dict[str, list[str]]:
    """Load the parents of crumbs, and of these, up to the last; level by level, each in one read."""
    above: dict[str, list[str]] = {}
    level = list(ids)
    while level:
        await changeset.load_links("from_id", level)
        for id in level:
            above[id] = await _load_parents(changeset, id)
        level = list({parent for id in level for parent in above[id] if parent not in above})
    return above


def _find_ended(above: dict[str, list[str]]) -> set[str]:
    """Return the crumbs from which every way up ends."""
    below: dict[str, list[str]] = {}
    for id, parents in above.items():
        for parent in parents:
            below.setdefault(parent, []).append(id)
    left = {id: len(parents) for id, parents in above.items()}
    done = [id for id, count in left.items() if not count]
    for id in done:
        for child in below.get(id, ()):
            left[child] -= 1
            if not left[child]:
                done.append(child)
    return set(done)


async def _check_link(changeset: Changeset, link: LinkRecord) -> None:
    """Refuse a link whose parent waits for its child; raises Cycle.

    Searches from the parent upwards and from the child downwards, always where less was read so far. When
    either search ends, they cannot meet, so the cost is about twice that of the smaller one.
    """
    child, parent = link.from_id, link.to_id
    up, down = {parent: child}, {child: ""}  # the node that each was reached from
    highest, lowest = [parent], [child]
    while highest and lowest:
        if len(up) <= len(down):
            highest = await _expand_level(changeset, "from_id", highest, up)
            met = [id for id in highest if id in down]
        else:
            lowest = await _expand_level(changeset, "to_id", lowest, down)
            met = [id for id in lowest if id in up]
        if met:
            raise _make_cycle_error(_trace_cycle(met[0], up, down, link))


async def _expand_level(
    changeset: Changeset, end: str, level: list[str], reached: dict[str, str]
) -> list[str]:
    """Return the nodes one link further that were not reached before, and add them to `reached`."""
    await changeset.load_links(end, level)
    further = []
    for id in level:
        links = (await changeset.links(end, id, *WAITING)).values()
        for other in (link.to_id if end == "from_id" else link.from_id for link in links):
            if other not in reached:
                reached[other] = id
                further.append(other)
    return further


async def _load_parents(changeset: Changeset, id: str) -> list[str]:
    return [link.to_id for link in (await changeset.links("from_id", id, *WAITING)).values()]


def _trace_cycle(met: str, up: dict[str, str], down: dict[str, str], link: LinkRecord) -> list[str]:
    """Return the cycle: from the child to its parent, up to where the searches met, back to the child."""
    first = [met]
    while first[-1] != link.to_id:
        first.append(up[first[-1]])
    way = [link.from_id, *reversed(first)]
    while way[-1] != link.from_id:
        way.append(down[way[-1]])
    return way


def _make_cycle_error(way: list[str]) -> errors.Cycle:
    shown = way if len(way) <= SHOWN else [*way[: SHOWN - 2], "…", way[-1]]
    return errors.Cycle(
        f"a crumb would wait for itself: {' -> '.join(shown)}",
        hint="parts wait while their epic waits, so an epic cannot wait for its own parts",
    )


@dataclass
class Link(Entity):
    """An edge: a crumb `belongs_to` a trail, is `child_of` the crumbs it waits for and `part_of` an epic, a
    trail `branches_from` a crumb, a stash is `scoped_to` a trail. `LINK_RULES` has all types."""

    link_type: str = ""
    from_id: str = ""
    to_id: str = ""

    OWN: ClassVar[tuple[str, ...]] = ("link_type", "from_id", "to_id", "extra")

    @property
    def link_id(self) -> str:
        """The same as `id`."""
        return self.id


_RECORDS: dict[str, type[Any]] = {"crumb": CrumbRecord, "trail": TrailRecord, "stash": StashRecord}


class Links(Table[Link]):
    """The edges of the graph, oldest first."""

    name = "links"
    noun = "link"
    alias = "link_id"
    entity = Link
    schema = LINK
    columns: ClassVar[Mapping[str, str]] = {
        "id": "texts",
        "link_id": "texts",
        "link_type": "texts",
        "from_id": "text",
        "to_id": "text",
        "created_at": "time",
    }

    async def _write(self, changeset: Changeset, id: str, entity: Link, old: LinkRecord | None) -> None:
        link = LinkRecord(**self._merge_fields(changeset, id, entity, old))
        if old is not None:
            if link == old:
                return
            await remove_link(changeset, id, named=False)
        await add_link(changeset, id, link, created_at=entity._creation_time(changeset.now))
        if old is not None and old.link_type == "scoped_to" and old.from_id != link.from_id:
            await check_stash_name(changeset, old.from_id, None)

    async def _remove(self, changeset: Changeset, id: str) -> None:
        await remove_link(changeset, id)

    async def _query(self, wanted: Filter) -> Query:
        values = dict(wanted.values)
        types = values.pop("link_type", None)
        query = await super()._query(Filter(values, None, 0))
        return query if types is None else query.replace(any_tags=frozenset(types))


async def add_link(
    changeset: Changeset, id: str, link: LinkRecord, *, created_at: datetime | None = None
) -> None:
    """Add a link to a changeset if the rules of the graph allow it."""
    await add_links(changeset, [(id, link, created_at)])


async def add_links(changeset: Changeset, links: Iterable[tuple[str, LinkRecord, datetime | None]]) -> None:
    """Add links, given with ids and creation times, to a changeset if the rules of the graph allow it."""
    wanted = []
    for id, link, created_at in links:
        check_shape(link)
        wanted.append((id, await _resolve_ends(changeset, link), created_at))
    await changeset.load(id for _, link, _ in wanted for id in (link.from_id, link.to_id))
    await changeset.load_links("from_id", [link.from_id for _, link, _ in wanted])
    for id, link, created_at in wanted:
        await _check_ends(changeset, link)
        await _check_number(changeset, link)
        if link.link_type == "scoped_to":
            await check_stash_name(changeset, link.from_id, link.to_id)
        changeset.put(id, link, created_at=created_at)
        if link.link_type in WAITING:
            end = await changeset.get(CrumbRecord, link.to_id, "crumb")
            await changeset.adjust_waiting(link.from_id, int(is_blocking(link.link_type, end)))
    await check_acyclic(changeset, [link for _, link, _ in wanted if link.link_type in WAITING])


async def _resolve_ends(changeset: Changeset, link: LinkRecord) -> LinkRecord:
    """Return a link with the ids of its ends, which may be given by their short ids."""
    rule = LINK_RULES[link.link_type]
    ends: dict[str, Any] = {}
    for end, noun in (("from_id", rule.start), ("to_id", rule.end)):
        given = getattr(link, end)
        if noun != "stash" and can_be_short_id(given) and await changeset.find(_RECORDS[noun], given) is None:
            ends[end] = await resolve_id(changeset.tx, f"cupboard.{noun}", given)
    return replace(link, **ends) if ends else link


async def remove_link(changeset: Changeset, id: str, *, named: bool = True) -> None:
    """Delete a link in a changeset; its child no longer waits for its parent.

    A stash that loses its scope must have a unique name among those of no trail; with `named=False` the
    caller checks that.
    """
    link = changeset.record(id)
    changeset.drop(id)
    if link.link_type in WAITING:
        end = await changeset.find(CrumbRecord, link.to_id)
        await changeset.adjust_waiting(link.from_id, -int(is_blocking(link.link_type, end)))
    elif (
        named
        and link.link_type == "scoped_to"
        and await changeset.find(StashRecord, link.from_id) is not None
    ):
        await check_stash_name(changeset, link.from_id, None)


def check_shape(link: LinkRecord) -> None:
    """Refuse a link of an unknown type, or without one of its ends; raises InvalidData."""
    if link.link_type not in LINK_TYPES:
        raise errors.InvalidData(
            f"{link.link_type!r} is not a valid type of link",
            hint=f"use one of {', '.join(LINK_TYPES)}",
            field="link_type",
        )
    for end in ("from_id", "to_id"):
        if not isinstance(getattr(link, end), str) or not getattr(link, end):
            raise errors.InvalidData(f"a {link.link_type} link needs a {end}", field=end)


async def _check_ends(changeset: Changeset, link: LinkRecord) -> None:
    """Check that both ends exist and are of the kinds that this type joins."""
    ends = LINK_RULES[link.link_type]
    for id, noun in ((link.from_id, ends.start), (link.to_id, ends.end)):
        await changeset.get(_RECORDS[noun], id, noun)
    if link.from_id == link.to_id and not ends.waits:  # the others are a Cycle
        raise errors.InvalidData(f"{link.from_id!r} cannot be {link.link_type} itself", field="to_id")
    if link.link_type == "belongs_to":
        trail = await changeset.get(TrailRecord, link.to_id, "trail")
        if trail.state in ENDED:
            raise errors.InvalidState(
                f"the trail {link.to_id!r} is {trail.state}, so no crumb can be added to it", id=link.to_id
            )


async def _check_number(changeset: Changeset, link: LinkRecord) -> None:
    """Check that the link does not exist yet, and that its type allows one more from its start."""
    rule = LINK_RULES[link.link_type]
    if rule.mutual:
        for id, other in (await changeset.links("from_id", link.to_id, link.link_type)).items():
            if other.to_id == link.from_id:
                raise _make_duplicate_error(id, other)
    for id, other in (await changeset.links("from_id", link.from_id, link.link_type)).items():
        if other.to_id == link.to_id:
            raise _make_duplicate_error(id, other)
        if rule.single:
            kind = errors.AlreadyInTrail if link.link_type == "belongs_to" else errors.Cardinality
            raise kind(
                f"cardinality: {link.from_id!r} {link.link_type} {other.to_id!r} already (link {id!r}), "
                f"so not {link.to_id!r}",
                id=id,
            )


def _make_duplicate_error(id: str, link: LinkRecord) -> errors.DuplicateLink:
    return errors.DuplicateLink(
        f"{link.from_id!r} {link.link_type} {link.to_id!r} already exists, as {id!r}", id=id
    )
