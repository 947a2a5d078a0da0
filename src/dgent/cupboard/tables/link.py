"""The link: how crumbs, trails and stashes hang together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from dgent.cupboard import errors
from dgent.cupboard.change import Draft
from dgent.cupboard.kind import ENDED, LINK_TYPES
from dgent.cupboard.record import LINK, CrumbRecord, LinkRecord, StashRecord, TrailRecord
from dgent.cupboard.tables.entity import Entity
from dgent.cupboard.tables.filter import Filter
from dgent.cupboard.tables.scope import check_stash_name
from dgent.cupboard.tables.table import Table
from dgent.model.query import Query

FEW = 8  # so many links are each looked at from both sides; for more, all that is above them is read once
SHOWN = 20


async def check_acyclic(draft: Draft, links: Collection[LinkRecord]) -> None:
    """Refuse child_of links of a draft that close a circle."""
    for link in links:
        if link.from_id == link.to_id:
            raise _cycle([link.from_id, link.to_id])
    left = await _without_new(draft, links)
    if len(left) > FEW:
        left = await _without_ends(draft, left)
    for link in left:
        await _check(draft, link)


async def _without_new(draft: Draft, links: Iterable[LinkRecord]) -> list[LinkRecord]:
    """The links without those of new crumbs that nobody waits for, nor only such: no circle has them.

    All links of a new crumb are in the draft, so this reads nothing; most often nothing is left.
    """
    starting: dict[str, list[LinkRecord]] = {}
    for link in links:
        starting.setdefault(link.from_id, []).append(link)
    waiting = {id: len(await draft.links("to_id", id, "child_of")) for id in starting if draft.is_new(id)}
    free = [id for id, count in waiting.items() if not count]
    while free:
        for link in starting.pop(free.pop()):
            if link.to_id in waiting:
                waiting[link.to_id] -= 1
                if not waiting[link.to_id]:
                    free.append(link.to_id)
    return [link for some in starting.values() for link in some]


async def _without_ends(draft: Draft, links: Collection[LinkRecord]) -> list[LinkRecord]:
    """The links without those whose way up comes to an end: no circle has them."""
    above: dict[str, list[str]] = {}
    level = list({link.to_id for link in links})
    while level:
        await draft.load_links("from_id", level)
        for id in level:
            above[id] = await _parents(draft, id)
        level = list({parent for id in level for parent in above[id] if parent not in above})
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
    ended = set(done)
    return [link for link in links if link.to_id not in ended]


async def _check(draft: Draft, link: LinkRecord) -> None:
    """Refuse a link whose parent waits for its child.

    From the parent upwards and from the child downwards, always where less was read so far: when either way
    is at its end, they cannot meet. So it costs about twice what the shorter way has.
    """
    child, parent = link.from_id, link.to_id
    up, down = {parent: child}, {child: ""}  # whence each was reached
    highest, lowest = [parent], [child]
    while highest and lowest:
        if len(up) <= len(down):
            highest = await _step(draft, "from_id", highest, up)
            met = [id for id in highest if id in down]
        else:
            lowest = await _step(draft, "to_id", lowest, down)
            met = [id for id in lowest if id in up]
        if met:
            raise _cycle(_way(met[0], up, down, link))


async def _step(draft: Draft, end: str, level: list[str], reached: dict[str, str]) -> list[str]:
    """What is one link further, and was not reached before."""
    await draft.load_links(end, level)
    further = []
    for id in level:
        links = (await draft.links(end, id, "child_of")).values()
        for other in (link.to_id if end == "from_id" else link.from_id for link in links):
            if other not in reached:
                reached[other] = id
                further.append(other)
    return further


async def _parents(draft: Draft, id: str) -> list[str]:
    return [link.to_id for link in (await draft.links("from_id", id, "child_of")).values()]


def _way(met: str, up: dict[str, str], down: dict[str, str], link: LinkRecord) -> list[str]:
    """The way round: from the child to its parent, up to where the two ways met, and to the child again."""
    first = [met]
    while first[-1] != link.to_id:
        first.append(up[first[-1]])
    way = [link.from_id, *reversed(first)]
    while way[-1] != link.from_id:
        way.append(down[way[-1]])
    return way


def _cycle(way: list[str]) -> errors.Cycle:
    shown = way if len(way) <= SHOWN else [*way[: SHOWN - 2], "…", way[-1]]
    return errors.Cycle(f"a crumb would wait for itself: {' -> '.join(shown)}")


@dataclass
class Link(Entity):
    """An edge: a crumb `belongs_to` a trail and is `child_of` crumbs, a trail `branches_from` a crumb, a
    stash is `scoped_to` a trail."""

    link_type: str = ""
    from_id: str = ""
    to_id: str = ""

    OWN: ClassVar[tuple[str, ...]] = ("link_type", "from_id", "to_id", "extra")

    @property
    def link_id(self) -> str:
        """Its id."""
        return self.id


class Ends(NamedTuple):
    """What a type of link joins, and whether its start may have only one."""

    start: str
    end: str
    single: bool


ENDS = {
    "belongs_to": Ends("crumb", "trail", True),
    "child_of": Ends("crumb", "crumb", False),
    "branches_from": Ends("trail", "crumb", True),
    "scoped_to": Ends("stash", "trail", True),
}


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

    async def _write(self, draft: Draft, id: str, entity: Link, old: LinkRecord | None) -> None:
        link = LinkRecord(**self._merged(draft, id, entity, old))
        if old is not None:
            if link == old:
                return
            await remove_link(draft, id, named=False)
        await add_link(draft, id, link, created_at=entity._moment(draft.now))
        if old is not None and old.link_type == "scoped_to" and old.from_id != link.from_id:
            await check_stash_name(draft, old.from_id, None)

    async def _remove(self, draft: Draft, id: str) -> None:
        await remove_link(draft, id)

    async def _query(self, wanted: Filter) -> Query:
        values = dict(wanted.values)
        types = values.pop("link_type", None)
        query = await super()._query(Filter(values, None, 0))
        return query if types is None else query.replace(any_tags=frozenset(types))


async def add_link(draft: Draft, id: str, link: LinkRecord, *, created_at: datetime | None = None) -> None:
    """Put a link into a draft if the rules of the graph allow it."""
    await add_links(draft, [(id, link, created_at)])


async def add_links(draft: Draft, links: Iterable[tuple[str, LinkRecord, datetime | None]]) -> None:
    """Put links into a draft, with their ids and when they were made, if the rules of the graph allow it."""
    wanted = list(links)
    for _, link, _ in wanted:
        check_shape(link)
    await draft.load(id for _, link, _ in wanted for id in (link.from_id, link.to_id))
    await draft.load_links("from_id", [link.from_id for _, link, _ in wanted])
    for id, link, created_at in wanted:
        await _check_ends(draft, link)
        await _check_number(draft, link)
        if link.link_type == "scoped_to":
            await check_stash_name(draft, link.from_id, link.to_id)
        draft.put(id, link, created_at=created_at)
        if link.link_type == "child_of":
            parent = await draft.get(CrumbRecord, link.to_id, "crumb")
            await draft.shift(link.from_id, int(parent.state != "pebble"))
    await check_acyclic(draft, [link for _, link, _ in wanted if link.link_type == "child_of"])


async def remove_link(draft: Draft, id: str, *, named: bool = True) -> None:
    """Take a link out of a draft; whoever waited by it waits no longer.

    A stash that loses its scope must have a name among those of no trail, unless the caller sees to that.
    """
    link = draft.record(id)
    draft.drop(id)
    if link.link_type == "child_of":
        parent = await draft.find(CrumbRecord, link.to_id)
        await draft.shift(link.from_id, -int(parent is not None and parent.state != "pebble"))
    elif named and link.link_type == "scoped_to" and await draft.find(StashRecord, link.from_id) is not None:
        await check_stash_name(draft, link.from_id, None)


def check_shape(link: LinkRecord) -> None:
    """Refuse a link of an unknown type, or without an end."""
    if link.link_type not in LINK_TYPES:
        raise errors.InvalidData(
            f"{link.link_type!r} is no type of link",
            hint=f"use one of {', '.join(LINK_TYPES)}",
            field="link_type",
        )
    for end in ("from_id", "to_id"):
        if not isinstance(getattr(link, end), str) or not getattr(link, end):
            raise errors.InvalidData(f"a {link.link_type} link needs a {end}", field=end)


async def _check_ends(draft: Draft, link: LinkRecord) -> None:
    """Both ends must be there, and of the kinds that this type joins."""
    ends = ENDS[link.link_type]
    for id, noun in ((link.from_id, ends.start), (link.to_id, ends.end)):
        await draft.get(_RECORDS[noun], id, noun)
    if link.link_type == "belongs_to":
        trail = await draft.get(TrailRecord, link.to_id, "trail")
        if trail.state in ENDED:
            raise errors.InvalidState(
                f"the trail {link.to_id!r} is {trail.state}, and takes no more crumbs", id=link.to_id
            )


async def _check_number(draft: Draft, link: LinkRecord) -> None:
    """The same link is there only once, and some types allow only one from one start."""
    for id, other in (await draft.links("from_id", link.from_id, link.link_type)).items():
        if other.to_id == link.to_id:
            raise errors.DuplicateLink(
                f"{link.from_id!r} {link.link_type} {link.to_id!r} is there already, as {id!r}", id=id
            )
        if ENDS[link.link_type].single:
            kind = errors.AlreadyInTrail if link.link_type == "belongs_to" else errors.Cardinality
            raise kind(
                f"cardinality: {link.from_id!r} {link.link_type} {other.to_id!r} already (link {id!r}), "
                f"so not {link.to_id!r}",
                id=id,
            )
