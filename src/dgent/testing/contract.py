"""The base of every contract class: the store under test, and short ways to use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, cast

import pytest

from dgent import clock
from dgent.errors import DgentError
from dgent.model.contract.lookup import Lookup
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import (
    Backend,
    Commit,
    Committed,
    Delete,
    Op,
    Put,
    SchemaStats,
    StoredView,
    View,
    Written,
)

Factory: TypeAlias = Callable[[], Awaitable[Backend]]
"""Makes a backend, not opened yet; each call of one test is a handle on the same place."""

STORED = StoredView()
DAY = datetime(2026, 1, 1, tzinfo=UTC)


class Contract:
    """Inherit from a subclass, and give it a fixture `backend` that returns a `Factory`."""

    persistent = False
    """True if a second handle, at the same time or later, finds what the first one stored."""

    @pytest.fixture
    async def store(self, backend: Factory) -> AsyncIterator[Backend]:
        """Open an empty store."""
        async with open_handle(backend) as store:
            yield store


@asynccontextmanager
async def open_handle(backend: Factory) -> AsyncIterator[Backend]:
    """Open one more handle on the test's place, closed at the end."""
    store = await backend()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def record(id: str, n: Any = 0, *, day: float = 0, **fields: Any) -> Datum:
    """Return a small record; `day` sets its time of creation."""
    fields.setdefault("data", {"n": n})
    return Datum(id=id, created_at=DAY + timedelta(days=day), **fields)


def typed_record(id: str, n: Any = 0, *, schema: str = "note", version: int = 1, **fields: Any) -> Datum:
    """Return a small record of a schema."""
    return record(id, n, schema=schema, schema_version=version, **fields)


class Numbered(Committed, frozen=True):
    """The answer of an engine: it has a seq, because only an outbox has none."""

    seq: int


async def commit(store: Backend, *ops: Op, view: View = STORED, **fields: Any) -> Numbered:
    """Commit some ops at once."""
    answer = await store.commit(Commit(list(ops), **fields), view)
    assert type(answer.seq) is int and not answer.pending
    return cast("Numbered", answer)


async def put(store: Backend, *records: Datum, **fields: Any) -> Numbered:
    """Put some records in one commit."""
    return await commit(store, *map(Put, records), **fields)


async def delete(store: Backend, *ids: str, **fields: Any) -> Numbered:
    """Delete some records in one commit."""
    return await commit(store, *map(Delete, ids), **fields)


def stored_fields(written: Written) -> dict[str, Any]:
    """Return the fields that a commit gives a record, to compare what was put with what is stored."""
    assert written.at_us is not None
    return {"rev": written.rev, "seq": written.seq, "updated_at": clock.from_us(written.at_us)}


async def find_ids(
    store: Backend,
    query: Query | None = None,
    *,
    view: View = STORED,
    as_of: int | None = None,
    **fields: Any,
) -> list[str]:
    """Return the ids a query gives, in order."""
    page = await store.query(query or Query(**fields), view, as_of)
    return [datum.id for datum in page.items]


async def find_ids_by_page(store: Backend, query: Query, view: View = STORED) -> list[str]:
    """Return the ids a query gives when it is read page by page."""
    ids: list[str] = []
    while True:
        page = await store.query(query, view)
        assert query.limit is None or len(page.items) <= query.limit
        ids += [datum.id for datum in page.items]
        if page.cursor is None:
            return ids
        assert len(page.items) == query.limit, "only the last page may be short"
        query = query.replace(cursor=page.cursor)


async def expect_error(code: str, call: Awaitable[object]) -> DgentError:
    """Return the error of a call that must fail with a code; it has a message and is one of ours."""
    with pytest.raises(DgentError) as caught:
        await call
    error = caught.value
    assert error.code == code, f"wanted {code}, got {error.code}: {error}"
    assert error.message
    return error


def expected_ids(records: Sequence[Datum], query: Query, view: View = STORED) -> list[str]:
    """Return the ids a query must give, worked out without an index; `records` in order of first commit."""
    matching = [
        (query.sort_key(datum, shape), place, datum.id)
        for place, datum in enumerate(records)
        if query.matches(datum, shape := view.shape(datum))
    ]
    matching.sort(reverse=query.descending)
    end = None if query.limit is None else query.offset + query.limit
    return [id for *_, id in matching[query.offset : end]]


def expect_all(records: Sequence[Datum], queries: Iterable[Query]) -> list[tuple[Query, list[str]]]:
    """Return each query with all ids that it must give on all of its pages."""
    return [(query, expected_ids(records, query.replace(limit=None, offset=0))) for query in queries]


async def check_queries(store: Backend, expected: Iterable[tuple[Query, list[str]]]) -> None:
    """Compare the store's results and counts with the expected ones, at once and page by page."""
    for place, (query, everything) in enumerate(expected):
        end = None if query.limit is None else query.offset + query.limit
        assert await find_ids(store, query) == everything[query.offset : end], query
        assert await store.count(query, STORED) == len(everything), query
        if everything and place % 3 == 0:
            size = max(1, len(everything) // 3)
            assert await find_ids_by_page(store, query.replace(limit=size, offset=0)) == everything, query


async def everything(store: Backend, ids: Iterable[str]) -> dict[str, object]:
    """Return the answers of every kind of read, to compare before and after a call that changes nothing."""
    ids = list(ids)
    histories = [await store.history(id, None) for id in ids]
    page = await store.query(Query(limit=None), STORED)
    return {
        "seq": await store.last_seq(),
        "get": await store.get_many(ids),
        "history": histories,
        "query": page.items,
        "count": await store.count(Query(), STORED),
        "changes": await store.changes(0, 1000),
    }


class Steps:
    """A caller that knows `note` up to a version: 1 has `n`, 2 calls it `number`, 3 adds `double`."""

    lazy = False

    def __init__(self, version: int) -> None:
        self.known = version

    def version(self, schema: str) -> int | None:
        """Return the version of a schema that the caller has registered."""
        return self.known if schema == "note" else None

    def shape(self, datum: Datum) -> Mapping[str, Any]:
        """Return the data converted to the known version; as stored when that cannot be done."""
        if datum.schema != "note" or datum.schema_version is None or datum.schema_version >= self.known:
            return datum.data
        data = dict(datum.data)
        try:
            if datum.schema_version < 2 <= self.known:
                data["number"] = data.pop("n")
            if self.known >= 3:
                data["double"] = data["number"] * 2
        except (KeyError, TypeError):
            return datum.data
        return data

    def upgrade(self, datum: Datum) -> Mapping[str, Any] | None:
        """Return the data of another version in the known one; None when that cannot be done."""
        find_ids = self.shape(datum)
        return None if find_ids is datum.data else find_ids

    def lookup(self, schema: str) -> Lookup | None:
        """Return None: the caller has no contract."""
        return None


async def fill(store: Backend, view: View, schema: str = "note") -> int:
    """Index to the end; return how many batches it took."""
    batches = 1
    while await store.fill(schema, view):
        batches += 1
        assert batches < 100, "fill does not come to an end"
    return batches


async def stats_of(store: Backend, schema: str = "note") -> SchemaStats:
    """Return the store's statistics of one schema."""
    (stats,) = [stats for stats in (await store.stats()).schemas if stats.name == schema]
    return stats
