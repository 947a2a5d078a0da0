"""The writes of a universe."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from dgent import ids
from dgent.errors import InputError, Unsupported, VersionConflict
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum, stamp, stamp_fresh
from dgent.model.schema import Schema
from dgent.store.backend import Commit, Committed, Delete, Expect, Guard, Kind, Op, Put
from dgent.system.collector import pause
from dgent.universe import search, write
from dgent.universe.gate import Gate
from dgent.universe.handle import UniverseHandle
from dgent.universe.transaction import Transaction, transact

if TYPE_CHECKING:
    from dgent.store.port.attached import BoundStatement
    from dgent.store.port.statement import Params

T = TypeVar("T")
R = TypeVar("R")


class UniverseWriter(UniverseHandle):
    """The writes of a universe: records, commits and transactions."""

    async def commit(
        self,
        ops: Sequence[Op],
        *,
        key: str | None = None,
        guard: Guard | None = None,
        note: str | None = None,
        kind: Kind = "data",
        of_seq: int | None = None,
        statements: tuple[BoundStatement, ...] = (),
    ) -> Committed:
        """Do all ops or none: the one way to change anything.

        `statements` are those that `check_statement` returned, and are done or not with the ops.
        """
        self._check()
        if self._undeclared:
            await self._ready()
        commit = Commit(ops, key, guard, self.author, note, kind, of_seq, self._room, statements=statements)
        done = await self.backend.commit(commit, self.contracts)
        if any(type(op) is Put and op.datum.extra is not None for op in ops):  # they are checked by now
            self._expiry.start(self._as_universe())
        if self._texts:
            self._count_texts(ops)
        return done

    async def check_statement(
        self, query: str, params: Params | None = None, *, reads: bool = False
    ) -> BoundStatement:
        """Return a statement on the caller's own tables for a commit; Denied below partner trust.

        One that `reads` is compared with the answer that it gave before.
        Unsupported where records and tables are not in one database.
        """
        await self._ready()
        if isinstance(self.backend, Gate):
            _ = self.storage.relational  # raises Denied
        check: Any = getattr(self.backend, "check_statement", None)
        if check is None or "url" in self._life.storage.get("relational", {}):
            raise Unsupported(
                f"no statement can be part of a transaction of {self.backend.name}, which has no tables",
                hint="sqlite and postgres can do it, where storage.relational.url is not set",
            )
        found: BoundStatement = await check(query, params, reads)
        return found

    def _count_texts(self, ops: Sequence[Op]) -> None:
        """Start to index texts when enough records were written."""
        for op in ops:
            schema = op.datum.schema or "" if isinstance(op, Put) else None
            if schema in self._texts:
                if self._embedding is not None:
                    self._embedding.wake()
                self._texts[schema] += 1
                if self._texts[schema] >= search.FOLD_AT:
                    self._texts[schema] = 0
                    self._builds.start(self.backend, schema, self.contracts)

    @overload
    async def remember(  # type: ignore[overload-overlap]  # a dict is no T of a contract
        self, value: dict[str, Any], *, schema: None = None, **fields: Any
    ) -> Datum: ...
    @overload
    async def remember(
        self,
        value: T,
        *,
        schema: str | type | Schema[Any] | None = None,
        id: str | None = None,
        tags: Iterable[str] | None = None,
        author: str | None = None,
        source: str | None = None,
        parent: Any = None,
        parent_id: str | None = None,
        content: bytes = b"",
        created_at: datetime | None = None,
        expires_at: datetime | None = None,
        expect: Expect = None,
        key: str | None = None,
        note: str | None = None,
    ) -> Crystal[T]: ...
    async def remember(  # type: ignore[misc]  # the `fields` are those below
        self,
        value: T,
        *,
        schema: str | type | Schema[Any] | None = None,
        id: str | None = None,
        tags: Iterable[str] | None = None,
        author: str | None = None,
        source: str | None = None,
        parent: Any = None,
        parent_id: str | None = None,
        content: bytes = b"",
        created_at: datetime | None = None,
        expires_at: datetime | None = None,
        expect: Expect = None,
        key: str | None = None,
        note: str | None = None,
    ) -> Crystal[T] | Datum:
        """Store a value and return it as a crystal; its type says of which schema it is, or `schema` does.

        A dict without a schema becomes a plain datum, which comes back as `get` gives it. What caused it is
        its `parent`: a crystal, a datum or an id; or `parent_id`. No read shows it after `expires_at`.
        """
        self._check()
        if parent_id is not None:
            if parent is not None:
                raise InputError("parent and parent_id cannot be combined", hint="give one of them")
            parent = parent_id
        usual = schema is None and id is None and author is None and source is None and parent is None
        if usual and created_at is None and expires_at is None and key is None and not content:
            if expect is None and note is None and not self._undeclared:
                together = self._fresh.put(
                    self.backend, self.contracts, value, tags, self.author, self._room, self._texts
                )
                fresh = None if together is None else await together
                if fresh is not None:
                    return Crystal(fresh, value, fresh.schema or "", fresh.schema_version or 1)
            op = write.fresh_op(self.contracts, value, tags, self.author, expect)
            if op is not None:
                stored = await self._put(op, None, note)
                return Crystal(stored, value, stored.schema or "", stored.schema_version or 1)
        datum, settled = write.new_datum(
            self.contracts,
            value,
            schema=schema,
            id=id,
            tags=tags,
            author=self.author if author is None else author,
            source=source,
            parent=parent,
            content=content,
            created_at=created_at,
            expires_at=expires_at,
            key=key,
        )
        if expires_at is not None:
            self._expiry.start(self._as_universe())
        stored = await self._put(Put(datum, expect, None, True), key, note)
        if datum.schema is None:
            return stored
        return Crystal(stored, settled, datum.schema, datum.schema_version or 1)

    async def store(
        self, thing: Any, *, expect: Expect = None, key: str | None = None, note: str | None = None
    ) -> Any:
        """Store a changed crystal, or a datum; with `expect=crystal.rev` only if nobody was faster."""
        self._check()
        op, value = write.store_op(self.contracts, thing, expect)
        stored = await self._put(op, key, note)
        if isinstance(thing, Crystal):
            return Crystal(stored, value, stored.schema or "", stored.schema_version or 1)
        return stored

    async def update(
        self, crystal: Crystal[T], /, *, expect: Expect | write.Read = "read", **fields: Any
    ) -> Crystal[T]:
        """Store a crystal with fields of its value changed: `await u.update(note, weight=8)`.

        Raises VersionConflict if the record was changed since the crystal was read; `expect=None` overwrites.
        """
        self._check()
        op, value = write.update_op(self.contracts, crystal, fields, expect)
        try:
            stored = await self._put(op, None, None)
        except VersionConflict as error:
            write.add_update_hint(error)
            raise
        return Crystal(stored, value, stored.schema or "", stored.schema_version or 1)

    async def put(
        self, datum: Datum, *, expect: Expect = None, key: str | None = None, note: str | None = None
    ) -> Datum:
        """Store a datum as it is; returns it with its rev and seq.

        Where its schema has a ttl it gets its time; a new datum may name another one as `expires_at`.
        """
        self._check()
        if isinstance(datum, Datum) and datum.extra is not None:
            self._expiry.start(self._as_universe())
        return await self._put(write.put_op(self.contracts, datum, expect), key, note)

    async def _put(self, op: Put, key: str | None, note: str | None) -> Datum:
        # As `commit` does, without another coroutine: single records are written all day.
        if self._undeclared:
            await self._ready()
        commit = Commit((op,), key, None, self.author, note, room=self._room)
        done = await self.backend.commit(commit, self.contracts)
        if self._texts:
            self._count_texts((op,))
        written = done.written[0]
        if written.rev == 1 and written.changed and not done.repeated:
            if op.raw is not None:
                return stamp_fresh(op.datum, 1, written.seq, written.at_us)
            return stamp(op.datum, 1, written.seq, written.at_us, self.author)
        return (await write.apply_written(self.backend, (op.datum,), done, self.author))[0]

    async def put_many(
        self, datums: Iterable[Datum], *, key: str | None = None, note: str | None = None
    ) -> builtins.list[Datum]:
        """Store many datums in one commit: all or none."""
        self._check()
        if not isinstance(datums, Iterable):
            raise InputError(f"put_many takes datums, not {type(datums).__name__}", field="datums")
        many = builtins.list(datums)
        with pause(len(many)):
            ops = [write.put_op(self.contracts, datum, None) for datum in many]
        if not ops:
            return []
        done = await self.commit(ops, key=key, note=note)
        return await write.apply_written(self.backend, [op.datum for op in ops], done, self.author)

    async def delete(
        self, id: str, *, expect: Expect = None, key: str | None = None, note: str | None = None
    ) -> bool:
        """Delete a record; False when there was none. Its history stays until `forget`."""
        self._check()
        done = await self.commit((Delete(ids.check_id(id), expect),), key=key, note=note)
        return bool(done.written) and done.written[0].changed

    async def outcome(self, key: str) -> Committed | None:
        """Return the answer to a write with an idempotency key; None if it never happened."""
        await self._ready()
        return await self.backend.outcome(ids.check_id(key, "key"))

    def transaction(self, *, note: str | None = None) -> Transaction:
        """Return a transaction for reads and changes, all or none: `async with u.transaction() as tx`."""
        self._check()
        return Transaction(self._as_universe(), note)

    async def transact(
        self,
        work: Callable[[Transaction], Awaitable[R]],
        *,
        attempts: int = 8,
        lock: str | None = None,
        note: str | None = None,
    ) -> R:
        """Run a function in a transaction, again when another commit was faster.

        Calls of this process that name the same `lock` queue up instead of conflicting.
        """
        return await transact(self._as_universe(), work, attempts, lock, note)
