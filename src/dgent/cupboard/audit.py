"""Audit the cupboard: find records that break its rules, and repair them.

The tables enforce the rules. Records can still break them when they come past the tables: by a merge of two
copies, an import of a broken folder, or an edited file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from sys import intern
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dgent.cupboard import batch, errors
from dgent.cupboard.builtin import schema_id
from dgent.cupboard.change import Changeset
from dgent.cupboard.definition import Definitions
from dgent.cupboard.kind import ENDED, LINK_RULES, WAITING
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
from dgent.cupboard.waiting import count_waiting
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.model.schema import Schema

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

Act = Literal["delete", "recount", "default", "rename", "look"]

_SCOPES = {CrumbRecord: "crumb", TrailRecord: "trail", StashRecord: "stash"}


@dataclass(frozen=True)
class Finding:
    """A broken rule, the records that break it, and how to repair them.

    `act` is what `repair` does with `ids`: `delete` them, `recount` their derived fields, give bad values the
    `default`, or `rename` them, which gives them new short ids; with `look` it does nothing, because a person
    must decide.
    """

    rule: str
    ids: tuple[str, ...]
    text: str
    suggestion: str
    act: Act = "look"


@dataclass(frozen=True)
class Audit:
    """The findings, and the crumbs by membership: on a trail, permanent by a completed one, or orphans."""

    findings: tuple[Finding, ...]
    on_trail: tuple[str, ...] = field(default=(), repr=False)
    permanent: tuple[str, ...] = field(default=(), repr=False)
    orphan: tuple[str, ...] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """True when no rule is broken."""
        return not self.findings


class _CrumbSummary(NamedTuple):
    """The stored readiness of a crumb, and the rank that its priority gives it."""

    state: str
    open_parents: int
    queue: int | None
    rank: int


class _LinkSummary(NamedTuple):
    """A link without its extra fields."""

    link_type: str
    from_id: str
    to_id: str


class _AuditData:
    """The data of all records that the rules need, as of one moment.

    Each record is read once; only ids, states and links stay in memory, so that a large cupboard fits.
    """

    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        self.kinds: dict[str, str] = {}  # of crumbs, trails and stashes
        self.crumbs: dict[str, _CrumbSummary] = {}
        self.trails: dict[str, str] = {}  # states by id
        self.kept: set[str] = set()  # crumbs of completed trails
        self.links: dict[str, _LinkSummary] = {}
        self.properties: list[tuple[str, str]] = []  # ids and names
        self.stashes: list[tuple[str, str]] = []
        self.schemas: set[str] = set()
        self.short_ids: dict[tuple[str, str], tuple[str, datetime]] = {}  # the first record of each
        self.odd: dict[str, list[Finding]] = defaultdict(list)  # findings about single records, by rule
        self._ids: dict[str, str] = {}

    def add(self, found: Any) -> None:
        """Add a record, and check the rules for single records."""
        if not isinstance(found, Crystal):
            text = f"{found.id!r}: {found.problem or 'it cannot be read'}"
            suggestion = "upgrade this program, or undo what wrote it"
            self.odd["readable"].append(Finding("readable", (found.id,), text, suggestion))
            return
        id, record = self._intern(found.id), found.value
        if isinstance(record, CrumbRecord):
            rank = self.definitions.rank(record.properties)
            self.crumbs[id] = _CrumbSummary(intern(record.state), record.open_parents, record.queue, rank)
        elif isinstance(record, TrailRecord):
            self.trails[id] = intern(record.state)
            self.kept.update(ref.id for ref in record.crumbs if record.state == "completed")
        elif isinstance(record, LinkRecord):
            ends = self._intern(record.from_id), self._intern(record.to_id)
            self.links[id] = _LinkSummary(intern(record.link_type), *ends)
        elif isinstance(record, PropertyRecord):
            self.properties.append((id, record.name))
        elif isinstance(record, StashRecord):
            self.stashes.append((id, record.name))
        elif isinstance(record, SchemaRecord):
            self.schemas.add(id)
        if type(record) in _SCOPES:
            self.kinds[id] = _SCOPES[type(record)]
        if isinstance(record, CrumbRecord | TrailRecord) and record.short_id:
            self._check_short_id(found)
        for rule in (_check_values, _check_metadata, _check_line):
            if (finding := rule(self, id, record)) is not None:
                self.odd[finding.rule].append(finding)

    def _intern(self, id: str) -> str:
        """Return one shared text for equal ids, which saves memory."""
        return self._ids.setdefault(id, id)

    def _check_short_id(self, found: Crystal[Any]) -> None:
        """Check that no other crumb, or no other trail, has the short id."""
        key, mine = (found.schema_name, found.value.short_id), (found.id, found.created_at)
        first = self.short_ids.setdefault(key, mine)
        if first != mine:
            later, _ = max(first, mine, key=lambda each: (each[1], each[0]))
            self.short_ids[key] = min(first, mine, key=lambda each: (each[1], each[0]))
            text = f"{first[0]!r} and {mine[0]!r} have the same short id {key[1]!r}"
            finding = Finding("short ids", (later,), text, "give the later one another", "rename")
            self.odd["short ids"].append(finding)

    def waits(self) -> dict[str, int]:
        """Count what each crumb waits for."""
        return count_waiting(
            self.crumbs,
            self.links.values(),
            lambda id: id in self.crumbs and self.crumbs[id].state != "pebble",
        )


async def audit(cupboard: Cupboard) -> Audit:
    """Read all records as of one commit and check every rule."""
    universe = await cupboard._ready()
    data = _AuditData(cupboard._definitions)
    seq = await universe.seq()
    # Metadata is checked against the other records, so it comes last. Leases keep no history to read.
    first = [schema for schema in SCHEMAS if schema.name not in (METADATA.name, LEASE.name)]
    schemas: list[Schema[Any]] = [*first, METADATA]
    for schema in schemas:
        query = Query(schema=schema.name, descending=False, limit=None)
        async for found in universe.iterate(query, as_of=seq):
            data.add(found)
    findings = [finding for rule in _RULES for finding in rule(data)]
    return Audit(tuple(findings), *_group_crumbs(data))


def _group_crumbs(data: _AuditData) -> tuple[tuple[str, ...], ...]:
    on_trail = {link.from_id for link in data.links.values() if link.link_type == "belongs_to"}
    groups: tuple[list[str], ...] = ([], [], [])
    for id in data.crumbs:
        groups[0 if id in on_trail else 1 if id in data.kept else 2].append(id)
    return tuple(tuple(group) for group in groups)


# -- the rules ----------------------------------------------------------------------------------


def _make_record_rule(rule: str) -> Callable[[_AuditData], Iterable[Finding]]:
    """Return a rule whose findings were collected when each record was read."""
    return lambda data: data.odd[rule]


def _check_references(data: _AuditData) -> Iterator[Finding]:
    """Check that both ends of every link exist and are of the right kind."""
    for id, link in data.links.items():
        ends = LINK_RULES.get(link.link_type)
        if ends is None:
            text = f"the link {id!r} has the unknown type {link.link_type!r}"
            yield Finding("reference", (id,), text, "delete the link", "delete")
            continue
        for end, noun in ((link.from_id, ends.start), (link.to_id, ends.end)):
            if data.kinds.get(end) != noun:
                text = f"the {link.link_type} link {id!r} leads to {end!r}, which is not a {noun}"
                yield Finding("reference", (id,), text, "delete the link", "delete")
                break
        else:
            if link.from_id == link.to_id and not ends.waits:
                text = f"the {link.link_type} link {id!r} leads from {link.from_id!r} to itself"
                yield Finding("reference", (id,), text, "delete the link", "delete")


def _check_cardinality(data: _AuditData) -> Iterator[Finding]:
    """Check that no link exists twice, and no start has more links than the type allows."""
    first: dict[tuple[str, ...], str] = {}
    for id, link in data.links.items():
        rule = LINK_RULES.get(link.link_type)
        single = rule is not None and rule.single
        mutual = rule is not None and rule.mutual
        triple = (link.link_type, *(sorted(link[1:]) if mutual else link[1:]))
        for key in (triple, triple[:2]) if single else (triple,):
            if key in first:
                text = f"cardinality: {link.from_id!r} has {link.link_type} links {first[key]!r} and {id!r}"
                yield Finding("cardinality", (id,), text, "delete the later link", "delete")
                break
            first[key] = id


def _check_cycles(data: _AuditData) -> Iterator[Finding]:
    """Check that no crumb waits for itself."""
    above: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for id, link in data.links.items():
        if link.link_type in WAITING:
            above[link.from_id].append((link.to_id, id))
    done: set[str] = set()
    for start in list(above):
        yield from _find_cycles(start, above, done)


def _find_cycles(start: str, above: dict[str, list[tuple[str, str]]], done: set[str]) -> Iterator[Finding]:
    """Walk up from a crumb and yield the cycles found; without recursion, since paths may be long."""
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


def _check_ended_trails(data: _AuditData) -> Iterator[Finding]:
    """Check that no ended trail has crumbs."""
    for id, link in data.links.items():
        state = data.trails.get(link.to_id)
        if link.link_type == "belongs_to" and state in ENDED:
            text = f"the crumb {link.from_id!r} is on the trail {link.to_id!r}, which is {state}"
            yield Finding("ended trail", (id,), text, "take the crumb off the trail", "delete")


def _check_readiness(data: _AuditData) -> Iterator[Finding]:
    """Check that the stored readiness of crumbs agrees with states and links."""
    waits = data.waits()
    for id, crumb in data.crumbs.items():
        free = crumb.state == "ready" and not waits[id]
        queue = crumb.rank if free else None
        if (crumb.open_parents, crumb.queue) != (waits[id], queue):
            text = f"the crumb {id!r} waits for {waits[id]} others, and says {crumb.open_parents}"
            if crumb.open_parents == waits[id]:
                text = f"the crumb {id!r} stands at {crumb.queue} in the queue instead of {queue}"
            yield Finding("readiness", (id,), text, "recompute it", "recount")


def _check_names(data: _AuditData) -> Iterator[Finding]:
    """Check that names of properties, and of stashes in a scope, are unique."""
    scopes = {link.from_id: link.to_id for link in data.links.values() if link.link_type == "scoped_to"}
    first: dict[tuple[str, str], str] = {}
    named = [("property", id, name) for id, name in data.properties]
    named += [("stash in " + scopes.get(id, "no trail"), id, name) for id, name in data.stashes]
    for kind, id, name in named:
        if (kind, name) in first:
            text = f"two have the name {name!r} ({kind}): {first[kind, name]!r} and {id!r}"
            yield Finding("names", (first[kind, name], id), text, "rename or delete one of them")
        else:
            first[kind, name] = id


def _check_metadata(data: _AuditData, id: str, entry: Any) -> Finding | None:
    """Check that a metadata entry belongs to a crumb and its schema is registered."""
    if not isinstance(entry, MetadataRecord):
        return None
    if entry.crumb_id not in data.crumbs:
        text = f"the entry {id!r} belongs to {entry.crumb_id!r}, which is not a crumb"
        return Finding("metadata", (id,), text, "delete the entry", "delete")
    if schema_id(entry.table_name) not in data.schemas:
        text = f"the entry {id!r} is of the schema {entry.table_name!r}, which is not registered"
        return Finding("metadata", (id,), text, f"register {entry.table_name!r}")
    return None


def _check_values(data: _AuditData, id: str, record: Any) -> Finding | None:
    """Check that stored values are of their property's type."""
    if type(record) not in _SCOPES or not (bad := list(_find_bad_values(data.definitions, record))):
        return None
    text = f"{id!r} has bad values: {'; '.join(reason for _, reason in bad[:5])}"
    return Finding("values", (id,), text, "give them the default", "default")


def _find_bad_values(definitions: Definitions, record: Any) -> Iterator[tuple[str, str]]:
    for property_id, value in record.properties.items():
        definition = definitions.by_id.get(property_id)
        if definition is None or definition.scope != _SCOPES[type(record)]:
            continue  # its property was deleted
        try:
            definition.encode(value)
        except (errors.TypeMismatch, errors.InvalidCategory) as error:
            yield property_id, error.message


def _check_line(_data: _AuditData, id: str, line: Any) -> Finding | None:
    """Report a line of a file that could not be imported."""
    if not isinstance(line, LineRecord):
        return None
    text = f"a line of {line.file} could not be imported: {line.reason}"
    return Finding("lines", (id,), text, "correct it in its file, and import it again")


_RULES = (
    _make_record_rule("readable"),
    _make_record_rule("lines"),
    _check_references,
    _check_cardinality,
    _check_cycles,
    _check_ended_trails,
    _check_names,
    _make_record_rule("short ids"),
    _make_record_rule("metadata"),
    _make_record_rule("values"),
    _check_readiness,
)


# -- repair -------------------------------------------------------------------------------------


async def repair(cupboard: Cupboard, findings: Iterable[Finding]) -> int | None:
    """Apply the suggestions of the findings in one commit; return its seq, or None if nothing was to do."""
    wanted = [finding for finding in findings if finding.act != "look"]
    if not wanted:
        return None

    async def work(changeset: Changeset) -> None:
        ids = {id: finding.act for finding in wanted for id in finding.ids}
        await changeset.load(ids)
        again = {id for id, act in ids.items() if act == "recount"}
        for id, act in ids.items():
            record = changeset.record(id)
            if isinstance(record, LinkRecord) and record.link_type in WAITING:
                again.add(record.from_id)
            if act == "delete":
                changeset.drop(id)
            elif act == "rename" and record is not None:
                former = (*record.former_ids, record.short_id)
                changeset.put(id, replace(record, short_id="", former_ids=former))
            elif act == "default" and record is not None:
                bad = {property_id for property_id, _ in _find_bad_values(changeset.definitions, record)}
                kept = {name: value for name, value in record.properties.items() if name not in bad}
                changeset.put(id, replace(record, properties=kept))
                again.update([id] if isinstance(record, CrumbRecord) else [])
        await _recount(changeset, again)

    _, changeset = await cupboard._change(work, f"repair of {len(wanted)} findings")
    return None if changeset.tx.committed is None else changeset.tx.committed.seq


async def _recount(changeset: Changeset, wanted: Iterable[str]) -> None:
    """Recompute `open_parents` and `queue` of some crumbs."""
    links = (await batch.all_links(changeset, *WAITING)).values()
    await batch.recount(changeset, wanted, [(each.link_type, each.from_id, each.to_id) for each in links])
