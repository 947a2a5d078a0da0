"""The cupboard: work items that an agent can back out of."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar, cast

from dgent import ids
from dgent.cupboard import builtin, errors, queue
from dgent.cupboard.attach import Attaching, declare, opened
from dgent.cupboard.audit import Audit, Finding, audit, repair
from dgent.cupboard.backoff import TURN_ID, Turn
from dgent.cupboard.change import Draft, check_entity_id
from dgent.cupboard.compare import Comparison, side
from dgent.cupboard.config import Config
from dgent.cupboard.definition import Definitions
from dgent.cupboard.graph import Graph, graph
from dgent.cupboard.lease import LEASE_S
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
from dgent.cupboard.tables.crumb import Crumb, Crumbs, check_claim
from dgent.cupboard.tables.link import Link, Links, add_link, add_links
from dgent.cupboard.tables.metadata import Metadata, Metadatas, MetadataSchema, Schemas
from dgent.cupboard.tables.property import Categories, Properties
from dgent.cupboard.tables.stash import Stashes
from dgent.cupboard.tables.table import RESERVED, Table
from dgent.cupboard.tables.trail import Trail, Trails
from dgent.cupboard.undo import Undoing
from dgent.errors import DgentError, InputError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

R = TypeVar("R")

ATTEMPTS = 64  # to be the first who writes what every cupboard starts with
READS = 1_000_000


@dataclass(frozen=True)
class Ended:
    """What ending a trail did; `seq` is what `u.undo` takes to have it all back."""

    trail: Trail
    seq: int | None
    crumbs: tuple[str, ...] = ()
    freed: tuple[str, ...] = field(default=(), kw_only=True)
    """Crumbs of other trails that no longer wait, because what they waited for was removed."""


class Cupboard:
    """Crumbs, trails, links, properties, stashes and metadata on a universe.

    `Cupboard(u)` on an open universe; or `cupboard = await Cupboard.attach(Config("sqlite", "folder"))`,
    which opens a store of its own, and `await cupboard.detach()`.
    """

    attach = Attaching()

    def __init__(self, universe: Universe | None = None) -> None:
        self._outer = universe
        self._own: Universe | None = None  # a store that this opened, and closes
        self._definitions = Definitions(builtin.PROPERTIES, builtin.CATEGORIES)
        self._catalog_rev: int | None = None
        self._learned = False
        self._indexed: frozenset[str] = frozenset()
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
        self.schemas = Schemas(self)

    # -- lifecycle ------------------------------------------------------------------------

    async def _attach(self, config: Config) -> Cupboard:
        if self._room is not None:
            raise errors.AlreadyAttached("this cupboard is attached already")
        self._own = await opened(config)
        try:
            self._enter(self._own)
            await self.prepare()
            await self._ready()
        except BaseException:
            await self.detach()
            raise
        return self

    async def detach(self) -> None:
        """Finish what is under way and let go of the store; twice is fine.

        The universe of `Cupboard(u)` stays open: it belongs to who opened it.
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
                f"a cupboard is on a universe, not on a {type(universe).__name__}",
                hint="use what dgent.open gives; for dgent.sync there is dgent.sync.cupboard",
            )
        universe.keepers[ROOM] = Undoing(self)
        self._room = universe.for_room(ROOM)
        self._home = ids.new_id()
        self._learned, self._catalog_rev, self._indexed = False, None, frozenset()

    @property
    def _universe(self) -> Universe:
        self._check()
        assert self._room is not None
        return self._room

    def _check(self) -> None:
        if self._room is None:
            raise errors.Detached("the cupboard is not attached")

    @property
    def universe(self) -> Universe:
        """The universe it is on, for history, undo and the feed."""
        room = self._universe
        return self._own or self._outer or room

    def table(self, name: str) -> Table[Any]:
        """A table by its name: crumbs, trails, properties, categories, links, stashes, metadata, schemas."""
        self._check()
        found = vars(self).get(name) if isinstance(name, str) else None
        if not isinstance(found, Table):
            known = ", ".join(name for name, value in vars(self).items() if isinstance(value, Table))
            raise errors.TableNotFound(f"there is no table {name!r}", hint=f"there are {known}")
        return found

    get_table = table

    # -- how tables read and write --------------------------------------------------------

    async def _ready(self) -> Universe:
        """The universe, with the definitions as they are now."""
        universe = self._universe
        while True:
            rev = await _catalog_rev(universe)
            if rev == self._catalog_rev:
                return universe
            if rev:
                self._learn()
            definitions = await self._load(universe)
            if rev == await _catalog_rev(universe):  # else they were being changed while they were read
                await self._define(definitions, rev)

    def _learn(self) -> None:
        """Tell the store of the schemas; one without a cupboard is not told by whoever only looks."""
        if not self._learned:
            self._universe.register(*SCHEMAS)
            self._learned = True

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
        if rev:
            self._indexed = declare(self._universe, definitions, self._indexed)
        self._catalog_rev = rev

    async def definitions(self) -> Definitions:
        """The defined properties and their categories, as they are now."""
        await self._ready()
        return self._definitions

    async def prepare(self) -> None:
        """Write what every cupboard starts with: a commit of its own, which no undo of work takes back."""

        async def work(tx: Transaction) -> None:
            if await tx.get(CATALOG_ID) is None:
                draft = Draft(tx, self._definitions)
                await _put_builtins(draft)
                await draft.flush()

        self._learn()
        await self._universe.transact(work, attempts=ATTEMPTS, note="cupboard")

    async def _change(
        self,
        work: Callable[[Draft], Awaitable[R]],
        note: str | None,
        *,
        undo_of: int | None = None,
        dry_run: bool = False,
    ) -> tuple[R, Draft]:
        """Work out a change and commit it as a whole; again when somebody else was faster."""

        async def attempt(tx: Transaction) -> tuple[R, Draft]:
            tx.reads = READS
            catalog, mark = await tx.get_many([CATALOG_ID, TURN_ID])
            turn.check(mark)
            rev = catalog.rev or 0 if isinstance(catalog, Crystal) else 0
            definitions = self._definitions
            if rev != self._catalog_rev:
                definitions = await self._load(tx)
                await self._define(definitions, rev)
            draft = Draft(tx, definitions)
            result = await work(draft)
            if undo_of is not None:
                tx.kind, tx.of_seq = "undo", undo_of
            if not dry_run:
                await draft.flush()
            await tx.commit()
            return result, draft

        if not self._catalog_rev:
            self._learn()
            if not await _catalog_rev(self._universe):
                await self.prepare()
        turn = Turn(self._universe, note)
        return await turn.take(attempt)

    # -- crumbs -----------------------------------------------------------------------------

    async def add(
        self,
        crumb: Crumb | str,
        *,
        state: str = "",
        trail: Trail | str | None = None,
        parents: Iterable[Crumb | str] | Crumb | str = (),
        properties: Mapping[str, Any] | None = None,
        defer_until: datetime | None = None,
    ) -> Crumb:
        """Make a crumb, put it on a trail and have it wait for others, all in one commit."""
        self._check()
        given = crumb if isinstance(crumb, Crumb) else Crumb(crumb)
        made = copy.copy(given)  # what the caller has stays as it is unless this succeeds
        made.properties = copy.copy(given.properties)
        made.state, made.defer_until = state or given.state, defer_until or given.defer_until
        for name, value in (properties or {}).items():
            made.set_property(name, value)
        links: list[Link] = [] if trail is None else [Link("belongs_to", "", _id(trail))]
        some = [parents] if isinstance(parents, str | Crumb) else parents
        links += [Link("child_of", "", _id(parent)) for parent in some]
        draft = await self._add([made], [(0, link) for link in links], f"crumb {made.name}"[:200])
        self.crumbs._write_back(given, made.id, draft)
        return given

    async def add_many(
        self,
        crumbs: Iterable[Crumb | str],
        links: Iterable[tuple[str, int | str | Crumb | Trail, int | str | Crumb | Trail]] = (),
        *,
        trail: Trail | str | None = None,
    ) -> list[Crumb]:
        """Make many crumbs with their links in one commit: all or none.

        A link is its type and its two ends: an id, an entity, or the place of a new crumb in the list, as in
        `add_many([a, b], [("child_of", 1, 0)])`, where b waits for a.
        """
        self._check()
        made = [Crumb(each) if isinstance(each, str) else each for each in crumbs]
        for crumb in made:
            if not isinstance(crumb, Crumb):
                raise errors.InvalidData(f"a crumb is needed, not a {type(crumb).__name__}")
        wanted: list[tuple[int | None, Link]] = []
        for place in range(len(made)) if trail is not None else ():
            wanted.append((place, Link("belongs_to", "", _id(trail))))
        given = [crumb.id or ids.new_id() for crumb in made]
        for link_type, start, end in links:
            wanted.append((None, Link(link_type, _place(start, given), _place(end, given))))
        await self._add(made, wanted, f"{len(made)} crumbs", given)
        return made

    async def _add(
        self,
        crumbs: Sequence[Crumb],
        links: Iterable[tuple[int | None, Link]],
        note: str,
        given: Sequence[str] | None = None,
    ) -> Draft:
        chosen = list(given) if given is not None else [crumb.id or ids.new_id() for crumb in crumbs]
        fresh = {id for id, crumb in zip(chosen, crumbs, strict=True) if not crumb.id}
        wanted = list(links)

        async def work(draft: Draft) -> None:
            await draft.load(check_entity_id(id) for id in chosen if id not in fresh)
            for id, crumb in zip(chosen, crumbs, strict=True):
                if id not in fresh and (id.startswith(RESERVED) or await draft.exists(id)):
                    raise errors.InvalidID(f"there is something with the id {id!r} already", id=id)
                await self.crumbs._check_present(draft, id, crumb)
                await self.crumbs._write(draft, id, crumb, None)
            links = [
                LinkRecord(link.link_type, link.from_id if place is None else chosen[place], link.to_id)
                for place, link in wanted
            ]
            await add_links(draft, [(ids.new_id(), link, None) for link in links])

        _, draft = await self._change(work, note)
        for id, crumb in zip(chosen, crumbs, strict=True):
            self.crumbs._write_back(crumb, id, draft)
        return draft

    async def comment(self, crumb: Crumb | str, text: str) -> Metadata:
        """Say something about a crumb."""
        made = Metadata(_id(crumb), "comments", text)
        await self.metadata.set(None, made)
        return made

    async def register_schema(
        self, name: str, description: str = "", content_type: str = "text"
    ) -> MetadataSchema:
        """Make a kind of metadata known."""
        made = MetadataSchema(name, description, content_type)
        await self.schemas.set(None, made)
        return made

    # -- work -------------------------------------------------------------------------------

    async def ready(self, limit: int | None = None, **filters: Any) -> list[Crumb]:
        """The crumbs that can be taken now: ready, waiting for nobody, not put off; by priority, then age.

        Filters are those of `crumbs.fetch`, as in `ready(properties={"type": "task"}, trail_id=…)`.
        """
        return [self.crumbs._made(found) for found in await queue.ready(self, limit, **filters)]

    async def explain(self, crumb: Crumb | str) -> Readiness:
        """Whether a crumb can be taken now, and why."""
        universe = await self._ready()
        found = await universe.get(check_entity_id(_id(crumb)))
        if not isinstance(found, Crystal) or not isinstance(found.value, CrumbRecord):
            raise errors.EntityNotFound(f"there is no crumb {_id(crumb)!r}")
        return (await queue.explain(self, [found]))[0]

    async def explain_ready(self, limit: int | None = None, **filters: Any) -> list[Readiness]:
        """The crumbs that can be taken now, each with the reasons."""
        return await queue.explain(self, await queue.ready(self, limit, **filters))

    async def blocked(self, limit: int | None = None) -> list[Readiness]:
        """The unfinished crumbs that wait for others, with what they wait for."""
        return await queue.blocked(self, limit)

    async def take(self, agent: str, *, lease_s: float | None = None, **filters: Any) -> Crumb | None:
        """Claim the next ready crumb for an agent; None when there is none. No two agents get the same.

        The agent holds it until it is finished or released. With `lease_s`, only for so many seconds, and by
        `heartbeat` for longer; then it can be taken again. `crumb.token` grows each time.
        """
        await self._ready()
        return await queue.take(self, agent, lease_s, filters)

    async def heartbeat(self, crumb: Crumb | str, agent: str, *, lease_s: float = LEASE_S) -> datetime | None:
        """Keep a crumb for another lease from now on; NotLockHolder when it was lost.

        Returns the end of the lease; None for a crumb that was taken without one.
        """
        return await queue.heartbeat(self, _id(crumb), agent, lease_s)

    async def done(
        self, crumb: Crumb | str, *, token: int | None = None, agent: str | None = None, force: bool = False
    ) -> Crumb:
        """Mark a crumb as done: it becomes a pebble.

        NotLockHolder when another agent holds it, unless forced. The caller is the agent named, the one for
        whom `take` gave this crumb, or else the author of the universe; a token alone says it as well.
        """
        return await self._finish(crumb, "pebble", token, agent, force)

    async def drop(
        self, crumb: Crumb | str, *, token: int | None = None, agent: str | None = None, force: bool = False
    ) -> Crumb:
        """Give a crumb up: it becomes dust; `waiting_for` says what still waits for it. Refused as `done`."""
        return await self._finish(crumb, "dust", token, agent, force)

    async def release(
        self, crumb: Crumb | str, *, token: int | None = None, agent: str | None = None, force: bool = False
    ) -> Crumb:
        """Give a crumb that was taken back to the queue. Refused as `done`."""
        return await self._finish(crumb, "ready", token, agent, force)

    async def waiting_for(self, crumb: Crumb | str) -> list[Crumb]:
        """The unfinished crumbs that wait for a crumb, oldest first."""
        children = await self.crumbs.fetch(parent_id=check_entity_id(_id(crumb)))
        return [child for child in reversed(children) if child.state not in ("pebble", "dust")]

    async def _finish(
        self, given: Crumb | str, state: str, token: int | None, agent: str | None, force: bool
    ) -> Crumb:
        wanted = check_entity_id(_id(given))
        taken_by = given._taken_by if isinstance(given, Crumb) else None
        if token is None and taken_by is not None and agent in (None, taken_by):
            token = cast(Crumb, given).token  # as `take` gave it
        who = agent or taken_by or self._universe.author

        async def work(draft: Draft) -> None:
            crumb = await draft.get(CrumbRecord, wanted, "crumb")
            if not force:
                check_claim(wanted, crumb, token, who)
            if state == "ready" and crumb.state not in ("taken", "ready"):
                raise errors.InvalidTransition(
                    f"{wanted!r} is {crumb.state}, and only what is taken is given back",
                    hint="use set_state",
                    id=wanted,
                )
            entity = self.crumbs._made(cast(Crystal[Any], draft.stored(wanted)))
            entity.state = state
            await self.crumbs._write(draft, wanted, entity, crumb)

        _, draft = await self._change(work, f"crumb {wanted} is {state}")
        made = Crumb()
        self.crumbs._write_back(made, wanted, draft)
        return made

    # -- trails -----------------------------------------------------------------------------

    async def start(
        self,
        name: str,
        goal: str = "",
        *,
        branches_from: Crumb | str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> Trail:
        """Begin an active trail, perhaps where a crumb is."""
        made = Trail(name, goal, "active", properties=dict(properties or {}))
        id = ids.new_id()

        async def work(draft: Draft) -> None:
            await self.trails._write(draft, id, made, None)
            if branches_from is not None:
                await add_link(draft, ids.new_id(), LinkRecord("branches_from", id, _id(branches_from)))

        _, draft = await self._change(work, f"trail {name}"[:200])
        self.trails._write_back(made, id, draft)
        return made

    async def complete(self, trail: Trail | str) -> Ended:
        """A trail worked: its crumbs become permanent. One commit, which `u.undo` takes back."""
        return await self._end(trail, lambda found: found.complete())

    async def abandon(
        self, trail: Trail | str, *, reason: str | None = None, lesson: str | None = None
    ) -> Ended:
        """A trail did not work: its crumbs go, the lesson stays. One commit, which `u.undo` takes back."""
        return await self._end(trail, lambda found: found.abandon(reason, lesson))

    async def _end(self, trail: Trail | str, how: Callable[[Trail], None]) -> Ended:
        id = check_entity_id(_id(trail))

        async def work(draft: Draft) -> Trail:
            old = await draft.get(TrailRecord, id, "trail")
            found = self.trails._made(cast(Crystal[Any], draft.stored(id)))
            if isinstance(trail, Trail):  # with what was changed in memory, apart from how it goes on
                for name, value in self.trails._merged(draft, id, trail, old).items():
                    if name not in ("state", "completed_at"):
                        setattr(found, name, value)
            how(found)
            await self.trails._write(draft, id, found, old)
            return found

        found, draft = await self._change(work, f"end of trail {id}")
        ended = trail if isinstance(trail, Trail) else found
        self.trails._write_back(ended, id, draft)
        return Ended(ended, ended.seq, ended.crumbs, freed=tuple(draft.freed))

    @asynccontextmanager
    async def explore(self, name: str, goal: str = "", **options: Any) -> AsyncIterator[Trail]:
        """Try something out: `async with cupboard.explore("try redis") as trail`.

        The trail is completed at the end, or abandoned if the block says so by `trail.abandon(reason)`; and
        abandoned when an exception leaves the block, which is the reason unless the block gave one. What the
        block changed of the trail, such as `trail.lesson`, is stored with it.
        """
        trail = await self.start(name, goal, **options)
        try:
            yield trail
        except BaseException as error:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            try:
                await self._leave(trail, lambda found: found.abandon(found.reason or text[:2000]))
            except DgentError as problem:  # what went wrong first says more
                error.add_note(f"the trail {trail.id} could not be abandoned: {problem}")
            raise
        given_up = trail.state == "abandoned"
        await self._leave(trail, lambda found: found.abandon() if given_up else found.complete())

    async def _leave(self, trail: Trail, how: Callable[[Trail], None]) -> None:
        """End an explored trail, unless that was done in the block, or it was deleted there."""
        stored = await self.trails.fetch(id=trail.id)
        if stored and not stored[0].ended:
            await self._end(trail, how)

    async def origin(self, crumb: Crumb | str) -> Trail | None:
        """The completed trail that a permanent crumb came from."""
        universe = await self._ready()
        for found in await universe.referrers(check_entity_id(_id(crumb)), limit=None):
            if isinstance(found, Crystal) and isinstance(found.value, TrailRecord):
                return self.trails._made(found)
        return None

    async def lessons(self, text: str = "", *, limit: int | None = 50) -> list[Trail]:
        """The trails given up, newest first, whose name, goal, reason or lesson has all the words."""
        words = text.casefold().split()
        found = []
        for trail in await self.trails.fetch(state="abandoned"):
            said = " ".join(filter(None, (trail.name, trail.goal, trail.reason, trail.lesson))).casefold()
            if all(word in said for word in words):
                found.append(trail)
        return found[:limit]

    # -- looking at it ------------------------------------------------------------------------

    async def compare(self, a: Trail | str, b: Trail | str) -> Comparison:
        """Two trails side by side: crumbs by state, properties, stashes; ended ones as they were."""
        return Comparison(*[await side(self, await self.trails.get(_id(each))) for each in (a, b)])

    async def graph(self, trail: Trail | str | None = None) -> Graph:
        """The crumbs, trails and stashes with their links, or those of one trail; it draws itself."""
        return await graph(self, None if trail is None else (await self.trails.get(_id(trail))).id)

    async def audit(self) -> Audit:
        """Whether everything is as the rules say, with suggestions; and which crumbs are on no trail."""
        return await audit(self)

    async def repair(self, findings: Iterable[Finding] | None = None) -> int | None:
        """Do what `audit` suggests, where nobody must decide; returns the commit, which can be undone."""
        return await repair(self, (await audit(self)).findings if findings is None else findings)


async def _catalog_rev(universe: Universe) -> int:
    catalog = await universe.get(CATALOG_ID, raw=True)
    return 0 if catalog is None or catalog.schema != CATALOG.name else catalog.rev or 0


async def _put_builtins(draft: Draft) -> None:
    """What every cupboard starts with, unless it is there."""
    wanted: dict[str, Any] = {**builtin.PROPERTIES, **builtin.CATEGORIES, **builtin.METADATA_SCHEMAS}
    await draft.load(wanted)
    for id, record in wanted.items():
        if draft.record(id) is None:
            draft.put(id, record, created_at=builtin.BORN)
    draft.redefine()


def _id(thing: Any) -> str:
    return thing if isinstance(thing, str) else str(getattr(thing, "id", thing))


def _place(end: Any, given: Sequence[str]) -> str:
    if type(end) is int:
        if not 0 <= end < len(given):
            raise errors.InvalidData(f"a link names crumb {end}, and there are {len(given)} new ones")
        return given[end]
    return _id(end)
