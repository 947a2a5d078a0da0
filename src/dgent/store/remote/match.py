"""Queries that only the caller can answer: it reads what may match, and compares that itself.

Its contracts convert records of older versions; a server has none of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dgent.errors import CursorInvalid
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Page, View

MOST_HERE = 100_000  # records that are read to answer one query
_MARK = "here"


def widen(query: Query) -> Query:
    """Return a query for all records that may match, in the order of those that do, as far as times say."""
    order = "created_at" if query.order_path is not None else query.order_by
    return query.replace(where=None, order_by=order, limit=MOST_HERE, offset=0, cursor=None)


def match(query: Query, view: View, datums: Iterable[Datum]) -> list[Datum]:
    """Return the records that match, in order; they are given in the order of time."""
    found = [datum for datum in datums if query.matches(datum, view.shape)]
    if query.order_path is not None:
        # Stable, in either direction: equal ones stay in the order of time.
        found.sort(key=lambda datum: query.order_key(view.shape(datum)), reverse=query.descending)
    return found


def cut_page(query: Query, found: list[Datum]) -> Page:
    """Return the page that a query asks for; its cursor is the number of records before it."""
    start = query.offset if query.cursor is None else _place_of(query)
    end = len(found) if query.limit is None else start + query.limit
    cursor = f"{_MARK}.{query.digest().hex()}.{end}"
    return Page(found[start:end], "compared by the client", (lambda: cursor) if end < len(found) else None)


def is_cursor_here(query: Query) -> bool:
    """Return whether a query goes on after a page of `cut_page`."""
    return query.cursor is not None and query.cursor.startswith(_MARK + ".")


def _place_of(query: Query) -> int:
    parts = (query.cursor or "").split(".")
    if len(parts) != 3 or parts[1] != query.digest().hex() or not parts[2].isdecimal() or len(parts[2]) > 9:
        raise CursorInvalid("this cursor belongs to another query")
    return int(parts[2])
