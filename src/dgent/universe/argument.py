"""Checking what callers of a universe hand in, before anything is asked of the store."""

from __future__ import annotations

from typing import Any

from dgent.errors import InputError, QueryError
from dgent.model.query import Query


def check_query(query: Query) -> Query:
    if not isinstance(query, Query):
        raise InputError(f"this takes a Query, not {type(query).__name__}", field="query")
    return query


def query_of(query: Query | None, filters: dict[str, Any]) -> Query:
    """The query itself, or the one that the filters make; both at once narrow the first."""
    if query is not None:
        check_query(query)
    try:
        if query is None:
            return Query(**filters)
        return query.replace(**filters) if filters else query
    except TypeError as error:
        raise QueryError(str(error), hint="see the fields of Query") from None


def check_limit(limit: int | None) -> int | None:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InputError(f"limit must be a whole number from 1, not {limit!r}", field="limit")
    return limit


def check_since(since: int) -> int:
    if type(since) is not int or since < 0:
        raise InputError(f"since is a seq, 0 or more, not {since!r}", field="since")
    return since
