"""The table of links, and the rules of the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar

from dgent.cupboard import errors
from dgent.cupboard.cycle import check_acyclic
from dgent.cupboard.draft import Draft
from dgent.cupboard.filter import Filter
from dgent.cupboard.kind import ENDED, LINK_TYPES
from dgent.cupboard.link import ENDS, Link
from dgent.cupboard.record import LINK, CrumbRecord, LinkRecord, StashRecord, TrailRecord
from dgent.cupboard.scoping import check_stash_name
from dgent.cupboard.table import Table
from dgent.model.query import Query

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
