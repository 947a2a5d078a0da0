"""Verbs for crumbs, the work items: make them, look at them, change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from dgent import cupboard as room
from dgent.cupboard.look import search_crumbs
from dgent.errors import Conflict, InputError, NotFound
from dgent.verbs import parse
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.cupboard.answer import (
    Added,
    Crumb,
    CrumbVersion,
    MetadataEntry,
    Neighbour,
    Removed,
    WholeCrumb,
    crumb_fields,
    crumb_of,
    entry_of,
    neighbour_of,
)
from dgent.verbs.cupboard.plan import VALUES, Links, Relations, find_links, links_of, read_plans
from dgent.verbs.registry import Ask, AsOf, Items, argument, option, verb

if TYPE_CHECKING:
    from dgent.cupboard import Crumb as CrumbEntity
    from dgent.cupboard import Cupboard, Link, Trail

DeferUntil = Annotated[str | None, option("keep it out of the ready work: a time, or 2h for in two hours")]


class CrumbValues(Relations, kw_only=True):
    """The values that new and changed crumbs take."""

    type: input.Type = None
    priority: input.Priority = None
    description: Annotated[str | None, option("more about it", short="d")] = None
    owner: input.Owner = None
    label: input.Label = ()
    property: input.Property = ()
    defer_until: DeferUntil = None


class NewCrumb(CrumbValues, kw_only=True):
    """The values of new crumbs, and where they go."""

    trail: Annotated[str | None, option("put it on this trail", complete="trail")] = None


async def _values_of(cupboard: Cupboard, ask: CrumbValues) -> dict[str, Any]:
    """Return the properties that the options give a crumb."""
    return input.values_of(
        await cupboard.definitions(),
        "crumb",
        ask.property,
        type=ask.type,
        priority=ask.priority,
        description=ask.description,
        owner=ask.owner,
        labels=ask.label,
    )


class AddCrumb(NewCrumb):
    """Input of `crumb.add`."""

    name: Annotated[str, argument("what is to be done", words=True)]
    state: Annotated[str, option("draft, pending, ready, …; open means ready", short="s")] = "draft"
    parent: Annotated[tuple[str, ...], option("it waits for this crumb, as needs", complete="crumb")] = ()


@verb("crumb.add", effect="append", errors=(InputError, NotFound, Conflict), makes=True)
async def add(context: Context, ask: AddCrumb) -> Crumb:
    """Make a crumb, a work item."""
    cupboard = await input.cupboard_of(context)
    values = await _values_of(cupboard, ask)
    later = None if ask.defer_until is None else parse.ahead(ask.defer_until, "defer_until")
    links = await links_of(cupboard, ask, 0)
    links += await find_links(cupboard, {"needs": input.split_list(ask.parent)}, 0, {})
    [made] = await cupboard.add_many(
        [room.Crumb(ask.name, input.state_of(ask.state), later, properties=values)],
        dict.fromkeys(links),
        trail=None if ask.trail is None else await input.id_of(cupboard, "trails", ask.trail),
    )
    return crumb_of(made)


class NewCrumbs(NewCrumb):
    """Input of `crumb.new`; the options count for each of several crumbs."""

    text: Annotated[str, argument("what is to be done; - reads lines, a Markdown list or JSON", words=True)]
    draft: Annotated[bool, option("only a draft, which cannot be taken yet")] = False


@verb("crumb.new", effect="append", errors=(InputError, NotFound, Conflict), makes=True)
async def new(context: Context, ask: NewCrumbs) -> Added:
    """Add work that is ready to be taken: a crumb, or several in one commit."""
    cupboard = await input.cupboard_of(context)
    values = await _values_of(cupboard, ask)
    later = None if ask.defer_until is None else parse.ahead(ask.defer_until, "defer_until")
    plans = read_plans(ask.text)
    keys = {str(plan.fields["key"]): place for place, plan in enumerate(plans) if "key" in plan.fields}
    crumbs: list[room.Crumb] = []
    links: Links = []
    for place, plan in enumerate(plans):
        own = {name: plan.fields[name] for name in VALUES if plan.fields.get(name) is not None}
        if isinstance(own.get("labels"), str):
            own["labels"] = input.split_list([own["labels"]])
        own |= plan.fields.get("properties") or {}
        state = str(plan.fields.get("state") or ("draft" if ask.draft else "ready"))
        crumbs.append(room.Crumb(plan.name, input.state_of(state), later, properties=values | own))
        if plan.above is not None:
            links.append(("part_of", place, plan.above))
        else:
            links += await links_of(cupboard, ask, place)
        links += await find_links(cupboard, plan.fields, place, keys)
    trail = None if ask.trail is None else await input.id_of(cupboard, "trails", ask.trail)
    made = await cupboard.add_many(crumbs, dict.fromkeys(links), trail=trail)
    return Added([crumb_of(each) for each in made])


class OneCrumb(Ask):
    """Input of a verb that takes one crumb."""

    id: Annotated[str, argument(input.CrumbId, complete="crumb")]


class OnePastCrumb(OneCrumb):
    """Input of `crumb.get`."""

    as_of: AsOf = None


@verb("crumb.get", effect="read", errors=(NotFound,))
async def get(context: Context, ask: OnePastCrumb) -> WholeCrumb:
    """Show a crumb with its comments and links."""
    cupboard = await input.cupboard_of(context, ask.as_of)
    crumb: CrumbEntity = await input.find_entity(cupboard, "crumbs", ask.id)
    judged = await cupboard.explain(crumb)
    trails = await _ends(cupboard, "belongs_to", "trails", from_id=crumb.id)
    origin = await cupboard.origin(crumb)
    return WholeCrumb(
        **crumb_fields(crumb) | {"lease_until": judged.lease_until or crumb.lease_until},
        ready=judged.ready,
        reasons=list(judged.reasons),
        waits_for=list(judged.waits_for),
        trail=trails[0] if trails else None,
        origin=None if origin is None else neighbour_of(origin),
        **await _relatives(cupboard, crumb.id),
        metadata=await entries_of(cupboard, crumb_id=crumb.id),
    )


async def _relatives(cupboard: Cupboard, id: str) -> dict[str, Any]:
    """Return the crumbs at the other ends of a crumb's links, by the fields of the answer."""
    found = {}
    for (link_type, end), field in RELATIVES.items():
        found[field] = await _ends(cupboard, link_type, "crumbs", **{end: id})
    found["related"] += await _ends(cupboard, "related_to", "crumbs", to_id=id)
    return found


RELATIVES = {
    ("child_of", "from_id"): "parents",
    ("child_of", "to_id"): "children",
    ("part_of", "from_id"): "part_of",
    ("part_of", "to_id"): "parts",
    ("related_to", "from_id"): "related",
    ("discovered_from", "from_id"): "discovered_from",
    ("discovered_from", "to_id"): "led_to",
    ("duplicate_of", "from_id"): "duplicate_of",
    ("duplicate_of", "to_id"): "duplicates",
    ("supersedes", "from_id"): "supersedes",
    ("supersedes", "to_id"): "superseded_by",
}


async def _ends(cupboard: Cupboard, link_type: str, table: str, **at: Any) -> list[Neighbour]:
    """Return the entities at the other end of the links of an entity."""
    links: list[Link] = await cupboard.links.fetch({"link_type": link_type, **at})
    ids = [link.to_id if "from_id" in at else link.from_id for link in links]
    found: list[CrumbEntity | Trail] = await cupboard.table(table).fetch(id=ids) if ids else []
    return [neighbour_of(each) for each in reversed(found)]


async def entries_of(cupboard: Cupboard, **filters: Any) -> list[MetadataEntry]:
    """Return metadata entries with the names of their properties and the short ids of their crumbs."""
    known = (await cupboard.definitions()).by_id
    found = await cupboard.metadata.fetch(filters)
    crumbs = list(dict.fromkeys(each.crumb_id for each in found))
    stored = await cupboard.universe.get_many(crumbs, raw=True)
    short = {each.id: str(each.data.get("short_id") or "") for each in stored if each is not None}
    return [
        entry_of(
            each,
            known[each.property_id].name if each.property_id in known else each.property_id,
            short.get(each.crumb_id, ""),
        )
        for each in found
    ]


class FindCrumbs(Ask):
    """Filters of `crumb.list`, `crumb.ready`, `crumb.take` and `crumb.board`."""

    trail: Annotated[str | None, option("on this trail", complete="trail")] = None
    type: input.Type = None
    priority: input.Priority = None
    owner: Annotated[str | None, option("of this owner")] = None
    label: Annotated[tuple[str, ...], option("with these labels: a,b", short="l")] = ()
    property: Annotated[tuple[str, ...], option("with this name=value", short="P")] = ()


async def filters_of(cupboard: Cupboard, ask: FindCrumbs) -> dict[str, Any]:
    """Build the filter of these options."""
    filters: dict[str, Any] = {}
    if not (ask.trail or ask.type or ask.priority or ask.owner or ask.label or ask.property):
        return filters
    definitions = await cupboard.definitions()
    if ask.trail is not None:
        filters["trail_id"] = await input.id_of(cupboard, "trails", ask.trail)
    values = input.values_of(
        definitions,
        "crumb",
        ask.property,
        type=ask.type,
        priority=ask.priority,
        owner=ask.owner,
        labels=ask.label,
    )
    if values:
        filters["properties"] = input.filters_of(values)
    return filters


class ListCrumbs(FindCrumbs):
    """Input of `crumb.list`."""

    as_of: AsOf = None
    words: Annotated[str, argument("words of its name, description, labels or comments", words=True)] = ""
    state: Annotated[tuple[str, ...], option("in this state; also open, in_progress, closed", short="s")] = ()
    name: Annotated[str | None, option("of this name")] = None
    parent: Annotated[str | None, option("that wait for this crumb", complete="crumb")] = None
    part_of: Annotated[str | None, option("parts of this epic", complete="crumb")] = None
    since: Annotated[str | None, option("changed since then: a time, or 2w for two weeks ago")] = None
    holder: Annotated[str | None, option("taken by this agent")] = None
    limit: input.Limit = 100
    offset: Annotated[int, option("leave out so many first")] = 0


@verb("crumb.list", effect="read", errors=(InputError, NotFound))
async def list_(context: Context, ask: ListCrumbs) -> Items[Crumb]:
    """List crumbs, newest first; with words, the best first."""
    cupboard = await input.cupboard_of(context, ask.as_of)
    filters = await filters_of(cupboard, ask)
    if ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    if ask.state:
        filters["states"] = input.states_of(input.split_list(ask.state))
    if ask.parent is not None:
        filters["parent_id"] = await input.id_of(cupboard, "crumbs", ask.parent)
    if ask.part_of is not None:
        filters["whole_id"] = await input.id_of(cupboard, "crumbs", ask.part_of)
    filters |= {
        name: value for name, value in (("name", ask.name), ("holder", ask.holder)) if value is not None
    }
    if ask.words or ask.since is not None:
        since = None if ask.since is None else parse.moment(ask.since, "since")
        found = await search_crumbs(cupboard, ask.words, filters, since, ask.limit, ask.offset)
    else:
        found = await cupboard.crumbs.fetch(filters, limit=ask.limit, offset=ask.offset)
    return Items([crumb_of(each) for each in found])


class SetCrumb(CrumbValues, kw_only=True):
    """Input of `crumb.set`."""

    id: Annotated[str, argument(input.CrumbId, complete="crumb")]
    name: Annotated[str | None, option("another name")] = None
    state: Annotated[str | None, option("another state; open means ready", short="s")] = None
    label: Annotated[tuple[str, ...], option("all its labels, instead of those it has", short="l")] = ()
    add_label: Annotated[tuple[str, ...], option("more labels: a,b")] = ()
    remove_label: Annotated[tuple[str, ...], option("labels that it no longer has: a,b")] = ()
    clear: Annotated[tuple[str, ...], option("a property that gets its default again")] = ()
    defer_until: Annotated[
        str | None, option("keep it out of the ready work: a time, 2h for in two hours, or never")
    ] = None
    expect: Annotated[int | None, option("the rev it must have now")] = None
    force: input.Force = False


@verb("crumb.set", effect="write", errors=(InputError, NotFound, Conflict))
async def set_(context: Context, ask: SetCrumb) -> Crumb:
    """Change a crumb: its name, state, properties."""
    cupboard = await input.cupboard_of(context)
    crumb: CrumbEntity = await input.find_entity(cupboard, "crumbs", ask.id)
    values = await _values_of(cupboard, ask)
    if ask == SetCrumb(id=ask.id, expect=ask.expect, force=ask.force):
        raise InputError("there is nothing to change", hint="give --name, --state, --property …")
    links = [room.Link(*map(str, link)) for link in await links_of(cupboard, ask, crumb.id)]
    crumb.name = crumb.name if ask.name is None else ask.name
    if ask.state is not None:
        with input.holder_hint(context, "crumb", "set", ask.id, "--state", ask.state):
            input.check_holder(context, cupboard, crumb, input.state_of(ask.state), ask.force)
        crumb.set_state(input.state_of(ask.state))
    for name in ask.clear:
        crumb.clear_property(name)
    for name, value in values.items():
        crumb.set_property(name, value)
    if ask.defer_until is not None:
        never = ask.defer_until == "never"
        crumb.defer(None if never else parse.ahead(ask.defer_until, "defer_until"))
    if ask.add_label or ask.remove_label:
        labels = input.split_list([*crumb.get_property("labels"), *ask.add_label])
        gone = input.split_list(ask.remove_label)
        crumb.set_property("labels", [label for label in labels if label not in gone])
    return crumb_of(await cupboard.update(crumb, links=links, expected_version=ask.expect))


class State(Ask):
    """Input of `crumb.state`."""

    id: Annotated[str, argument(input.CrumbId, complete="crumb")]
    state: Annotated[
        str, argument("draft, pending, ready, taken, pebble, dust, or open, in_progress, closed")
    ]
    force: input.Force = False


@verb("crumb.state", effect="write", errors=(InputError, NotFound, Conflict))
async def state(context: Context, ask: State) -> Crumb:
    """Put a crumb into another state; any may follow any other."""
    cupboard = await input.cupboard_of(context)
    crumb: CrumbEntity = await input.find_entity(cupboard, "crumbs", ask.id)
    with input.holder_hint(context, "crumb", "state", ask.id, ask.state):
        input.check_holder(context, cupboard, crumb, input.state_of(ask.state), ask.force)
    crumb.set_state(input.state_of(ask.state))
    await cupboard.crumbs.set(crumb.id, crumb)
    return crumb_of(crumb)


@verb("crumb.delete", effect="write", errors=(NotFound, Conflict))
async def delete(context: Context, ask: OneCrumb) -> Removed:
    """Remove a crumb with its comments and links; its history stays, and undo brings it back."""
    cupboard = await input.cupboard_of(context)
    crumb: CrumbEntity = await input.find_entity(cupboard, "crumbs", ask.id)
    await cupboard.crumbs.delete(crumb.id)
    return Removed("crumbs", crumb.id, crumb.name)


class CrumbHistory(OnePastCrumb):
    """Input of `crumb.history`."""

    limit: Annotated[int | None, option("at most so many", short="n")] = None


@verb("crumb.history", effect="read", errors=(NotFound,))
async def history(context: Context, ask: CrumbHistory) -> Items[CrumbVersion]:
    """List the versions of a crumb, newest first; also of one that was removed."""
    cupboard = await input.cupboard_of(context, ask.as_of)
    versions = await cupboard.crumbs.versions(ask.id)
    if not versions:
        versions = await cupboard.crumbs.versions(await input.id_of(cupboard, "crumbs", ask.id))
    items = [
        CrumbVersion(
            each.rev,
            each.seq,
            each.at,
            each.author,
            each.note,
            None if each.entity is None else crumb_of(each.entity),
        )
        for each in reversed(versions)
    ]
    return Items(items[: ask.limit])
