"""Permission checks of a handle that acts for a principal, for every way of reading and writing.

The gate stands between a universe and its backend, so no request to the store goes around it. A handle
that acts for nobody in particular has none, and pays nothing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias, TypeVar

import msgspec

from dgent import ids as ids_
from dgent.errors import (
    Corrupt,
    Denied,
    HistoryGone,
    InputError,
    TransactionConflict,
    Unavailable,
    Unsupported,
    VersionConflict,
)
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.vector import VectorSpec
from dgent.store.backend import (
    LIVE,
    NEW,
    STORED,
    Backend,
    BackendStats,
    Change,
    Check,
    Commit,
    Committed,
    Compacted,
    Declaration,
    Declared,
    Delete,
    Forgotten,
    Guard,
    Item,
    Keep,
    Op,
    Page,
    Put,
    Rank,
    Reverted,
    Version,
    View,
    Written,
)
from dgent.store.search import (
    EmbeddedSchema,
    GivenVector,
    SearchPage,
    SearchRequest,
    VectorPage,
    WaitingVector,
)
from dgent.store.tally import Counts, Tally
from dgent.universe.position import known_seq
from dgent.universe.room import load_room

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

R = TypeVar("R")
Trust: TypeAlias = Literal["partner", "friend", "conversant", "untrusted"]
TRUSTS: tuple[Trust, ...] = ("partner", "friend", "conversant", "untrusted")
BATCH = 1000  # commits that are read at once


class Principal(msgspec.Struct, frozen=True):
    """The agent or person a handle acts for, and how far it is trusted.

    A partner reads and writes everything, a friend everything but other agents' things and what cannot be
    undone, a conversant reads and adds records, and an untrusted one does neither.
    """

    name: str
    trust: Trust

    def __post_init__(self) -> None:
        ids_.check_name(self.name, "principal")
        if self.trust not in TRUSTS:
            known = ", ".join(TRUSTS)
            raise InputError(
                f"{self.trust!r} is not a valid trust", hint=f"use one of {known}", field="trust"
            )


class Scope(Protocol):
    """The records of a room that a principal may see."""

    def sees(self, id: str, schema: str, datum: Datum | None) -> bool:
        """Return whether one version of a record may be seen; `datum` is None when it was pruned."""
        ...


class _Nothing:
    """The scope of what is not for principals: the records that dgent makes for itself, outside its rooms."""

    def sees(self, id: str, schema: str, datum: Datum | None) -> bool:
        return False


class _Scopes:
    """The scopes of all rooms as of a commit, by schema; a schema without one is for everyone."""

    def __init__(self, by_schema: Mapping[str, Scope]) -> None:
        self._by_schema = by_schema

    def sees(self, id: str | None, schema: str | None, datum: Datum | None) -> bool:
        """Return whether one version of a record may be seen."""
        schema = schema if datum is None else datum.schema
        scope = self._by_schema.get(schema or "")
        if scope is None or id is None:
            return True
        try:
            return scope.sees(id, schema or "", datum)
        except Corrupt:
            return False  # whose it is cannot be read

    def allow(self, datum: Datum) -> bool:
        """Return whether a record may be seen, as a query asks."""
        return self.sees(datum.id, datum.schema, datum)

    def filter_change(self, change: Change) -> Change | None:
        """Return a commit without what is hidden; None when nothing is left of it.

        Its note speaks of everything that it changed, so it is shown only if all of that may be seen.
        """
        items = tuple(item for item in change.items if self._shows(item))
        if len(items) == len(change.items):
            return change
        return msgspec.structs.replace(change, items=items, note=None) if items else None

    def _shows(self, item: Item) -> bool:
        kept = [datum for datum in (item.datum, item.last) if datum is not None]
        if not kept:
            return self.sees(item.id, item.schema, None)
        return all(self.sees(item.id, item.schema, datum) for datum in kept)


class Gate:
    """A backend as a principal sees it; in a room, that room judges by its own rules."""

    def __init__(self, universe: Universe, principal: Principal, room: str | None = None) -> None:
        self.inner: Backend = universe.backend
        self.name, self.priority = self.inner.name, self.inner.priority
        self.principal, self.room = principal, room
        self.universe = universe  # without limits
        self._kept: tuple[int, _Scopes] | None = None
        # Schemas that not everyone may read, by room; not of the room whose work this is.
        self._private = {
            schema: owner
            for owner, schemas in reserved.PRIVATE.items()
            for schema in schemas
            if owner != room
        }

    def in_room(self, room: str) -> Gate:
        """Return the gate for the work of a room: other rooms' records stay as closed as before."""
        return self.over(self.inner, room)

    def over(self, inner: Backend, room: str | None) -> Gate:
        """Return the same gate before another backend, or for the work of a room.

        What may be seen is still judged by the store as it is now.
        """
        twin = Gate(self.universe, self.principal, room)
        twin.inner = inner
        return twin

    @property
    def at_hand(self) -> Gate:
        """Return the same gate over the local copy that answers while the store is unavailable."""
        inner = getattr(self.inner, "at_hand", self.inner)
        return self if inner is self.inner else self.over(inner, self.room)

    # -- what the principal may see -------------------------------------------------------

    def _is_open(self, schema: str | None) -> bool:
        return schema not in self._private

    async def _scopes(self) -> _Scopes:
        """Return the scopes of now; worked out again when anything was committed since."""
        self._check_reads()
        seq = None if self.degradation is not None else await self.universe.backend.last_seq()
        if self._kept is not None and self._kept[0] == seq:
            return self._kept[1]
        found: dict[str, Scope] = {}
        for room in dict.fromkeys(self._private.values()):
            scope = await self._scope_of(room)
            if scope is not None:
                found |= {schema: scope for schema, owner in self._private.items() if owner == room}
        made = _Scopes(found)
        self._kept = None if seq is None else (seq, made)
        return made

    async def _scope_of(self, room: str) -> Scope | None:
        if room not in reserved.MODULES:
            return _Nothing()
        return await load_room(room).scope(self.universe.for_room(room), self.principal)

    async def _only_seen(self, datums: Iterable[Datum | None]) -> list[Datum | None]:
        """Return the records that may be seen, None in place of the others.

        Checked after they were read, so permission that was revoked before that hides them.
        """
        self._check_reads()
        found = list(datums)
        if all(each is None or self._is_open(each.schema) for each in found):
            return found
        scopes = await self._scopes()
        return [each if each is None or scopes.allow(each) else None for each in found]

    def _check_reads(self) -> None:
        if self.principal.trust == "untrusted":
            self._refuse("read")

    def _refuse(self, what: str) -> NoReturn:
        who = self.principal
        raise Denied(f"{who.name} is {who.trust} and may not {what}", principal=who.name)

    # -- reads ----------------------------------------------------------------------------

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """Return the live version, or the one at a seq, if it may be seen."""
        found = await self.inner.get(id, as_of, lazy)
        return (await self._only_seen([found]))[0]

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """Return one answer for each id; None also for what may not be seen."""
        return await self._only_seen(await self.inner.get_many(ids, as_of))

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """Return a page of those matching records that may be seen."""
        self._check_reads()
        if query.schema is not None and self._is_open(query.schema):
            return await self.inner.query(query, view, as_of)
        scopes = await self._scopes()
        page = await self.inner.query(_narrow(query, scopes), view, as_of)
        now = await self._scopes()
        if now is scopes:
            return page
        made = [datum for datum in page.items if now.allow(datum)]
        return msgspec.structs.replace(page, made=made, rows=None)

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        """Return how many of the matching records may be seen."""
        self._check_reads()
        if query.schema is not None and self._is_open(query.schema):
            return await self.inner.count(query, view, as_of)
        return await self.inner.count(_narrow(query, await self._scopes()), view, as_of)

    async def tally(self, tally: Tally, view: View, as_of: int | None = None) -> Counts:
        """Return the values or tags of records that may be seen, with their counts."""
        self._check_reads()
        schema = tally.query.schema
        if schema is None or not self._is_open(schema):
            narrowed = _narrow(tally.query, await self._scopes())
            tally = msgspec.structs.replace(tally, query=narrowed)
        return await self.inner.tally(tally, view, as_of)

    async def search_vectors(
        self,
        vector: bytes,
        query: Query,
        view: View,
        limit: int,
        as_of: int | None = None,
        spec: VectorSpec | None = None,
    ) -> VectorPage:
        """Return the nearest of the records that may be seen."""
        self._check_reads()
        if query.schema is not None and self._is_open(query.schema):
            return await self.inner.search_vectors(vector, query, view, limit, as_of, spec)
        scopes = await self._scopes()
        page = await self.inner.search_vectors(vector, _narrow(query, scopes), view, limit, as_of, spec)
        now = await self._scopes()
        if now is scopes:
            return page
        return msgspec.structs.replace(page, items=[each for each in page.items if now.allow(each.datum)])

    async def waiting_vectors(self, schema: str, limit: int, after: bytes = b"") -> list[WaitingVector]:
        """Return versions that wait for their vectors, of records that may be seen."""
        self._check_reads()
        scopes = await self._scopes()
        found = await self.inner.waiting_vectors(schema, limit, after)
        return [each for each in found if scopes.allow(each.datum)]

    async def embedded_schemas(self, most: int = 1_000_000) -> list[EmbeddedSchema]:
        """Return the schemas whose texts a model embeds."""
        self._check_reads()
        return await self.inner.embedded_schemas(most)

    async def store_vectors(self, schema: str, spec: VectorSpec, given: Sequence[GivenVector]) -> int:
        """Store vectors of versions that wait."""
        self._check_reads()
        return await self.inner.store_vectors(schema, spec, given)

    async def search(self, request: SearchRequest) -> SearchPage:
        """Return the best of the records that may be seen."""
        self._check_reads()
        if request.schemas is not None and all(map(self._is_open, request.schemas)):
            return await self.inner.search(request)
        scopes = await self._scopes()
        narrowed = _narrow(request.query, scopes)
        page = await self.inner.search(msgspec.structs.replace(request, query=narrowed))
        now = await self._scopes()
        if now is scopes:
            return page
        return msgspec.structs.replace(page, items=[each for each in page.items if now.allow(each.datum)])

    async def referrers(self, id: str, limit: int | None, view: View = STORED) -> list[Datum]:
        """Return the visible records whose declared refs hold this id, newest first."""
        found = await self._only_seen(await self.inner.referrers(id, None, view))
        return [datum for datum in found if datum is not None][:limit]

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """Return a record and what caused it, up to the first that may not be seen."""
        found = await self._only_seen(await self.inner.ancestors(id, limit))
        return [datum for datum in itertools.takewhile(lambda each: each is not None, found) if datum]

    async def history(self, id: str, limit: int | None) -> list[Version]:
        """Return the kept versions of a record that may be seen, newest first."""
        versions = await self.inner.history(id, limit)
        scopes = await self._scopes()
        shown: list[Version] = []
        for place, version in enumerate(versions):
            older = versions[place + 1].datum if place + 1 < len(versions) else None
            datum = version.datum if version.op == "put" else older
            # Where nothing is left to judge by, or there is a note, the commit itself is looked at.
            commit = await self._commit_of(version) if datum is None or version.note is not None else None
            if datum is None:
                seen = commit is not None and any(item.id == id for item in self._items(scopes, commit))
            else:
                seen = scopes.allow(datum)
            if seen:
                open_ = commit is not None and scopes.filter_change(commit) is commit
                shown.append(version if open_ else msgspec.structs.replace(version, note=None))
        return shown

    def _items(self, scopes: _Scopes, change: Change) -> tuple[Item, ...]:
        shown = scopes.filter_change(change)
        return () if shown is None else shown.items

    async def _commit_of(self, version: Version) -> Change | None:
        return await self._change_at(version.seq)

    async def _change_at(self, seq: int) -> Change | None:
        """Return one commit; None when it was pruned, or has nothing for the feed."""
        try:
            found = await self.inner.changes(seq - 1, 1)
        except HistoryGone:
            return None
        return found[0] if found and found[0].seq == seq else None

    async def changes(self, since: int, limit: int, until: int | None = None) -> list[Change]:
        """Return commits after a seq that changed something that may be seen, in order."""
        found: list[Change] = []
        while len(found) < limit:
            wanted = min(limit - len(found), BATCH)
            batch = await self.inner.changes(since, wanted)
            scopes = await self._scopes()
            for change in batch:
                since = change.seq or since
                if until is not None and since > until:
                    return found
                shown = scopes.filter_change(change)
                found += [] if shown is None else [shown]
            if len(batch) < wanted:
                break
        return found

    async def admit(self, change: Change) -> Change | None:
        """Return a commit from the feed as the principal may see it; None when there is nothing to see."""
        return (await self._scopes()).filter_change(change)

    async def states_before(self, seq: int) -> list[Reverted]:
        """Return the state before a commit of each of its records; refused unless all may be seen."""
        records = await self.inner.states_before(seq)
        now = await self.inner.get_many([record.id for record in records])
        scopes = await self._scopes()
        kept = [datum for datum in (*now, *(record.before for record in records)) if datum is not None]
        change = await self._change_at(seq)
        if not all(map(scopes.allow, kept)) or (
            change is not None and scopes.filter_change(change) is not change
        ):
            self._refuse(f"undo commit {seq}: not all that it changed is theirs to see")
        return records

    # -- writes ---------------------------------------------------------------------------

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do all ops or none, if the principal may; a room with private records judges those that it owns."""
        if self.principal.trust == "untrusted":
            self._refuse("write")
        if self.room is None or self.room != commit.room:
            ops = [self._check_op(op) for op in commit.ops]
            asking = [op.id for op in ops if op.expect is not None or not isinstance(op, Put)]
            hidden = await self._find_hidden(asking) if asking else ()
            if hidden:
                ops = [self._answer_hidden(op) if op.id in hidden else op for op in ops]
            commit = msgspec.structs.replace(commit, ops=ops)
            return _mask(await self._commit(commit, view), hidden)
        if self.room not in reserved.PRIVATE and self.principal.trust == "conversant":
            for op in commit.ops:
                self._check_adds(op)
        return await self._commit(commit, view)

    async def _commit(self, commit: Commit, view: View) -> Committed:
        guard = commit.guard
        if guard is None:
            return await self.inner.commit(commit, view)
        return await self._with_guard(
            guard, lambda read: self.inner.commit(msgspec.structs.replace(commit, guard=read), view)
        )

    async def _with_guard(self, guard: Guard, ask: Callable[[Guard], Awaitable[R]]) -> R:
        """Return an answer that depends on a guard; changes that may not be seen do not conflict.

        Scopes cost reads, so they are looked at only when something is in the way at all.
        """
        self._check_reads()
        try:
            return await ask(guard)
        except (TransactionConflict, Unsupported):
            scopes = await self._scopes()
        return await ask(msgspec.structs.replace(guard, sees=scopes.sees))

    def _check_adds(self, op: Op) -> None:
        """Refuse anything but adding a record to a room; marks of a room do not count."""
        adds = isinstance(op, Put) and op.expect in (0, NEW)
        marks = op.id in reserved.MARKS or op.id.startswith(reserved.CONTENTS)
        if not (adds or marks or isinstance(op, Check)):
            self._refuse(f"change {op.id!r}")

    async def _find_hidden(self, ids: Sequence[str], deleted: bool = False) -> Collection[str]:
        """Return those ids whose records are there and may not be seen; with `deleted` also if they were."""
        try:
            found = await self.inner.get_many(ids)
        except Unavailable:
            # The commit may still be kept until the store is back, where it is checked again.
            if (near := self.at_hand) is self:
                raise
            found = await near.inner.get_many(ids)
        seen = await self._only_seen(found)
        hidden = {id for id, datum, shown in zip(ids, found, seen, strict=True) if datum and not shown}
        gone = [id for id, datum in zip(ids, found, strict=True) if datum is None] if deleted else ()
        return hidden.union([id for id in gone if not await self.history(id, None)])

    def _answer_hidden(self, op: Op) -> Op:
        """Return an op that asks nothing of a hidden record; raises if it fails where there is none."""
        if op.expect not in (None, 0, NEW):
            message = f"{op.id!r} does not exist" + ("" if op.expect == LIVE else f" at rev {op.expect}")
            raise VersionConflict(message, id=op.id, expected=op.expect, actual=0)
        if isinstance(op, Put):
            self._refuse(f"write {op.id!r}")
        return Check(op.id, None)

    def _check_op(self, op: Op) -> Op:
        if isinstance(op, Check):
            return op
        if reserved.is_own(op.id, op.datum.schema if isinstance(op, Put) else None):
            self._refuse(f"write {op.id!r}, which is dgent's own")
        if self.principal.trust != "conversant":
            return op
        # Who may only add takes an id that nobody had: a deleted record stays as its history says.
        if isinstance(op, Delete) or op.expect not in (None, 0, NEW):
            self._refuse(f"change {op.id!r}")
        return Put(op.datum, NEW, op.indexed, op.plain)

    async def forget(
        self,
        ids: Sequence[str],
        author: str,
        room: str | None,
        only_deleted: bool = False,
        at_us: int | None = None,
    ) -> Forgotten:
        """Erase records for good, which is allowed only in the work of a room."""
        if self.room is None or self.room != room:
            self._refuse("forget")
        return await self.inner.forget(ids, author, room, only_deleted, at_us)

    async def compact(self, keep: Keep) -> Compacted:
        """Refuse: compacted history cannot be restored."""
        self._refuse("compact")

    async def drop_index(self, schema: str, path: str) -> None:
        """Refuse: dropping indexes is for those who maintain the store."""
        self._refuse("drop an index")

    # -- what is the same for everyone ----------------------------------------------------

    @property
    def epoch(self) -> bytes:
        """The life of the store that cursors belong to."""
        return getattr(self.inner, "epoch", b"")

    @property
    def degradation(self) -> Any:
        """The time and reason since the store is unavailable; None while it is available."""
        return getattr(self.inner, "degradation", None)

    @property
    def upkeep(self) -> Any:
        """The upkeep of the store; AttributeError where the engine has none."""
        return self.inner.upkeep  # type: ignore[attr-defined]

    async def open(self) -> None:
        """Open the store."""
        await self.inner.open()

    async def close(self) -> None:
        """Close the store."""
        await self.inner.close()

    async def is_available(self) -> bool:
        """Return whether the place can be opened now."""
        return await self.inner.is_available()

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or when time is up."""
        return await self.inner.wait(since, timeout_s)

    async def validate(self, guard: Guard, view: View) -> int:
        """Return the newest seq; raises TransactionConflict when something in the guard was touched."""
        return await self._with_guard(guard, lambda read: self.inner.validate(read, view))

    def known_seq(self) -> int | None:
        """Return the newest seq if it is known without a read."""
        return known_seq(self.inner)

    async def last_seq(self) -> int:
        """Return the newest seq."""
        return await self.inner.last_seq()

    async def seq_at(self, moment: datetime) -> int:
        """Return the newest seq committed at or before a time."""
        return await self.inner.seq_at(moment)

    async def outcome(self, key: str) -> Committed | None:
        """Return the answer to a keyed commit, or None if it never happened."""
        self._check_reads()
        found = await self.inner.outcome(key)
        if found is None:
            return None
        return _mask(found, await self._find_hidden([each.id for each in found.written if each.id], True))

    async def declare(self, declaration: Declaration) -> Declared:
        """Make a schema known to the store."""
        return await self.inner.declare(declaration)

    async def fill(self, schema: str, view: View) -> bool:
        """Index one batch of old records; False when nothing is left to do."""
        return await self.inner.fill(schema, view)

    async def ranks(self, ids: Sequence[str]) -> list[Rank | None]:
        """Return the rank of each record in the order of time."""
        self._check_reads()
        found = await self.inner.ranks(ids)
        hidden = await self._find_hidden([id for id, rank in zip(ids, found, strict=True) if rank], True)
        return [None if id in hidden else rank for id, rank in zip(ids, found, strict=True)]

    async def versions(self, schema: str) -> dict[int, int]:
        """Return how many live records that may be seen there are of each stored version."""
        self._check_reads()
        if self._is_open(schema):
            return await self.inner.versions(schema)
        page = await self.query(Query(schema=schema, limit=None, content=False), STORED)
        return dict(Counter(datum.schema_version or 0 for datum in page.items))

    async def stats(self) -> BackendStats:
        """Return the contents and the condition of the store."""
        return await self.inner.stats()


def _mask(done: Committed, hidden: Collection[str]) -> Committed:
    """Return an answer in which hidden records are as absent ones."""
    if not hidden:
        return done
    written = tuple(Written(each.id, 0, 0, False) if each.id in hidden else each for each in done.written)
    return msgspec.structs.replace(done, written=written)


def _narrow(query: Query, scopes: _Scopes) -> Query:
    before = query.allow
    if before is None:
        return query.replace(allow=scopes.allow)
    return query.replace(allow=lambda datum: before(datum) and scopes.allow(datum))
