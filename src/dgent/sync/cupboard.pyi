"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.

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
from dgent.cupboard.lease import LEASE_S
from dgent.cupboard.record import StashRecord
from dgent.cupboard.tables.entity import Entity
from dgent.cupboard.tables.table import Edition
from dgent.model.schema import Schema
from dgent.sync import Universe
from dgent.sync.stream import Stream

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

    def __init__(self, cupboard: Cupboard) -> None: ...
    def get(self, id: str) -> E:
        """The entity of an id."""

    def set(self, id: str | None, entity: E, *, expected_version: int | None = None) -> str:
        """Store an entity and return its id; what was changed since it was read is what is written.

        The entity gets its id, its times and defaults. If somebody else changed the same part of it
        meanwhile, or deleted it, that is a Conflict and nothing is written. `expected_version` is the version
        that the stored one must have: that of a stash, of others the rev.
        """

    def delete(self, id: str, *, expected_version: int | None = None) -> None:
        """Remove an entity, with all that goes with it."""

    def fetch(self, filter: Mapping[str, Any] | None = None, **filters: Any) -> list[E]:
        """The entities that match all of a filter; all of them without one.

        `fetch({"states": ["ready"]})` or `fetch(states=["ready"])`. Unknown keys are ignored. `iterate` gives
        the same one by one, for more than fit into memory.
        """

    def iterate(self, filter: Mapping[str, Any] | None = None, **filters: Any) -> Stream[E]:
        """The entities that `fetch` gives, as of one moment, a page at a time."""

    def versions(self, id: str) -> list[Edition[E]]:
        """Every kept version of an entity, oldest first; none when there never was such an entity."""

class Crumbs(Table[Crumb]):
    """The work items, newest first."""

    columns: ClassVar[Mapping[str, str]]

class Trails(Table[Trail]):
    """The explorations, newest first."""

    columns: ClassVar[Mapping[str, str]]

class Properties(Table[Property]):
    """What every crumb, trail or stash has a value for, oldest first."""

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
        """The categories of a property, given by its id or name; lowest ordinal first."""

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
        """Make a stash, of a trail if one is named, in one commit."""

    def set_value(
        self, id: str, value: Any, *, changed_by: str | None = None, expected_version: int | None = None
    ) -> Stash:
        """Give a stash another value."""

    def increment(
        self, id: str, delta: int = 1, *, changed_by: str | None = None, expected_version: int | None = None
    ) -> int:
        """Add to a counter and return what it is then; no two calls are lost, in however many programs."""

    def acquire(
        self,
        id: str,
        holder: str,
        *,
        lease_s: float | None = LEASE_S,
        changed_by: str | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Hold a lock for as long as a lease, and return the fencing token.

        The token grows with every new holder: whatever the lock guards can refuse a smaller one. While it
        is held by somebody else: LockHeld. `heartbeat` makes the lease longer; None has no end.
        """

    def heartbeat(self, id: str, holder: str, *, lease_s: float = LEASE_S) -> datetime:
        """Hold a lock for another lease from now on; NotLockHolder when it was lost. Returns its end."""

    def release(
        self, id: str, holder: str, *, changed_by: str | None = None, expected_version: int | None = None
    ) -> None:
        """Let go of a lock."""

    def held(self, id: str, holder: str, *, lease_s: float = LEASE_S) -> AbstractContextManager[int]:
        """Hold a lock for a block of code, with heartbeats: `with stashes.held(id, "me") as token`."""

    def history(self, id: str) -> list[StashHistoryEntry]:
        """The versions of a stash, oldest first; none when there is no such stash."""

    def records(self, id: str) -> list[StashRecord]:
        """The records of a stash, one for each version, oldest first."""

class Metadatas(Table[Metadata]):
    """Comments, attachments and other entries beside crumbs, oldest first."""

    columns: ClassVar[Mapping[str, str]]

class Schemas(Table[MetadataSchema]):
    """The kinds of metadata, oldest first; they are registered and never unregistered."""

    columns: ClassVar[Mapping[str, str]]

class Attaching:
    """`Cupboard.attach(config)` makes a cupboard and attaches it; on a cupboard it attaches that one."""

    def __get__(self, cupboard: Cupboard | None, kind: type[Cupboard]) -> Callable[[Config], Cupboard]: ...

class Cupboard:
    """Crumbs, trails, links, properties, stashes and metadata on a universe.

    `Cupboard(u)` on an open universe; or `cupboard = Cupboard.attach(Config("sqlite", "folder"))`,
    which opens a store of its own, and `cupboard.detach()`.
    """

    attach: Attaching

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
    def schemas(self) -> Schemas: ...
    def __init__(self, universe: Universe | None = None) -> None: ...
    def detach(self) -> None:
        """Finish what is under way and let go of the store; twice is fine.

        The universe of `Cupboard(u)` stays open: it belongs to who opened it.
        """

    def __enter__(self) -> Cupboard: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def universe(self) -> Universe:
        """The universe it is on, for history, undo and the feed."""

    def table(self, name: str) -> Table[Any]:
        """A table by its name: crumbs, trails, properties, categories, links, stashes, metadata, schemas."""

    def definitions(self) -> Definitions:
        """The defined properties and their categories, as they are now."""

    def prepare(self) -> None:
        """Write what every cupboard starts with: a commit of its own, which no undo of work takes back."""

    def add(
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

    def add_many(
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

    def comment(self, crumb: Crumb | str, text: str) -> Metadata:
        """Say something about a crumb."""

    def register_schema(self, name: str, description: str = "", content_type: str = "text") -> MetadataSchema:
        """Make a kind of metadata known."""

    def ready(self, limit: int | None = None, **filters: Any) -> list[Crumb]:
        """The crumbs that can be taken now: ready, waiting for nobody, not put off; by priority, then age.

        Filters are those of `crumbs.fetch`, as in `ready(properties={"type": "task"}, trail_id=…)`.
        """

    def explain(self, crumb: Crumb | str) -> Readiness:
        """Whether a crumb can be taken now, and why."""

    def explain_ready(self, limit: int | None = None, **filters: Any) -> list[Readiness]:
        """The crumbs that can be taken now, each with the reasons."""

    def blocked(self, limit: int | None = None) -> list[Readiness]:
        """The unfinished crumbs that wait for others, with what they wait for."""

    def take(self, agent: str, *, lease_s: float | None = None, **filters: Any) -> Crumb | None:
        """Claim the next ready crumb for an agent; None when there is none. No two agents get the same.

        The agent holds it until it is finished or released. With `lease_s`, only for so many seconds, and by
        `heartbeat` for longer; then it can be taken again. `crumb.token` grows each time.
        """

    def heartbeat(self, crumb: Crumb | str, agent: str, *, lease_s: float = LEASE_S) -> datetime | None:
        """Keep a crumb for another lease from now on; NotLockHolder when it was lost.

        Returns the end of the lease; None for a crumb that was taken without one.
        """

    def done(
        self, crumb: Crumb | str, *, token: int | None = None, agent: str | None = None, force: bool = False
    ) -> Crumb:
        """Mark a crumb as done: it becomes a pebble.

        NotLockHolder when another agent holds it, unless forced. The caller is the agent named, the one for
        whom `take` gave this crumb, or else the author of the universe; a token alone says it as well.
        """

    def drop(
        self, crumb: Crumb | str, *, token: int | None = None, agent: str | None = None, force: bool = False
    ) -> Crumb:
        """Give a crumb up: it becomes dust; `waiting_for` says what still waits for it. Refused as `done`."""

    def release(
        self, crumb: Crumb | str, *, token: int | None = None, agent: str | None = None, force: bool = False
    ) -> Crumb:
        """Give a crumb that was taken back to the queue. Refused as `done`."""

    def waiting_for(self, crumb: Crumb | str) -> list[Crumb]:
        """The unfinished crumbs that wait for a crumb, oldest first."""

    def start(
        self,
        name: str,
        goal: str = "",
        *,
        branches_from: Crumb | str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> Trail:
        """Begin an active trail, perhaps where a crumb is."""

    def complete(self, trail: Trail | str) -> Ended:
        """A trail worked: its crumbs become permanent. One commit, which `u.undo` takes back."""

    def abandon(self, trail: Trail | str, *, reason: str | None = None, lesson: str | None = None) -> Ended:
        """A trail did not work: its crumbs go, the lesson stays. One commit, which `u.undo` takes back."""

    def explore(self, name: str, goal: str = "", **options: Any) -> AbstractContextManager[Trail]:
        """Try something out: `with cupboard.explore("try redis") as trail`.

        The trail is completed at the end, or abandoned if the block says so by `trail.abandon(reason)`; and
        abandoned when an exception leaves the block, which is the reason unless the block gave one. What the
        block changed of the trail, such as `trail.lesson`, is stored with it.
        """

    def origin(self, crumb: Crumb | str) -> Trail | None:
        """The completed trail that a permanent crumb came from."""

    def lessons(self, text: str = "", *, limit: int | None = 50) -> list[Trail]:
        """The trails given up, newest first, whose name, goal, reason or lesson has all the words."""

    def compare(self, a: Trail | str, b: Trail | str) -> Comparison:
        """Two trails side by side: crumbs by state, properties, stashes; ended ones as they were."""

    def graph(self, trail: Trail | str | None = None) -> Graph:
        """The crumbs, trails and stashes with their links, or those of one trail; it draws itself."""

    def audit(self) -> Audit:
        """Whether everything is as the rules say, with suggestions; and which crumbs are on no trail."""

    def repair(self, findings: Iterable[Finding] | None = None) -> int | None:
        """Do what `audit` suggests, where nobody must decide; returns the commit, which can be undone."""
