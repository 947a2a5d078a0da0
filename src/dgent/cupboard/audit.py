"""Looking whether everything in the cupboard is as its rules say, and putting right what is not.

The tables keep the rules. What they cannot keep is what comes past them: two copies that were merged, an
import of a broken folder, a file that somebody edited.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from dgent.cupboard import errors
from dgent.cupboard.builtin import schema_id
from dgent.cupboard.definition import Definitions
from dgent.cupboard.draft import Draft
from dgent.cupboard.kind import ENDED
from dgent.cupboard.link import ENDS
from dgent.cupboard.record import (
    SCHEMAS,
    CrumbRecord,
    LineRecord,
    LinkRecord,
    MetadataRecord,
    PropertyRecord,
    StashRecord,
    TrailRecord,
)
from dgent.model.crystal import Crystal
from dgent.model.query import Query

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

Act = Literal["delete", "recount", "default", "look"]

_KINDS = {"crumb": CrumbRecord, "trail": TrailRecord, "stash": StashRecord}
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


class _Everything:
    """All records of the cupboard as of one moment."""

    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        self.records: dict[str, Any] = {}
        self.unreadable: list[tuple[str, str]] = []
        self.links: dict[str, LinkRecord] = {}

    def add(self, found: Any) -> None:
        """Take note of a record."""
        if not isinstance(found, Crystal):
            self.unreadable.append((found.id, found.problem or "it cannot be read"))
            return
        self.records[found.id] = found.value
        if isinstance(found.value, LinkRecord):
            self.links[found.id] = found.value

    def of(self, kind: type[Any]) -> Iterator[tuple[str, Any]]:
        """The records of a kind, oldest first."""
        return ((id, record) for id, record in self.records.items() if isinstance(record, kind))

    def waits(self) -> Counter[str]:
        """For how many unfinished crumbs each one waits."""
        return Counter(
            link.from_id
            for link in self.links.values()
            if link.link_type == "child_of"
            and isinstance(parent := self.records.get(link.to_id), CrumbRecord)
            and parent.state != "pebble"
        )


async def audit(cupboard: Cupboard) -> Audit:
    """Look at everything."""
    universe = await cupboard._ready()
    everything = _Everything(cupboard._definitions)
    seq = await universe.seq()
    for schema in SCHEMAS:
        query = Query(schema=schema.name, descending=False, limit=None)
        async for found in universe.iterate(query, as_of=seq):
            everything.add(found)
    findings = [finding for rule in _RULES for finding in rule(everything)]
    return Audit(tuple(findings), *_standing(everything))


def _standing(everything: _Everything) -> tuple[tuple[str, ...], ...]:
    on_trail = {link.from_id for link in everything.links.values() if link.link_type == "belongs_to"}
    kept = {
        ref.id
        for _, trail in everything.of(TrailRecord)
        if trail.state == "completed"
        for ref in trail.crumbs
    }
    groups: tuple[list[str], ...] = ([], [], [])
    for id, _ in everything.of(CrumbRecord):
        groups[0 if id in on_trail else 1 if id in kept else 2].append(id)
    return tuple(tuple(group) for group in groups)


# -- the rules ----------------------------------------------------------------------------------


def _readable(everything: _Everything) -> Iterator[Finding]:
    for id, problem in everything.unreadable:
        yield Finding("readable", (id,), f"{id!r}: {problem}", "upgrade this program, or undo what wrote it")


def _references(everything: _Everything) -> Iterator[Finding]:
    """Links lead from and to something of the right kind."""
    for id, link in everything.links.items():
        ends = ENDS.get(link.link_type)
        if ends is None:
            text = f"the link {id!r} has the unknown type {link.link_type!r}"
            yield Finding("reference", (id,), text, "delete the link", "delete")
            continue
        for end, noun in ((link.from_id, ends.start), (link.to_id, ends.end)):
            if not isinstance(everything.records.get(end), _KINDS[noun]):
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
        trail = everything.records.get(link.to_id)
        if link.link_type == "belongs_to" and isinstance(trail, TrailRecord) and trail.state in ENDED:
            text = f"the crumb {link.from_id!r} is on the trail {link.to_id!r}, which is {trail.state}"
            yield Finding("ended trail", (id,), text, "take the crumb off the trail", "delete")


def _waiting(everything: _Everything) -> Iterator[Finding]:
    """What is kept about readiness is what follows from states and links."""
    waits = everything.waits()
    for id, crumb in everything.of(CrumbRecord):
        free = crumb.state == "ready" and not waits[id]
        queue = everything.definitions.rank(crumb.properties) if free else None
        if (crumb.open_parents, crumb.queue) != (waits[id], queue):
            text = f"the crumb {id!r} waits for {waits[id]} others, and says {crumb.open_parents}"
            if crumb.open_parents == waits[id]:
                text = f"the crumb {id!r} stands at {crumb.queue} in the queue instead of {queue}"
            yield Finding("readiness", (id,), text, "work it out anew", "recount")


def _names(everything: _Everything) -> Iterator[Finding]:
    """Names that must be unique are."""
    scopes = {link.from_id: link.to_id for link in everything.links.values() if link.link_type == "scoped_to"}
    first: dict[tuple[str, str], str] = {}
    for id, record in everything.records.items():
        if isinstance(record, PropertyRecord):
            key = ("property", record.name)
        elif isinstance(record, StashRecord):
            key = ("stash in " + scopes.get(id, "no trail"), record.name)
        else:
            continue
        if key in first:
            text = f"there are two of the name {record.name!r} ({key[0]}): {first[key]!r} and {id!r}"
            yield Finding("names", (first[key], id), text, "rename or delete one of them")
        else:
            first[key] = id


def _metadata(everything: _Everything) -> Iterator[Finding]:
    """Metadata belongs to a crumb and is of a registered schema."""
    for id, entry in everything.of(MetadataRecord):
        if not isinstance(everything.records.get(entry.crumb_id), CrumbRecord):
            text = f"the entry {id!r} belongs to {entry.crumb_id!r}, which is no crumb"
            yield Finding("metadata", (id,), text, "delete the entry", "delete")
        elif schema_id(entry.table_name) not in everything.records:
            text = f"the entry {id!r} is of the schema {entry.table_name!r}, which is not registered"
            yield Finding("metadata", (id,), text, f"register {entry.table_name!r}")


def _values(everything: _Everything) -> Iterator[Finding]:
    """Stored values are of their property's type."""
    for id, record in everything.records.items():
        if type(record) in _SCOPES and (bad := list(_bad_values(everything.definitions, record))):
            text = f"{id!r} has bad values: {'; '.join(reason for _, reason in bad[:5])}"
            yield Finding("values", (id,), text, "give them the default", "default")


def _bad_values(definitions: Definitions, record: Any) -> Iterator[tuple[str, str]]:
    for property_id, value in record.properties.items():
        defined = definitions.by_id.get(property_id)
        if defined is None or defined.scope != _SCOPES[type(record)]:
            continue  # of a property that was deleted: nobody reads it
        try:
            defined.stored(value)
        except (errors.TypeMismatch, errors.InvalidCategory) as error:
            yield property_id, error.message


def _lines(everything: _Everything) -> Iterator[Finding]:
    """Lines of files that no record could hold."""
    for id, line in everything.of(LineRecord):
        yield Finding(
            "lines",
            (id,),
            f"a line of {line.file} could not be taken in: {line.reason}",
            "mend it where it came from, and import it again",
        )


_RULES = (
    _readable,
    _lines,
    _references,
    _numbers,
    _acyclic,
    _ended,
    _names,
    _metadata,
    _values,
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
