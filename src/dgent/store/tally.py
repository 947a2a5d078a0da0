"""Distinct values of a field, or tags, with the number of records that have each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from dgent import codec
from dgent.model import order
from dgent.model import path as paths
from dgent.model.datum import Datum
from dgent.model.query import Query

if TYPE_CHECKING:
    from dgent.store.backend import View

Counts: TypeAlias = list[tuple[Any, int]]
"""Values in their order, each with the number of records that have it."""


class Tally(msgspec.Struct, frozen=True):
    """The records to look at, and the path whose values are counted; None counts their tags.

    A path that ends with `*` counts the items of lists. `prefix` is the beginning of texts that count,
    `limit` the number of values.
    """

    query: Query
    path: str | None
    prefix: str | None = None
    limit: int | None = None

    def everything(self) -> Query:
        """Return the query for all records to look at, the oldest first."""
        query = self.query
        return query.replace(
            limit=None, offset=0, cursor=None, content=False, order_by="created_at", descending=False
        )


def count_tags(tally: Tally, counts: Mapping[str, int]) -> Counts:
    """Return the tags that a tally asks for, in order, of those with a count."""
    prefix = tally.prefix or ""
    found = sorted(tag for tag, count in counts.items() if count and tag.startswith(prefix))
    return [(tag, counts[tag]) for tag in found[: tally.limit]]


def count_records(tally: Tally, view: View, datums: Iterable[Datum]) -> Counts:
    """Return what a tally asks for, from records that are given the oldest first."""
    if tally.path is None:
        tags: dict[str, int] = {}
        for datum in datums:
            for tag in datum.tags:
                tags[tag] = tags.get(tag, 0) + 1
        return count_tags(tally, tags)
    found: dict[tuple[bytes, bytes], list[Any]] = {}
    for datum in datums:
        for key, value in values_at(view.shape(datum), tally).items():
            found.setdefault(key, [value, 0])[1] += 1
    return [(value, count) for _, (value, count) in sorted(found.items(), key=lambda each: each[0])][
        : tally.limit
    ]


def values_at(data: Mapping[str, Any], tally: Tally) -> dict[tuple[bytes, bytes], Any]:
    """Return the values of one record that count, each under a key that sorts it and equals no other's."""
    assert tally.path is not None
    inside = paths.list_path(tally.path)
    value = paths.read(data, paths.parse(tally.path) if inside is None else inside)
    values = [value] if inside is None else value if isinstance(value, list | tuple) else []
    prefix = tally.prefix
    return {
        (order.key(each), codec.canonical(each) if isinstance(each, list | dict) else b""): each
        for each in values
        if each is not paths.MISSING
        and (prefix is None or (isinstance(each, str) and each.startswith(prefix)))
    }
