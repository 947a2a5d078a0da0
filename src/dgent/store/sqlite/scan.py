"""The SQL of scans: walks of index entries in order, and the columns of rows."""

from __future__ import annotations

from functools import cache
from typing import Any

from dgent.store.engine.catalog import high, low
from dgent.store.engine.kernel import IndexScan
from dgent.store.engine.row import Brief, columns_of

COLUMNS = "dk, id, rev, seq, live, t, at, schema, sv, author, source, parent, tags, enc, fk, x, data"
PREFIXED = ", ".join("d." + column for column in COLUMNS.split(", "))
BRIEF = ", ".join("d." + field for field in columns_of(Brief)[:-1])
_DIGITS = ", ".join(
    f"substr(hex(d.id), {first}, {count})" for first, count in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
)
ID_TEXT = f"iif(typeof(d.id) = 'blob', lower(printf('%s-%s-%s-%s-%s', {_DIGITS})), d.id)"
"""The id of a row as text; for statements that read few of them, since Python unpacks ids quicker."""
BETWEEN = "e.ix = ? AND (e.key, e.t, e.dk) >= (?, ?, ?) AND (e.key, e.t, e.dk) < (?, ?, ?)"
# One key and all times: a plain comparison is checked quicker, row by row, than a range of triples.
ONE_KEY = "e.ix = ? AND e.key = ?"
WALKED, FETCHED = "e.key, " + PREFIXED, BRIEF


def order(descending: bool) -> str:
    """Return the order of a scan."""
    return "ORDER BY e.key DESC, e.t DESC, e.dk DESC" if descending else "ORDER BY e.key, e.t, e.dk"


@cache
def walk_sql(
    columns: str, between: str, others: int, author: bool, sole: bool, descending: bool, content: bool
) -> str:
    """Return the statement that reads the rows of a scan in its order."""
    body = "d.content" if content else "NULL"
    limit = " LIMIT ?" if columns == FETCHED else ""
    return (
        f"SELECT {columns}, {body} FROM {scan_sql(between, others, author, sole, rows=True)}"
        f" {order(descending)}{limit}"
    )


@cache
def scan_sql(between: str, others: int, author: bool, sole: bool, rows: bool = False) -> str:
    """Return the tables and conditions of a scan; the rows take part if they are needed.

    `sole` says that the bits of tags in an entry prove that its record is in the others.
    """
    # CROSS JOIN keeps the index as the outer loop, so rows come in its order without a sort.
    tables, conditions = "entry e", between
    if others:
        conditions += " AND ~coalesce(e.tags, -1) & ? = 0"  # spares most of the looks into the others
    for other in (f"o{place}" for place in range(others)):
        same = f"{other}.ix = ? AND {other}.key = ? AND {other}.t = e.t AND {other}.dk = e.dk"
        if sole:
            conditions += f" AND (e.tags IS NOT NULL OR EXISTS (SELECT 1 FROM entry {other} WHERE {same}))"
        else:
            tables += f" CROSS JOIN entry {other}"
            conditions += f" AND {same}"
    if rows or author:
        tables += " CROSS JOIN datum d ON d.dk = e.dk"
    return f"{tables} WHERE {conditions}{' AND d.author = ?' if author else ''}"


def bounds(scan: IndexScan) -> tuple[str, tuple[Any, ...]]:
    """Return the condition for the entries of a scan, and its values after the number of the index."""
    return (ONE_KEY, scan.low[:1]) if is_one_key(scan) else (BETWEEN, scan.low + scan.high)


def has_one_key(scan: IndexScan) -> bool:
    """Return whether all entries in a scan have the same key."""
    return scan.high[0] == scan.low[0] or scan.high == high(scan.low[0])


def is_one_key(scan: IndexScan) -> bool:
    """Return whether a scan is all entries of one key."""
    key = scan.low[0]
    return scan.low == low(key) and scan.high == high(key)


@cache
def times_sql(scans: int, between: str, descending: bool) -> str:
    """Return the statement for the time of the entry at a distance from the beginning of each scan."""
    one = f"(SELECT e.t FROM entry e WHERE {between} {order(descending)} LIMIT 1 OFFSET ?)"
    return "SELECT " + ", ".join([one] * scans)
