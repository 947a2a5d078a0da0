"""The read and write part of the contract of engines, on records that are rows of a table."""

from __future__ import annotations

import base64
from collections.abc import Generator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, Column, DateTime, Integer, LargeBinary, MetaData, String, Table

from dgent import clock, codec
from dgent.errors import Unsupported
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Check, Commit, Committed, Delete, Page, Put, View, Written
from dgent.tables import Place, TableAdapter, connect
from dgent.testing.basic import BasicContract
from dgent.testing.contract import Factory
from tests.tables.known_gaps import GAPS

RECORDS = Table(
    "records",
    MetaData(),
    Column("id", String, primary_key=True),
    Column("created_at", DateTime(timezone=True)),
    Column("data", JSON),
    Column("content", LargeBinary),
    *(Column(name, JSON) for name in ("tags", "extra")),
    *(Column(name, String) for name in ("author", "source", "causal_parent", "schema")),
    *(Column(name, Integer) for name in ("schema_version", "rev", "seq", "at_us", "deleted", "place")),
)


class TableBackend:
    """As much of an engine as a table can be: each record is a row, and there is no history."""

    name, priority = "table", 0

    def __init__(self, folder: Path) -> None:
        self._url = f"sqlite:///{folder / 'records.db'}"
        self._seq = 0

    async def open(self) -> None:
        """Make the table."""
        self._place: Place = await connect(self._url)
        async with self._place.engine.begin() as connection:
            await connection.run_sync(RECORDS.create)
        self._rows: TableAdapter[Any] = TableAdapter(RECORDS, self._place.sessions)

    async def close(self) -> None:
        """Close the file."""
        await self._place.close()

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Put and delete rows, one after the other."""
        at_us = clock.to_us(clock.now())
        seq = self._seq + 1
        written = [await self._apply(op, commit.author, seq, at_us) for op in commit.ops]
        if any(each.changed for each in written):
            self._seq = seq
        return Committed(self._seq, tuple(written))

    async def _apply(self, op: Any, author: str, seq: int, at_us: int) -> Written:
        row = await self._rows.get(op.id)
        old = {} if row is None else row.data
        rev, live = old.get("rev", 0), bool(old) and not old["deleted"]
        same = Written(op.id, rev, old.get("seq"), False, old.get("at_us"))
        if isinstance(op, Check) or (isinstance(op, Delete) and not live):
            return same
        new = {**old, "deleted": 1} if isinstance(op, Delete) else _write(op.datum.check(op.plain), author)
        if live and isinstance(op, Put):
            new["created_at"] = old["created_at"]
        if all(_same(new[name], old.get(name, ...)) for name in new):
            return same
        new.update(rev=rev + 1, seq=seq, at_us=at_us, place=old.get("place", seq))
        await self._rows.put(Datum(id=op.id, data=new))
        return Written(op.id, rev + 1, seq, True, at_us)

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """Return a record as it is now."""
        if as_of is not None:
            raise Unsupported("a table has no past")
        row = await self._rows.get(id)
        return None if row is None or row.data["deleted"] else _read(row.data)

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """Return one answer for each id."""
        return [await self.get(id, as_of) for id in ids]

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """Return the records that match."""
        rows = await self._rows.query(where={"deleted": 0}, limit=None)
        found = [each for each in map(_read, (row.data for row in rows)) if query.matches(each)]
        found.sort(key=query.sort_key, reverse=query.descending)
        return Page(found[query.offset : None if query.limit is None else query.offset + query.limit])

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        """Return how many records match."""
        return len((await self.query(query.replace(limit=None, offset=0), view)).items)


def _write(datum: Datum, author: str) -> dict[str, Any]:
    return {
        "id": datum.id,
        "created_at": datum.created_at.isoformat(),
        "data": datum.data,
        "content": base64.b64encode(datum.content).decode(),
        "tags": sorted(datum.tags),
        "extra": datum.extra,
        "author": datum.author or author,
        "source": datum.source,
        "causal_parent": datum.parent_id,
        "schema": datum.schema,
        "schema_version": datum.schema_version,
        "deleted": 0,
    }


def _read(data: dict[str, Any]) -> Datum:
    return Datum(
        id=data["id"],
        created_at=datetime.fromisoformat(data["created_at"]),
        data=data["data"],
        content=base64.b64decode(data["content"]),
        tags=frozenset(data["tags"]),
        extra=data["extra"],
        author=data["author"],
        source=data["source"],
        parent_id=data["causal_parent"],
        schema=data["schema"],
        schema_version=data["schema_version"],
        rev=data["rev"],
        seq=data["seq"],
        updated_at=clock.from_us(data["at_us"]),
    )


def _same(left: Any, right: Any) -> bool:
    return right is not ... and codec.canonical(left) == codec.canonical(right)


class TestTable(BasicContract):
    """A table passes the contract, but for the gaps."""

    @pytest.fixture(autouse=True)
    def _skip_gaps(self, request: pytest.FixtureRequest) -> Generator[None]:
        """Skip what the table of gaps names."""
        reason = GAPS.get(f"BasicContract.{request.node.originalname}")
        if reason is not None:
            pytest.skip(reason)
        yield

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Factory:
        """A factory of backends over one table."""

        async def make() -> Backend:
            made: Any = TableBackend(tmp_path)
            return made  # type: ignore[no-any-return]

        return make
