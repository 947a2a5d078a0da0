"""Looking whether everything in the cupboard is as its rules say, and putting right what is not.

The tables keep the rules. What they cannot keep is what comes past them: two copies that were merged, an
import of a broken folder, a file that somebody edited.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from sys import intern
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dgent.cupboard import errors
from dgent.cupboard.builtin import schema_id
from dgent.cupboard.change import Draft
from dgent.cupboard.definition import Definitions
from dgent.cupboard.kind import ENDED
from dgent.cupboard.record import (
    LEASE,
    METADATA,
    SCHEMAS,
    CrumbRecord,
    LineRecord,
    LinkRecord,
    MetadataRecord,
    PropertyRecord,
    SchemaRecord,
    StashRecord,
    TrailRecord,
)
from dgent.cupboard.tables.link import ENDS
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.model.schema import Schema

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

Act = Literal["delete", "recount", "default", "look"]

_SCOPES = {CrumbRecord: "crumb", TrailRecord: "trail", StashRecord: "stash"}


@dataclass(frozen=True)
class Finding:
    """Something that is not as the rules say, what it is about, and how to put it right.

    `act` is what `repair` does with `ids`: delete them, work out anew what follows from their links, give
    bad values the default; or nothing, because somebody must look.
    """

    rule: str
    ids: tuple[str, ...]
    text: str
    suggestion: str
    act: Act = "look"


@dataclass(frozen=True)
class Audit:
    """What was found, and where the crumbs stand: on a trail, permanent by a completed one, or orphans."""

    findings: tuple[Finding, ...]
    on_trail: tuple[str, ...] = field(default=(), repr=False)
    permanent: tuple[str, ...] = field(default=(), repr=False)
    orphan: tuple[str, ...] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """Whether everything is as it should be."""
        return not self.findings


class _Waits(NamedTuple):
    """What a crumb says about its readiness, and the place in the queue that its priority gives it."""

    state: str
    open_parents: int
    queue: int | None
    rank: int


class _Tie(NamedTuple):
    """A link, without what it has beside its ends."""

    link_type: str
    from_id: str
    to_id: str


class _Everything:
    """What the rules need to know of all records of the cupboard as of one moment.

    Each record is looked at once and not kept: only ids, states and links are, so that a large cupboard fits.
    """

    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        self.kinds: dict[str, str] = {}  # of crumbs, trails and stashes
        self.crumbs: dict[str, _Waits] = {}
        self.trails: dict[str, str] = {}  # and their states
        self.kept: set[str] = set()  # crumbs of completed trails
        self.links: dict[str, _Tie] = {}
        self.properties: list[tuple[str, str]] = []  # ids and names
        self.stashes: list[tuple[str, str]] = []
        self.schemas: set[str] = set()
        self.odd: dict[str, list[Finding]] = defaultdict(list)  # what one record alone shows, by rule
        self._ids: dict[str, str] = {}

    def add(self, found: Any) -> None:
        """Take note of a record."""
        if not isinstance(found, Crystal):
            text = f"{found.id!r}: {found.problem or 'it cannot be read'}"
            suggestion = "upgrade this program, or undo what wrote it"
            self.odd["readable"].append(Finding("readable", (found.id,), text, suggestion))
            return
        id, record = self._one(found.id), found.value
        if isinstance(record, CrumbRecord):
            rank = self.definitions.rank(record.properties)
            self.crumbs[id] = _Waits(intern(record.state), record.open_parents, record.queue, rank)
        elif isinstance(record, TrailRecord):
            self.trails[id] = intern(record.state)
            self.kept.update(ref.id for ref in record.crumbs if record.state == "completed")
        elif isinstance(record, LinkRecord):
            ends = self._one(record.from_id), self._one(record.to_id)
            self.links[id] = _Tie(intern(record.link_type), *ends)
        elif isinstance(record, PropertyRecord):
            self.properties.append((id, record.name))
        elif isinstance(record, StashRecord):
            self.stashes.append((id, record.name))
        elif isinstance(record, SchemaRecord):
            self.schemas.add(id)
        if type(record) in _SCOPES:
            self.kinds[id] = _SCOPES[type(record)]
        for rule in (_value, _metadata, _line):
            if (finding := rule(self, id, record)) is not None:
                self.odd[finding.rule].append(finding)

    def _one(self, id: str) -> str:
        """The same text for the same id, which is stored once however many links lead to it."""
        return self._ids.setdefault(id, id)

    def waits(self) -> Counter[str]:
        """For how many unfinished crumbs each one waits."""
        return Counter(
            link.from_id
            for link in self.links.values()
            if link.link_type == "child_of"
            and (parent := self.crumbs.get(link.to_id)) is not None
            and parent.state != "pebble"
        )


async def audit(cupboard: Cupboard) -> Audit:
    """Look at everything."""
    universe = await cupboard._ready()
    everything = _Everything(cupboard._definitions)
    seq = await universe.seq()
    # Metadata is judged by what the others say. Signs of life have no past that could be read.
    first = [schema for schema in SCHEMAS if schema.name not in (METADATA.name, LEASE.name)]
    schemas: list[Schema[Any]] = [*first, METADATA]
    for schema in schemas:
        query = Query(schema=schema.name, descending=False, limit=None)
        async for found in universe.iterate(query, as_of=seq):
            everything.add(found)
    findings = [finding for rule in _RULES for finding in rule(everything)]
    return Audit(tuple(findings), *_standing(everything))


def _standing(everything: _Everything) -> tuple[tuple[str, ...], ...]:
    on_trail = {link.from_id for link in everything.links.values() if link.link_type == "belongs_to"}
    groups: tuple[list[str], ...] = ([], [], [])
    for id in everything.crumbs:
        groups[0 if id in on_trail else 1 if id in everything.kept else 2].append(id)
    return tuple(tuple(group) for group in groups)


# -- the rules ----------------------------------------------------------------------------------


def _alone(rule: str) -> Callable[[_Everything], Iterable[Finding]]:
    """A rule that is judged by each record alone, when it is read."""
    return lambda everything: everything.odd[rule]


def _references(everything: _Everything) -> Iterator[Finding]:
    """Links lead from and to something of the right kind."""
    for id, link in everything.links.items():
        ends = ENDS.get(link.link_type)
        if ends is None:
            text = f"the link {id!r} has the unknown type {link.link_type!r}"
            yield Finding("reference", (id,), text, "delete the link", "delete")
            continue
        for end, noun in ((link.from_id, ends.start), (link.to_id, ends.end)):
            if everything.kinds.get(end) != noun:
                text = f"the {link.link_type} link {id!r} leads to {end!r}, which is no {noun}"
                yield Finding("reference", (id,), text, "delete the link", "delete")
                break


def _numbers(everything: _Everything) -> Iterator[Finding]:
    """No link is there twice, and there are no more from one start than the type allows."""
    first: dict[tuple[str, ...], str] = {}
    for id, link in everything.links.items():
        single = link.link_type in ENDS and ENDS[link.link_type].single
        triple = (link.link_type, link.from_id, link.to_id)
        for key in (triple, triple[:2]) if single else (triple,):
            if key in first:
                text = f"cardinality: {link.from_id!r} has {link.link_type} links {first[key]!r} and {id!r}"
                yield Finding("cardinality", (id,), text, "delete the later link", "delete")
                break
            first[key] = id


def _acyclic(everything: _Everything) -> Iterator[Finding]:
    """No crumb waits for itself."""
    above: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for id, link in everything.links.items():
        if link.link_type == "child_of":
            above[link.from_id].append((link.to_id, id))
    done: set[str] = set()
    for start in list(above):
        yield from _cycles_from(start, above, done)


def _cycles_from(start: str, above: dict[str, list[tuple[str, str]]], done: set[str]) -> Iterator[Finding]:
    """Walk up from a crumb without recursion: chains may be long."""
    if start in done:
        return
    way: list[tuple[str, str]] = [(start, "")]  # crumbs, each with the link that led there
    at = {start: 0}
    left = [iter(above[start])]
    while left:
        step = next(left[-1], None)
        if step is None:
            done.add(way[-1][0])
            del at[way.pop()[0]]
            left.pop()
        elif step[0] in at:
            round_ = [*way[at[step[0]] + 1 :], step]
            names = " -> ".join([step[0], *(crumb for crumb, _ in round_)])
            links = tuple(sorted(link for _, link in round_))
            yield Finding(
                "acyclic",
                (links[-1],),
                f"crumbs wait in a circle: {names}",
                "delete the newest link",
                "delete",
            )
        elif step[0] not in done:
            at[step[0]] = len(way)
            way.append(step)
            left.append(iter(above.get(step[0], ())))


def _ended(everything: _Everything) -> Iterator[Finding]:
    """A trail that has ended has no crumbs."""
    for id, link in everything.links.items():
        state = everything.trails.get(link.to_id)
        if link.link_type == "belongs_to" and state in ENDED:
            text = f"the crumb {link.from_id!r} is on the trail {link.to_id!r}, which is {state}"
            yield Finding("ended trail", (id,), text, "take the crumb off the trail", "delete")


def _waiting(everything: _Everything) -> Iterator[Finding]:
    """What is kept about readiness is what follows from states and links."""
    waits = everything.waits()
    for id, crumb in everything.crumbs.items():
        free = crumb.state == "ready" and not waits[id]
        queue = crumb.rank if free else None
        if (crumb.open_parents, crumb.queue) != (waits[id], queue):
            text = f"the crumb {id!r} waits for {waits[id]} others, and says {crumb.open_parents}"
            if crumb.open_parents == waits[id]:
                text = f"the crumb {id!r} stands at {crumb.queue} in the queue instead of {queue}"
            yield Finding("readiness", (id,), text, "work it out anew", "recount")


def _names(everything: _Everything) -> Iterator[Finding]:
    """Names that must be unique are."""
    scopes = {link.from_id: link.to_id for link in everything.links.values() if link.link_type == "scoped_to"}
    first: dict[tuple[str, str], str] = {}
    named = [("property", id, name) for id, name in everything.properties]
    named += [("stash in " + scopes.get(id, "no trail"), id, name) for id, name in everything.stashes]
    for kind, id, name in named:
        if (kind, name) in first:
            text = f"there are two of the name {name!r} ({kind}): {first[kind, name]!r} and {id!r}"
            yield Finding("names", (first[kind, name], id), text, "rename or delete one of them")
        else:
            first[kind, name] = id


def _metadata(everything: _Everything, id: str, entry: Any) -> Finding | None:
    """Metadata belongs to a crumb and is of a registered schema."""
    if not isinstance(entry, MetadataRecord):
        return None
    if entry.crumb_id not in everything.crumbs:
        text = f"the entry {id!r} belongs to {entry.crumb_id!r}, which is no crumb"
        return Finding("metadata", (id,), text, "delete the entry", "delete")
    if schema_id(entry.table_name) not in everything.schemas:
        text = f"the entry {id!r} is of the schema {entry.table_name!r}, which is not registered"
        return Finding("metadata", (id,), text, f"register {entry.table_name!r}")
    return None


def _value(everything: _Everything, id: str, record: Any) -> Finding | None:
    """Stored values are of their property's type."""
    if type(record) not in _SCOPES or not (bad := list(_bad_values(everything.definitions, record))):
        return None
    text = f"{id!r} has bad values: {'; '.join(reason for _, reason in bad[:5])}"
    return Finding("values", (id,), text, "give them the default", "default")


def _bad_values(definitions: Definitions, record: Any) -> Iterator[tuple[str, str]]:
    for property_id, value in record.properties.items():
        defined = definitions.by_id.get(property_id)
        if defined is None or defined.scope != _SCOPES[type(record)]:
            continue  # of a property that was deleted: nobody reads it
        try:
            defined.stored(value)
        except (errors.TypeMismatch, errors.InvalidCategory) as error:
            yield property_id, error.message


def _line(_everything: _Everything, id: str, line: Any) -> Finding | None:
    """A line of a file that no record could hold."""
    if not isinstance(line, LineRecord):
        return None
    text = f"a line of {line.file} could not be taken in: {line.reason}"
    return Finding("lines", (id,), text, "mend it where it came from, and import it again")


_RULES = (
    _alone("readable"),
    _alone("lines"),
    _references,
    _numbers,
    _acyclic,
    _ended,
    _names,
    _alone("metadata"),
    _alone("values"),
    _waiting,
)


# -- putting right ------------------------------------------------------------------------------


async def repair(cupboard: Cupboard, findings: Iterable[Finding]) -> int | None:
    """Do what the findings suggest, in one commit; its number, or None when there was nothing to do."""
    wanted = [finding for finding in findings if finding.act != "look"]
    if not wanted:
        return None

    async def work(draft: Draft) -> None:
        ids = {id: finding.act for finding in wanted for id in finding.ids}
        await draft.load(ids)
        again = {id for id, act in ids.items() if act == "recount"}
        for id, act in ids.items():
            record = draft.record(id)
            if isinstance(record, LinkRecord) and record.link_type == "child_of":
                again.add(record.from_id)
            if act == "delete":
                draft.drop(id)
            elif act == "default" and record is not None:
                bad = {property_id for property_id, _ in _bad_values(draft.definitions, record)}
                kept = {name: value for name, value in record.properties.items() if name not in bad}
                draft.put(id, replace(record, properties=kept))
                again.update([id] if isinstance(record, CrumbRecord) else [])
        await _recount(draft, again)

    _, draft = await cupboard._change(work, f"repair of {len(wanted)} findings")
    return None if draft.tx.committed is None else draft.tx.committed.seq


async def _recount(draft: Draft, wanted: Iterable[str]) -> None:
    """Work out anew for how many others crumbs wait."""
    crumbs = sorted(wanted)
    await draft.load(crumbs)
    await draft.load_links("from_id", crumbs)
    for id in crumbs:
        crumb = await draft.find(CrumbRecord, id)
        if crumb is None:
            continue
        parents = [link.to_id for link in (await draft.links("from_id", id, "child_of")).values()]
        await draft.load(parents)
        found = [await draft.find(CrumbRecord, parent) for parent in parents]
        waits = sum(parent is not None and parent.state != "pebble" for parent in found)
        draft.place(id, replace(crumb, open_parents=waits))
