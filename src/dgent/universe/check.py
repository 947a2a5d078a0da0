"""Check the arguments of a universe's calls before the store is asked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dgent import clock
from dgent.errors import InputError, QueryError, Unavailable
from dgent.model.query import Query
from dgent.store.backend import AsOf, Backend, BackendStats, SchemaStats
from dgent.system.near import nearest

_LAST_US = clock.to_us(datetime.max.replace(tzinfo=UTC))


def check_query(query: Query) -> Query:
    if not isinstance(query, Query):
        hint = ""
        if isinstance(query, type):
            hint = f"u.collection({query.__name__}) has the same calls for records of one type"
        raise InputError(f"this takes a Query, not {query!r:.80}", hint=hint, field="query")
    return query


def query_of(query: Query | None, filters: dict[str, Any]) -> Query:
    """Return the query, or the one that the filters make; both at once narrow the query."""
    if query is not None:
        check_query(query)
    if "parent_id" in filters:  # as a Datum calls it
        filters = {**filters, "parent": filters["parent_id"]}
        del filters["parent_id"]
    for name in filters:
        if name not in Query.__struct_fields__:
            hint = (
                nearest(name, Query.__struct_fields__)
                or f"where={{{name!r}: …}} asks for a field of the data"
            )
            raise QueryError(f"a query has no {name!r}", hint=hint, field=name)
    if query is None:
        return Query(**filters)
    return query.replace(**filters) if filters else query


def check_limit(limit: int | None) -> int | None:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InputError(f"limit must be a whole number from 1, not {limit!r}", field="limit")
    return limit


def check_since(since: int) -> int:
    if type(since) is not int or since < 0:
        raise InputError(f"since is a seq, 0 or more, not {since!r}", field="since")
    return since


def since_after(after: datetime) -> datetime | None:
    """Return the first moment after a time; None after the last."""
    if not isinstance(after, datetime):
        raise InputError(f"after must be a datetime, not {type(after).__name__}", field="after")
    moment = clock.to_us(after)
    return None if moment >= _LAST_US else clock.from_us(moment + 1)


def schemas_of(stats: BackendStats, partial: bool) -> list[SchemaStats]:
    """Return the schemas of a store; Unavailable when they are those of the local copy, unless `partial`."""
    if stats.details.get("degraded") and not partial:
        raise Unavailable(
            f"the schemas are known only in {stats.place}, which cannot be reached",
            hint="pass partial=True to read the local copy, or try again when it is back",
            degraded=True,
        )
    return list(stats.schemas)


async def seq_of(backend: Backend, as_of: AsOf) -> int | None:
    """Return the seq to read at; None is now."""
    if as_of is None:
        return None
    if isinstance(as_of, datetime):
        clock.to_us(as_of)
        return await backend.seq_at(as_of)
    if type(as_of) is not int or as_of < 0:
        raise InputError(f"as_of is a seq or an aware datetime, not {as_of!r}", field="as_of")
    return as_of
