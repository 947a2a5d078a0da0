"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, ClassVar, Generic, TypeVar

from dgent.cupboard import Audit as Audit
from dgent.cupboard import Category as Category
from dgent.cupboard import Comparison as Comparison
from dgent.cupboard import Config as Config
from dgent.cupboard import Crumb as Crumb
from dgent.cupboard import Edge as Edge
from dgent.cupboard import Ended as Ended
from dgent.cupboard import Finding as Finding
from dgent.cupboard import Graph as Graph
from dgent.cupboard import Link as Link
from dgent.cupboard import Metadata as Metadata
from dgent.cupboard import MetadataSchema as MetadataSchema
from dgent.cupboard import Node as Node
from dgent.cupboard import Property as Property
from dgent.cupboard import Readiness as Readiness
from dgent.cupboard import Side as Side
from dgent.cupboard import Stash as Stash
from dgent.cupboard import StashHistoryEntry as StashHistoryEntry
from dgent.cupboard import Trail as Trail
from dgent.cupboard import errors as errors
from dgent.cupboard.definition import Definitions
from dgent.cupboard.finish import How
from dgent.cupboard.record import StashRecord
from dgent.cupboard.tables.entity import Entity
from dgent.cupboard.tables.table import EntityVersion
from dgent.model.schema import Schema
from dgent.sync import Universe
from dgent.sync.stream import Stream
from dgent.universe.lease import LEASE_S

__all__ = [
    "Audit",
    "Category",
    "Comparison",
    "Config",
    "Crumb",
    "Cupboard",
    "Edge",
    "Ended",
    "Finding",
    "Graph",
    "Link",
    "Metadata",
    "MetadataSchema",
    "Node",
    "Property",
    "Readiness",
    "Side",
    "Stash",
    "StashHistoryEntry",
    "Table",
    "Trail",
    "errors",
]
E = TypeVar("E", bound=Entity)

class Table(Generic[E]):
    """One kind of entity. `set(None, x)` creates, `set(id, x)` updates, or creates it under that id."""

    name: ClassVar[str]

    noun: ClassVar[str]

    entity: ClassVar[type[Any]]

    schema: ClassVar[Schema[Any]]

    columns: ClassVar[Mapping[str, str]]

    alias: ClassVar[str]

    newest_first: ClassVar[bool]

    by_time: ClassVar[bool]

    built_in: ClassVar[Mapping[str, Any]]

    short_ids: ClassVar[bool]

    def __init__(self, cupboard: Cupboard) -> None: ...
    def get(self, id: str) -> E:
        """Return the entity of an id; raises EntityNotFound."""

    def set(self, id: str | None, entity: E, *, expected_version: int | None = None) -> str:
        """Store an entity and return its id; only what was changed since it was read is written.

        The entity gets its id, its times and defaults. Raises Conflict, and writes nothing, if another caller
        changed the same part or deleted it meanwhile. `expected_version` is the version that the stored one
        must have: the version of a stash, the rev of others.
        """

    def delete(self, id: str, *, expected_version: int | None = None) -> None:
        """Delete an entity with everything that depends on it."""

    def fetch(self, filter: Mapping[str, Any] | None = None, **filters: Any) -> list[E]:
        """Return the entities that match a filter; all of them without one.

        `fetch({"states": ["ready"]})` or `fetch(states=["ready"])`. Unknown keys are ignored. For more than
        fits into memory use `iterate`.
        """

    def iterate(self, filter: Mapping[str, Any] | None = None, **filters: Any) -> Stream[E]:
        """Yield the entities that `fetch` returns, as of one moment, reading a page at a time."""

    def versions(self, id: str) -> list[EntityVersion[E]]:
        """Return every kept version of an entity, oldest first; none if it never existed."""

class Crumbs(Table[Crumb]):
    """The work items, newest first."""

    columns: ClassVar[Mapping[str, str]]

class Trails(Table[Trail]):
    """The explorations, newest first."""

    columns: ClassVar[Mapping[str, str]]

class Properties(Table[Property]):
    """The properties of crumbs, trails and stashes, oldest first."""

    columns: ClassVar[Mapping[str, str]]

    def define(
        self,
        name: str,
        value_type: str,
        description: str = "",
        *,
        scope: str = "crumb",
        categories: Iterable[str] = (),
    ) -> Property:
        """Define a property, with its categories in their order, in one commit."""

    def define_category(self, property_id: str | Property, name: str, ordinal: int = 0) -> Category:
        """Add a category to a property, given by its id or name."""

    def get_categories(self, property_id: str | Property) -> list[Category]:
        """Return the categories of a property, given by its id or name; lowest ordinal first."""

class Categories(Table[Category]):
    """The values of categorical properties, lowest ordinal first."""

    columns: ClassVar[Mapping[str, str]]

class Links(Table[Link]):
    """The edges of the graph, oldest first."""

    columns: ClassVar[Mapping[str, str]]

class Stashes(Table[Stash]):
    """Shared state, oldest first."""

    columns: ClassVar[Mapping[str, str]]

    def create(
        self,
        name: str,
        stash_type: str,
        value: Any = None,
        *,
        trail: str | None = None,
        changed_by: str | None = None,
    ) -> Stash:
        """Make a stash, scoped to a trail if one is given, in one commit."""

    def set_value(
        self, id: str, value: Any, *, changed_by: str | None = None, expected_version: int | None = None
    ) -> Stash:
        """Set the value of a stash, which must not be a lock."""

    def increment(
        self, id: str, delta: int = 1, *, changed_by: str | None = None, expected_version: int | None = None
    ) -> int:
        """Add to a counter atomically and return its new value."""

    def acquire(
        self,
        id: str,
        holder: str,
        *,
        lease_s: float | None = LEASE_S,
        changed_by: str | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Acquire a lock for the length of a lease, and return the fencing token.

        The token grows with every new holder, so that the guarded resource can refuse a smaller one. Raises
        LockHeld while another holder has it. `heartbeat` extends the lease; with None it does not expire.
        """

    def heartbeat(self, id: str, holder: str, *, lease_s: float = LEASE_S) -> datetime:
        """Renew the lease on a lock from now on and return its end; raises NotLockHolder when it was lost."""

    def release(
        self, id: str, holder: str, *, changed_by: str | None = None, expected_version: int | None = None
    ) -> None:
        """Release a lock; raises NotLockHolder unless the holder has it."""

    def held(self, id: str, holder: str, *, lease_s: float = LEASE_S) -> AbstractContextManager[int]:
        """Hold a lock for a block of code, with heartbeats: `with stashes.held(id, "me") as token`."""

    def history(self, id: str) -> list[StashHistoryEntry]:
        """Return the versions of a stash, oldest first; none if the stash does not exist."""

    def records(self, id: str) -> list[StashRecord]:
        """Return the records of a stash, one for each version, oldest first."""

class Metadatas(Table[Metadata]):
    """Comments, attachments and other entries of crumbs, oldest first."""

    columns: ClassVar[Mapping[str, str]]

class MetadataSchemas(Table[MetadataSchema]):
    """The kinds of metadata, oldest first; they are registered and never unregistered."""

    columns: ClassVar[Mapping[str, str]]

class AttachMethod:
    """`Cupboard.attach(config)` makes a cupboard and attaches it; on a cupboard it attaches that one."""

    def __get__(self, cupboard: Cupboard | None, kind: type[Cupboard]) -> Callable[[Config], Cupboard]: ...

class Cupboard:
    """Crumbs, trails, links, properties, stashes and metadata on a universe.

    `Cupboard(u)` on an open universe; or `cupboard = Cupboard.attach(Config("sqlite", "folder"))`,
    which opens its own store, and `cupboard.detach()`.
    """

    attach: AttachMethod

    @property
    def crumbs(self) -> Crumbs: ...
    @property
    def trails(self) -> Trails: ...
    @property
    def properties(self) -> Properties: ...
    @property
    def categories(self) -> Categories: ...
    @property
    def links(self) -> Links: ...
    @property
    def stashes(self) -> Stashes: ...
    @property
    def metadata(self) -> Metadatas: ...
    @property
    def schemas(self) -> MetadataSchemas: ...
    def __init__(self, universe: Universe | None = None) -> None: ...
    def detach(self) -> None:
        """Finish pending work and release the store; a second call does nothing.

        The universe of `Cupboard(u)` stays open: its opener closes it.
        """

    def __enter__(self) -> Cupboard: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def universe(self) -> Universe:
        """The universe of this cupboard, for history, undo and the feed."""

    def table(self, name: str) -> Table[Any]:
        """Return a table: crumbs, trails, properties, categories, links, stashes, metadata or schemas."""

    def definitions(self) -> Definitions:
        """Return the current definitions of properties and their categories."""

    def prepare(self) -> None:
        """Write the built-in records, in a separate commit, so that no undo of work reverts them.

        A store of an older dgent gets those that came since.
        """

    @property
    def prefix(self) -> str:
        """The prefix of new short ids."""

    def set_prefix(self, prefix: str) -> None:
        """Set the prefix of new short ids; those that were given stay."""

    def add(
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

    def add_many(
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

    def update(
        self, crumb: Crumb, *, links: Iterable[Link] = (), expected_version: int | None = None
    ) -> Crumb:
        """Store a changed crumb, and add links unless they exist, in one commit."""

    def comment(self, crumb: Crumb | str, text: str) -> Metadata:
        """Add a comment to a crumb."""

    def register_schema(self, name: str, description: str = "", content_type: str = "text") -> MetadataSchema:
        """Register a metadata schema."""

    def ready(self, limit: int | None = None, **filters: Any) -> list[Crumb]:
        """Return the crumbs that can be taken now: ready, not waiting, not deferred; by priority, then age.

        The filters are those of `crumbs.fetch`, as in `ready(properties={"type": "task"}, trail_id=…)`.
        """

    def explain(self, crumb: Crumb | str) -> Readiness:
        """Explain whether a crumb can be taken now, and why."""

    def explain_ready(self, limit: int | None = None, **filters: Any) -> list[Readiness]:
        """Return the crumbs that can be taken now, each with the reasons."""

    def blocked(self, limit: int | None = None) -> list[Readiness]:
        """Return the unfinished crumbs that wait for others, with what they wait for."""

    def take(self, agent: str, *, lease_s: float | None = None, **filters: Any) -> Crumb | None:
        """Claim the next ready crumb for an agent; None when there is none. No two agents get the same one.

        The agent holds it until it is finished or released. With `lease_s` the claim expires after so many
        seconds, unless `heartbeat` renews it; then it can be taken again. `crumb.token` grows each time.
        """

    def heartbeat(self, crumb: Crumb | str, agent: str, *, lease_s: float = LEASE_S) -> datetime | None:
        """Renew the lease on a crumb from now on; raises NotLockHolder when it was lost.

        Returns the end of the lease; None for a crumb that was taken without one.
        """

    def take_one(
        self, crumb: Crumb | str, agent: str, *, lease_s: float | None = None, force: bool = False
    ) -> Crumb:
        """Claim this crumb for an agent, in any state but done or dropped; else like `take`.

        Raises NotLockHolder when another agent holds it, Conflict when it waits for others, unless forced.
        """

    def finish(
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

    def done(self, crumb: Crumb | str, **options: Any) -> Crumb:
        """Mark a crumb as done: it becomes a pebble. The options are those of `finish`.

        Raises NotLockHolder when another agent holds it, unless forced. The caller is `agent`, the agent that
        took this crumb, or else the author of the universe; a token alone identifies it as well.
        """

    def drop(self, crumb: Crumb | str, **options: Any) -> Crumb:
        """Drop a crumb: it becomes dust. `waiting_for` returns what waits for it. Refused like `done`."""

    def release(self, crumb: Crumb | str, **options: Any) -> Crumb:
        """Return a taken crumb to the queue. Refused like `done`."""

    def reopen(self, crumb: Crumb | str, **options: Any) -> Crumb:
        """Make a crumb ready again that was done or dropped."""

    def find(
        self, words: str = "", *, since: datetime | None = None, limit: int = 100, **filters: Any
    ) -> list[Crumb]:
        """Return the crumbs with these words in their texts or comments, best first, that pass the filters.

        The filters are those of `crumbs.fetch`; `since` is the time of the last change.
        """

    def stale(self, before: datetime, *, limit: int | None = None) -> list[Crumb]:
        """Return the unfinished crumbs that were not changed since a time, the longest untouched first."""

    def duplicates(self) -> list[list[Crumb]]:
        """Return groups of unfinished crumbs with nearly the same names."""

    def waiting_for(self, crumb: Crumb | str) -> list[Crumb]:
        """Return the unfinished crumbs that wait for a crumb, oldest first."""

    def start(
        self,
        name: str,
        goal: str = "",
        *,
        branches_from: Crumb | str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> Trail:
        """Start an active trail, which may branch from a crumb."""

    def complete(self, trail: Trail | str) -> Ended:
        """Complete a trail: its crumbs become permanent. One commit, which `u.undo` reverts."""

    def abandon(self, trail: Trail | str, *, reason: str | None = None, lesson: str | None = None) -> Ended:
        """Abandon a trail: its crumbs are deleted, the lesson stays. One commit, which `u.undo` reverts."""

    def explore(self, name: str, goal: str = "", **options: Any) -> AbstractContextManager[Trail]:
        """Try something out: `with cupboard.explore("try redis") as trail`.

        At the end the trail is completed, or abandoned if the block called `trail.abandon(reason)`. It is
        also abandoned when an exception leaves the block, which is then the reason unless the block gave one.
        Changes of the trail in the block, such as `trail.lesson`, are stored with it.
        """

    def origin(self, crumb: Crumb | str) -> Trail | None:
        """Return the completed trail that a permanent crumb came from."""

    def lessons(self, text: str = "", *, limit: int | None = 50) -> list[Trail]:
        """Return the abandoned trails with a lesson whose texts have all the words, newest first."""

    def compare(self, a: Trail | str, b: Trail | str) -> Comparison:
        """Compare two trails: crumbs by state, properties, stashes; ended ones as they were."""

    def graph(self, trail: Trail | str | None = None) -> Graph:
        """Return the graph of crumbs, trails and stashes, or that of one trail."""

    def audit(self) -> Audit:
        """Check every rule of the cupboard; return findings with suggestions, and the crumbs on no trail."""

    def repair(self, findings: Iterable[Finding] | None = None) -> int | None:
        """Apply the suggestions of `audit` that need no decision; return the commit, which can be undone."""
