"""Verbs for links, the edges between crumbs, trails and stashes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

from dgent.cupboard import Cupboard, Link
from dgent.cupboard.kind import LINK_RULES, LinkType
from dgent.errors import Conflict, InputError, NotFound
from dgent.model.crystal import Crystal
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.cupboard.answer import LinkInfo, Removed, link_of
from dgent.verbs.registry import Ask, Items, argument, option, verb


class AddLink(Ask):
    """Input of `link.add`."""

    type: Annotated[LinkType, argument("child_of, part_of, related_to, belongs_to …")]
    from_id: Annotated[str, argument("a crumb, trail or stash: the child, the member", complete="crumb")]
    to_id: Annotated[str, argument("a crumb or trail: the parent, the trail", complete="crumb")]


@verb("link.add", effect="write", errors=(InputError, NotFound, Conflict))
async def add(context: Context, ask: AddLink) -> LinkInfo:
    """Link two things: `child_of CHILD PARENT`, `belongs_to CRUMB TRAIL`."""
    cupboard = await input.cupboard_of(context)
    ends = LINK_RULES[ask.type]
    made = Link(
        ask.type,
        await input.id_of(cupboard, input.TABLES[ends.start], ask.from_id),
        await input.id_of(cupboard, input.TABLES[ends.end], ask.to_id),
    )
    await cupboard.links.set(None, made)
    return (await _links_of(cupboard, [made]))[0]


class ListLinks(Ask):
    """Input of `link.list`."""

    type: Annotated[LinkType | None, option("only links of this type", short="t")] = None
    from_id: Annotated[str | None, option("that start here", short="f", complete="crumb")] = None
    to_id: Annotated[str | None, option("that end here", complete="crumb")] = None
    limit: input.Limit = 100


@verb("link.list", effect="read", errors=(InputError, NotFound))
async def list_(context: Context, ask: ListLinks) -> Items[LinkInfo]:
    """List links, oldest first."""
    cupboard = await input.cupboard_of(context)
    if ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    filters: dict[str, Any] = {"limit": ask.limit}
    if ask.type is not None:
        filters["link_type"] = ask.type
    for end in ("from_id", "to_id"):
        given = getattr(ask, end)
        if given is not None:
            filters[end] = await _anything(cupboard, given)
    return Items(await _links_of(cupboard, await cupboard.links.fetch(filters)))


async def _links_of(cupboard: Cupboard, links: Sequence[Link]) -> list[LinkInfo]:
    """Return links with the names of their ends."""
    ids = list({end for link in links for end in (link.from_id, link.to_id)})
    found = await cupboard.universe.get_many(ids) if ids else []
    names = {each.id: str(getattr(each.value, "name", "")) for each in found if isinstance(each, Crystal)}
    return [link_of(each, names) for each in links]


async def _anything(cupboard: Cupboard, given: str) -> str:
    """Return the id of a crumb, a trail or a stash."""
    for table in input.TABLES.values():
        with suppress(NotFound):
            return await input.id_of(cupboard, table, given)
    raise NotFound(f"there is no crumb, trail or stash {given!r}", id=given)


@verb("link.remove", effect="write", errors=(NotFound, Conflict))
async def remove(context: Context, ask: AddLink) -> Removed:
    """Remove the link between two things: `child_of CHILD PARENT`; the child no longer waits."""
    cupboard = await input.cupboard_of(context)
    rule = LINK_RULES[ask.type]
    start = await input.id_of(cupboard, input.TABLES[rule.start], ask.from_id)
    end = await input.id_of(cupboard, input.TABLES[rule.end], ask.to_id)
    ends = [(start, end), (end, start)] if rule.mutual else [(start, end)]
    for from_id, to_id in ends:
        for found in await cupboard.links.fetch(link_type=ask.type, from_id=from_id, to_id=to_id):
            await cupboard.links.delete(found.id)
            return Removed("links", found.id, f"{ask.from_id} {ask.type} {ask.to_id}")
    raise NotFound(
        f"{ask.from_id!r} is not {ask.type} {ask.to_id!r}", hint="`dgent link list` shows all links"
    )


class OneLink(Ask):
    """Input of a verb that takes one link."""

    id: Annotated[str, argument("the link's id, or the beginning of it")]


@verb("link.delete", effect="write", errors=(NotFound, Conflict))
async def delete(context: Context, ask: OneLink) -> Removed:
    """Remove a link; a crumb that waited because of it no longer waits."""
    cupboard = await input.cupboard_of(context)
    link: Link = await input.find_entity(cupboard, "links", ask.id)
    await cupboard.links.delete(link.id)
    return Removed("links", link.id, f"{link.from_id} {link.link_type} {link.to_id}")
