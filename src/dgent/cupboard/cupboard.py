"""The cupboard: work items on trails that an agent can complete or abandon as a whole."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar, cast

from dgent import ids
from dgent.cupboard import builtin, errors, queue
from dgent.cupboard.audit import Audit, Finding, audit, repair
from dgent.cupboard.backoff import RESERVATION_ID, Backoff
from dgent.cupboard.change import Changeset, check_entity_id
from dgent.cupboard.claim import take_one
from dgent.cupboard.compare import Comparison, load_side
from dgent.cupboard.config import AttachMethod, Config, open_universe
from dgent.cupboard.definition import Definitions, declare_indexes
from dgent.cupboard.finish import How, finish
from dgent.cupboard.graph import Graph, load_graph
from dgent.cupboard.lease import check_claims
from dgent.cupboard.look import find_duplicates, find_stale, search_crumbs
from dgent.cupboard.queue import Readiness
from dgent.cupboard.record import (
    CATALOG,
    CATALOG_ID,
    CATEGORY,
    PROPERTY,
    ROOM,
    SCHEMAS,
    CrumbRecord,
    LinkRecord,
    TrailRecord,
)
from dgent.cupboard.short_id import (
    PREFIX,
    check_prefix,
    give_short_ids,
    name_older_records,
    resolve_id,
)
from dgent.cupboard.tables.crumb import Crumb, Crumbs
from dgent.cupboard.tables.link import Link, Links, add_link, add_links
from dgent.cupboard.tables.metadata import Metadata, Metadatas, MetadataSchema, MetadataSchemas
from dgent.cupboard.tables.property import Categories, Properties
from dgent.cupboard.tables.stash import Stashes
from dgent.cupboard.tables.table import RESERVED, Table
from dgent.cupboard.tables.trail import Trail, Trails
from dgent.errors import DgentError, InputError
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.universe.gate import Gate
from dgent.universe.lease import LEASE_S
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

R = TypeVar("R")

ATTEMPTS = 64  # to write the built-in records of a new cupboard
READS = 1_000_000


@dataclass(frozen=True)
class Ended:
    """The result of ending a trail; `u.undo(seq)` reverts all of it."""

    trail: Trail
    seq: int | None
    crumbs: tuple[str, ...] = ()
    freed: tuple[str, ...] = field(default=(), kw_only=True)
    """Crumbs of other trails that no longer wait, because the crumb they waited for was deleted."""


class Cupboard:
    """Crumbs, trails, links, properties, stashes and metadata on a universe.

    `Cupboard(u)` on an open universe; or `cupboard = await Cupboard.attach(Config("sqlite", "folder"))`,
    which opens its own store, and `await cupboard.detach()`.
    """

    attach = AttachMethod()

    def __init__(self, universe: Universe | None = None) -> None:
        self._outer = universe
        self._own: Universe | None = None  # the store that this opened, and closes
        self._definitions = Definitions(builtin.PROPERTIES, builtin.CATEGORIES)
        self._catalog_rev: int | None = None
        self._registered = False
        self._indexed: frozenset[str] = frozenset()
        self._prefix = PREFIX  # of new short ids
        self._is_older = False  # its records may have none yet
        self._sizes: dict[str, int] = {}  # how many crumbs and trails there are, about
        self._room: Universe | None = None
        if universe is not None:
            self._enter(universe)
        self.crumbs = Crumbs(self)
        self.trails = Trails(self)
        self.properties = Properties(self)
        self.categories = Categories(self)
        self.links = Links(self)
        self.stashes = Stashes(self)
        self.metadata = Metadatas(self)
        self.schemas = MetadataSchemas(self)

    # -- lifecycle ------------------------------------------------------------------------

    async def _attach(self, config: Config) -> Cupboard:
        if self._room is not None:
            raise errors.AlreadyAttached("this cupboard is already attached")
        self._own = await open_universe(config)
        try:
            self._enter(self._own)
            await self.prepare()
            await self._ready()
        except BaseException:
            await self.detach()
            raise
        return self

    async def detach(self) -> None:
        """Finish pending work and release the store; a second call does nothing.

        The universe of `Cupboard(u)` stays open: its opener closes it.
        """
        self._room = None
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    async def __aenter__(self) -> Cupboard:
        await self._ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.detach()

    def _enter(self, universe: Universe) -> None:
        if not isinstance(universe, Universe):
            raise InputError(
                f"expected a universe, got a {type(universe).__name__}",
                hint="use a universe of dgent.open; for dgent.sync use dgent.sync.cupboard",
            )
        universe.rooms.add(ROOM)
        self._room = universe.for_room(ROOM)
        self._home = ids.new_id()
        self._registered, self._catalog_rev, self._indexed = False, None, frozenset()

    @property
    def _universe(self) -> Universe:
        self._check_attached()
        assert self._room is not None
        return self._room

    def _check_attached(self) -> None:
        if self._room is None:
            raise errors.Detached("the cupboard is not attached")

    @property
    def universe(self) -> Universe:
        """The universe of this cupboard, for history, undo and the feed."""
        room = self._universe
        return self._own or self._outer or room

    def table(self, name: str) -> Table[Any]:
        """Return a table: crumbs, trails, properties, categories, links, stashes, metadata or schemas."""
        self._check_attached()
        found = vars(self).get(name) if isinstance(name, str) else None
        if not isinstance(found, Table):
            known = ", ".join(name for name, value in vars(self).items() if isinstance(value, Table))
            raise errors.TableNotFound(f"{name!r} is not a table", hint=f"use one of {known}")
        return found

    get_table = table

    # -- reading and writing --------------------------------------------------------------

    async def _ready(self) -> Universe:
        """Return the universe after loading the current definitions."""
        universe = self._universe
        while True:
            rev, catalog = await _read_catalog(universe)
            if rev == self._catalog_rev:
                return universe
            self._prefix = (str(catalog.data.get("prefix") or "") if catalog else "") or PREFIX
            self._is_older = _is_older(catalog)
            if rev:
                self._register_schemas()
            definitions = await self._load(universe)
            if rev == (await _read_catalog(universe))[0]:  # else they changed while they were read
                await self._define(definitions, rev)

    def _register_schemas(self) -> None:
        """Register the schemas; only reading does not register them in a store without a cupboard."""
        if not self._registered:
            self._universe.register(*SCHEMAS)
            self._registered = True

    async def _load(self, reader: Universe | Transaction) -> Definitions:
        records = []
        for schema in (PROPERTY, CATEGORY):
            query = Query(schema=schema.name, descending=False, limit=None)
            records.append({each.id: each.value for each in await reader.recall(query)})
        if not records[0]:
            records = [builtin.PROPERTIES, builtin.CATEGORIES]
        return Definitions(*records)

    async def _define(self, definitions: Definitions, rev: int) -> None:
        self._definitions = definitions
        if rev and self._universe.past is None:
            self._indexed = declare_indexes(self._universe, definitions, self._indexed)
        self._catalog_rev = rev

    async def definitions(self) -> Definitions:
        """Return the current definitions of properties and their categories."""
        await self._ready()
        return self._definitions

    async def prepare(self) -> None:
        """Write the built-in records, in a separate commit, so that no undo of work reverts them.

        A store of an older dgent gets those that came since.
        """

        async def work(tx: Transaction) -> None:
            new = await tx.get(CATALOG_ID) is None
            definitions = Definitions({}, {}) if new else await self._load(tx)
            if new or definitions.lacks(builtin.CATEGORIES):
                changeset = Changeset(tx, self._definitions)
                await _put_builtins(changeset, definitions)
                await changeset.flush()

        self._register_schemas()
        await self._universe.transact(work, attempts=ATTEMPTS, note="cupboard")

    def _open_changeset(self, tx: Transaction) -> Changeset:
        return Changeset(tx, self._definitions)

    async def _change(
        self,
        work: Callable[[Changeset], Awaitable[R]],
        note: str | None,
        *,
        undo_of: int | None = None,
        dry_run: bool = False,
    ) -> tuple[R, Changeset]:
        """Run a change and commit it as a whole; repeat it after a conflict."""

        async def attempt(tx: Transaction) -> tuple[R, Changeset]:
            tx.reads = READS
            catalog, reservation = await tx.get_many([CATALOG_ID, RESERVATION_ID])
            backoff.check_reservation(reservation)
            rev = catalog.rev or 0 if isinstance(catalog, Crystal) else 0
            definitions = self._definitions
            if rev != self._catalog_rev:
                definitions = await self._load(tx)
                await self._define(definitions, rev)
            changeset = Changeset(tx, definitions)
            self._prefix = (catalog.value.prefix if isinstance(catalog, Crystal) else "") or PREFIX
            result = await work(changeset)
            await give_short_ids(changeset, self)
            if isinstance(self._universe.backend, Gate):  # of somebody below a partner
                await check_claims(changeset, self._universe.backend.principal.name)
            if undo_of is not None:
                tx.kind, tx.of_seq = "undo", undo_of
            if not dry_run:
                await changeset.flush()
            await tx.commit()
            return result, changeset

        if not self._catalog_rev:
            self._register_schemas()
            rev, found = await _read_catalog(self._universe)
            self._is_older = _is_older(found)
            if not rev:
                await self.prepare()
        if self._is_older and self._may_change() and not dry_run:
            await name_older_records(self)
            self._is_older = False
        if self._catalog_rev and self._definitions.lacks(builtin.CATEGORIES):
            await self.prepare()
        backoff = Backoff(self._universe, note)
        return await backoff.run(attempt)

    @property
    def prefix(self) -> str:
        """The prefix of new short ids."""
        return self._prefix

    async def set_prefix(self, prefix: str) -> None:
        """Set the prefix of new short ids; those that were given stay."""
        wanted = check_prefix(prefix)

        async def work(changeset: Changeset) -> None:
            if wanted != self._prefix:
                changeset.prefix = wanted
                changeset.mark_redefined()

        await self._change(work, f"prefix {wanted}")

    async def _naming(self, schema: Schema[Any]) -> tuple[str, int]:
        """Return the prefix of new short ids, and about how many records of a schema there are."""
        if schema.name not in self._sizes:
            self._sizes[schema.name] = await self._universe.count(Query(schema=schema.name))
        return self._prefix, self._sizes[schema.name]

    def _may_change(self) -> bool:
        """Check whether the caller may change records, not only add some."""
        backend = self._universe.backend
        return not isinstance(backend, Gate) or backend.principal.trust in ("partner", "friend")

    async def _find_id(self, thing: Any, table: Table[Any]) -> str:
        """Return the id of a crumb or trail that is given as entity, id or short id."""
        return await resolve_id(self._universe, table.schema.name, check_entity_id(_id(thing)))

    # -- crumbs -----------------------------------------------------------------------------

    async def add(
        self,
        crumb: Crumb | str,
        *,
        state: str = "",
        trail: Trail | str | None = None,
        parents: Iterable[Crumb | str] | Crumb | str = (),
        part_of: Iterable[Crumb | str] | Crumb | str = (),
        properties: Mapping[str, Any] | None = None,
        defer_until: datetime | None = None,
    ) -> Crumb:
        """Make a crumb, put it on a trail, into an epic, and make it wait for its parents, in one commit."""
        self._check_attached()
        given = crumb if isinstance(crumb, Crumb) else Crumb(crumb)
        made = copy.copy(given)  # the caller's crumb changes only if this succeeds
        made.properties = copy.copy(given.properties)
        made.state, made.defer_until = state or given.state, defer_until or given.defer_until
        for name, value in (properties or {}).items():
            made.set_property(name, value)
        links: list[Link] = []
        if trail is not None:
            links.append(Link("belongs_to", "", await self._find_id(trail, self.trails)))
        for link_type, ends in (("child_of", parents), ("part_of", part_of)):
            some = [ends] if isinstance(ends, str | Crumb) else ends
            links += [Link(link_type, "", await self._find_id(end, self.crumbs)) for end in some]
        changeset = await self._add([made], [(0, link) for link in links], f"crumb {made.name}"[:200])
        self.crumbs._write_back(given, made.id, changeset)
        return given

    async def add_many(
        self,
        crumbs: Iterable[Crumb | str],
        links: Iterable[tuple[str, int | str | Crumb | Trail, int | str | Crumb | Trail]] = (),
        *,
        trail: Trail | str | None = None,
    ) -> list[Crumb]:
        """Make many crumbs with their links in one commit: all or none.

        A link is its type and its two ends. An end is an id, an entity, or the index of a new crumb, as in
        `add_many([a, b], [("child_of", 1, 0)])`, where b waits for a.
        """
        self._check_attached()
        made = [Crumb(each) if isinstance(each, str) else each for each in crumbs]
        for crumb in made:
            if not isinstance(crumb, Crumb):
                raise errors.InvalidData(f"expected a crumb, got a {type(crumb).__name__}")
        wanted: list[tuple[int | None, Link]] = []
        if trail is not None:
            trail_id = await self._find_id(trail, self.trails)
            wanted += [(place, Link("belongs_to", "", trail_id)) for place in range(len(made))]
        given = [crumb.id or ids.new_id() for crumb in made]
        for link_type, start, end in links:
            wanted.append((None, Link(link_type, _resolve_end(start, given), _resolve_end(end, given))))
        note = f"crumb {made[0].name}"[:200] if len(made) == 1 else f"{len(made)} crumbs"
        await self._add(made, wanted, note, given)
        return made

    async def _add(
        self,
        crumbs: Sequence[Crumb],
        links: Iterable[tuple[int | None, Link]],
        note: str,
        given: Sequence[str] | None = None,
    ) -> Changeset:
        chosen = list(given) if given is not None else [crumb.id or ids.new_id() for crumb in crumbs]
        fresh = {id for id, crumb in zip(chosen, crumbs, strict=True) if not crumb.id}
        wanted = list(links)

        async def work(changeset: Changeset) -> None:
            await changeset.load(check_entity_id(id) for id in chosen if id not in fresh)
            for id, crumb in zip(chosen, crumbs, strict=True):
                if id not in fresh and (id.startswith(RESERVED) or await changeset.exists(id)):
                    raise errors.InvalidID(f"the id {id!r} is already in use", id=id)
                await self.crumbs._check_present(changeset, id, crumb)
                await self.crumbs._write(changeset, id, crumb, None)
            links = [
                LinkRecord(link.link_type, link.from_id if place is None else chosen[place], link.to_id)
                for place, link in wanted
            ]
            await add_links(changeset, [(ids.new_id(), link, None) for link in links])

        _, changeset = await self._change(work, note)
        for id, crumb in zip(chosen, crumbs, strict=True):
            self.crumbs._write_back(crumb, id, changeset)
        return changeset

    async def update(
        self, crumb: Crumb, *, links: Iterable[Link] = (), expected_version: int | None = None
    ) -> Crumb:
        """Store a changed crumb, and add links unless they exist, in one commit."""
        wanted = [LinkRecord(link.link_type, link.from_id, link.to_id) for link in links]

        async def work(changeset: Changeset) -> None:
            await self.crumbs._set(changeset, crumb.id, crumb, expected_version)
            for link in wanted:
                with suppress(errors.DuplicateLink):
                    await add_link(changeset, ids.new_id(), link)

        _, changeset = await self._change(work, f"crumb {crumb.name}"[:200])
        self.crumbs._write_back(crumb, crumb.id, changeset)
        return crumb

    async def comment(self, crumb: Crumb | str, text: str) -> Metadata:
        """Add a comment to a crumb."""
        made = Metadata(await self._find_id(crumb, self.crumbs), "comments", text)
        await self.metadata.set(None, made)
        return made

    async def register_schema(
        self, name: str, description: str = "", content_type: str = "text"
    ) -> MetadataSchema:
        """Register a metadata schema."""
        made = MetadataSchema(name, description, content_type)
        await self.schemas.set(None, made)
        return made

    # -- work -------------------------------------------------------------------------------

    async def ready(self, limit: int | None = None, **filters: Any) -> list[Crumb]:
        """Return the crumbs that can be taken now: ready, not waiting, not deferred; by priority, then age.

        The filters are those of `crumbs.fetch`, as in `ready(properties={"type": "task"}, trail_id=…)`.
        """
        return [self.crumbs._build(found) for found in await queue.find_ready(self, limit, **filters)]

    async def explain(self, crumb: Crumb | str) -> Readiness:
        """Explain whether a crumb can be taken now, and why."""
        universe = await self._ready()
        found = await universe.get(await self._find_id(crumb, self.crumbs))
        if not isinstance(found, Crystal) or not isinstance(found.value, CrumbRecord):
            raise errors.EntityNotFound(f"no crumb has the id {_id(crumb)!r}")
        return (await queue.explain(self, [found]))[0]

    async def explain_ready(self, limit: int | None = None, **filters: Any) -> list[Readiness]:
        """Return the crumbs that can be taken now, each with the reasons."""
        return await queue.explain(self, await queue.find_ready(self, limit, **filters))

    async def blocked(self, limit: int | None = None) -> list[Readiness]:
        """Return the unfinished crumbs that wait for others, with what they wait for."""
        return await queue.find_blocked(self, limit)

    async def take(self, agent: str, *, lease_s: float | None = None, **filters: Any) -> Crumb | None:
        """Claim the next ready crumb for an agent; None when there is none. No two agents get the same one.

        The agent holds it until it is finished or released. With `lease_s` the claim expires after so many
        seconds, unless `heartbeat` renews it; then it can be taken again. `crumb.token` grows each time.
        """
        self._check_attached()
        return await queue.take(self, agent, lease_s, filters)

    async def heartbeat(self, crumb: Crumb | str, agent: str, *, lease_s: float = LEASE_S) -> datetime | None:
        """Renew the lease on a crumb from now on; raises NotLockHolder when it was lost.

        Returns the end of the lease; None for a crumb that was taken without one.
        """
        return await queue.heartbeat(self, await self._find_id(crumb, self.crumbs), agent, lease_s)

    async def take_one(
        self, crumb: Crumb | str, agent: str, *, lease_s: float | None = None, force: bool = False
    ) -> Crumb:
        """Claim this crumb for an agent, in any state but done or dropped; else like `take`.

        Raises NotLockHolder when another agent holds it, Conflict when it waits for others, unless forced.
        """
        return await take_one(self, crumb, agent, lease_s, force)

    async def finish(
        self,
        crumbs: Iterable[Crumb | str],
        how: How,
        *,
        token: int | None = None,
        agent: str | None = None,
        force: bool = False,
        reason: str | None = None,
    ) -> list[Crumb]:
        """End the work on crumbs in one commit: `done`, `drop`, `release` or `reopen` them, all or none."""
        some = list(crumbs)
        return await finish(self, some, how, token=token, agent=agent, force=force, reason=reason)

    async def done(self, crumb: Crumb | str, **options: Any) -> Crumb:
        """Mark a crumb as done: it becomes a pebble. The options are those of `finish`.

        Raises NotLockHolder when another agent holds it, unless forced. The caller is `agent`, the agent that
        took this crumb, or else the author of the universe; a token alone identifies it as well.
        """
        return (await self.finish([crumb], "done", **options))[0]

    async def drop(self, crumb: Crumb | str, **options: Any) -> Crumb:
        """Drop a crumb: it becomes dust. `waiting_for` returns what waits for it. Refused like `done`."""
        return (await self.finish([crumb], "drop", **options))[0]

    async def release(self, crumb: Crumb | str, **options: Any) -> Crumb:
        """Return a taken crumb to the queue. Refused like `done`."""
        return (await self.finish([crumb], "release", **options))[0]

    async def reopen(self, crumb: Crumb | str, **options: Any) -> Crumb:
        """Make a crumb ready again that was done or dropped."""
        return (await self.finish([crumb], "reopen", **options))[0]

    async def find(
        self, words: str = "", *, since: datetime | None = None, limit: int = 100, **filters: Any
    ) -> list[Crumb]:
        """Return the crumbs with these words in their texts or comments, best first, that pass the filters.

        The filters are those of `crumbs.fetch`; `since` is the time of the last change.
        """
        return await search_crumbs(self, words, filters, since, limit)

    async def stale(self, before: datetime, *, limit: int | None = None) -> list[Crumb]:
        """Return the unfinished crumbs that were not changed since a time, the longest untouched first."""
        return await find_stale(self, before, limit)

    async def duplicates(self) -> list[list[Crumb]]:
        """Return groups of unfinished crumbs with nearly the same names."""
        return await find_duplicates(self)

    async def waiting_for(self, crumb: Crumb | str) -> list[Crumb]:
        """Return the unfinished crumbs that wait for a crumb, oldest first."""
        children = await self.crumbs.fetch(parent_id=await self._find_id(crumb, self.crumbs))
        return [child for child in reversed(children) if child.state not in ("pebble", "dust")]

    # -- trails -----------------------------------------------------------------------------

    async def start(
        self,
        name: str,
        goal: str = "",
        *,
        branches_from: Crumb | str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> Trail:
        """Start an active trail, which may branch from a crumb."""
        made = Trail(name, goal, "active", properties=dict(properties or {}))
        id = ids.new_id()
        origin = None if branches_from is None else await self._find_id(branches_from, self.crumbs)

        async def work(changeset: Changeset) -> None:
            await self.trails._write(changeset, id, made, None)
            if origin is not None:
                await add_link(changeset, ids.new_id(), LinkRecord("branches_from", id, origin))

        _, changeset = await self._change(work, f"trail {name}"[:200])
        self.trails._write_back(made, id, changeset)
        return made

    async def complete(self, trail: Trail | str) -> Ended:
        """Complete a trail: its crumbs become permanent. One commit, which `u.undo` reverts."""
        return await self._end(trail, lambda found: found.complete())

    async def abandon(
        self, trail: Trail | str, *, reason: str | None = None, lesson: str | None = None
    ) -> Ended:
        """Abandon a trail: its crumbs are deleted, the lesson stays. One commit, which `u.undo` reverts."""
        return await self._end(trail, lambda found: found.abandon(reason, lesson))

    async def _end(self, trail: Trail | str, how: Callable[[Trail], None]) -> Ended:
        id = await self._find_id(trail, self.trails)

        async def work(changeset: Changeset) -> Trail:
            old = await changeset.get(TrailRecord, id, "trail")
            found = self.trails._build(cast(Crystal[Any], changeset.get_stored(id)))
            if isinstance(trail, Trail):  # with its changes in memory, apart from the state
                for name, value in self.trails._merge_fields(changeset, id, trail, old).items():
                    if name not in ("state", "completed_at"):
                        setattr(found, name, value)
            how(found)
            await self.trails._write(changeset, id, found, old)
            return found

        found, changeset = await self._change(work, f"end of trail {id}")
        ended = trail if isinstance(trail, Trail) else found
        self.trails._write_back(ended, id, changeset)
        return Ended(ended, ended.seq, ended.crumbs, freed=tuple(changeset.freed))

    @asynccontextmanager
    async def explore(self, name: str, goal: str = "", **options: Any) -> AsyncIterator[Trail]:
        """Try something out: `async with cupboard.explore("try redis") as trail`.

        At the end the trail is completed, or abandoned if the block called `trail.abandon(reason)`. It is
        also abandoned when an exception leaves the block, which is then the reason unless the block gave one.
        Changes of the trail in the block, such as `trail.lesson`, are stored with it.
        """
        trail = await self.start(name, goal, **options)
        try:
            yield trail
        except BaseException as error:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            try:
                await self._end_explored(trail, lambda found: found.abandon(found.reason or text[:2000]))
            except DgentError as problem:  # the first error says more
                error.add_note(f"the trail {trail.id} could not be abandoned: {problem}")
            raise
        given_up = trail.state == "abandoned"
        await self._end_explored(trail, lambda found: found.abandon() if given_up else found.complete())

    async def _end_explored(self, trail: Trail, how: Callable[[Trail], None]) -> None:
        """End an explored trail, unless the block ended or deleted it."""
        stored = await self.trails.fetch(id=trail.id)
        if stored and not stored[0].ended:
            await self._end(trail, how)

    async def origin(self, crumb: Crumb | str) -> Trail | None:
        """Return the completed trail that a permanent crumb came from."""
        universe = await self._ready()
        for found in await universe.referrers(await self._find_id(crumb, self.crumbs), limit=None):
            if isinstance(found, Crystal) and isinstance(found.value, TrailRecord):
                return self.trails._build(found)
        return None

    async def lessons(self, text: str = "", *, limit: int | None = 50) -> list[Trail]:
        """Return the abandoned trails with a lesson whose texts have all the words, newest first."""
        words = text.casefold().split()
        found = []
        for trail in await self.trails.fetch(state="abandoned"):
            if not trail.lesson:
                continue
            said = " ".join(filter(None, (trail.name, trail.goal, trail.reason, trail.lesson))).casefold()
            if all(word in said for word in words):
                found.append(trail)
        return found[:limit]

    # -- inspection ---------------------------------------------------------------------------

    async def compare(self, a: Trail | str, b: Trail | str) -> Comparison:
        """Compare two trails: crumbs by state, properties, stashes; ended ones as they were."""
        return Comparison(*[await load_side(self, await self.trails.get(_id(each))) for each in (a, b)])

    async def graph(self, trail: Trail | str | None = None) -> Graph:
        """Return the graph of crumbs, trails and stashes, or that of one trail."""
        return await load_graph(self, None if trail is None else (await self.trails.get(_id(trail))).id)

    async def audit(self) -> Audit:
        """Check every rule of the cupboard; return findings with suggestions, and the crumbs on no trail."""
        return await audit(self)

    async def repair(self, findings: Iterable[Finding] | None = None) -> int | None:
        """Apply the suggestions of `audit` that need no decision; return the commit, which can be undone."""
        return await repair(self, (await audit(self)).findings if findings is None else findings)


async def _read_catalog(universe: Universe) -> tuple[int, Datum | None]:
    """Return the version of the definitions, and the record that has it."""
    catalog = await universe.get(CATALOG_ID, raw=True)
    if catalog is None or catalog.schema != CATALOG.name:
        return 0, None
    return catalog.rev or 0, catalog


def _is_older(catalog: Datum | None) -> bool:
    """Check whether a store was last written by a dgent that gave no short ids."""
    return catalog is not None and (catalog.schema_version or 1) < CATALOG.version


async def _put_builtins(changeset: Changeset, known: Definitions) -> None:
    """Add the built-in records that are missing; a category whose name is taken stays out."""
    categories = {id: each for id, each in builtin.CATEGORIES.items() if known.lacks({id: each})}
    wanted: dict[str, Any] = {**builtin.PROPERTIES, **categories, **builtin.METADATA_SCHEMAS}
    await changeset.load(wanted)
    for id, record in wanted.items():
        if changeset.record(id) is None:
            changeset.put(id, record, created_at=builtin.BORN)
    changeset.mark_redefined()


def _id(thing: Any) -> str:
    return thing if isinstance(thing, str) else str(getattr(thing, "id", thing))


def _resolve_end(end: Any, given: Sequence[str]) -> str:
    if type(end) is int:
        if not 0 <= end < len(given):
            raise errors.InvalidData(f"a link refers to new crumb {end}, but there are {len(given)}")
        return given[end]
    return _id(end)
