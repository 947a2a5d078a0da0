"""Verbs for distinct values of fields, and for tags, with their counts."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import msgspec

from dgent.errors import InputError
from dgent.model import reserved
from dgent.store.tally import Counts
from dgent.verbs import parse
from dgent.verbs.context import Context
from dgent.verbs.data.record import All
from dgent.verbs.registry import Ask, AsOf, argument, option, verb

Prefix = Annotated[str | None, option("only texts that begin so", short="p")]
Limit = Annotated[int | None, option("at most so many", short="n")]


class ValueCount(msgspec.Struct, frozen=True):
    """A value, and the number of records that have it."""

    value: Any
    count: int


class ValueCounts(msgspec.Struct, frozen=True):
    """Distinct values in their order, each with the number of records that have it."""

    items: list[ValueCount]


class CountValues(Ask):
    """Input of `data.values`."""

    schema: Annotated[str, argument("the schema of the records", complete="schema")]
    path: Annotated[str, argument("a path into the data; labels.* are the items of lists")]
    where: Annotated[
        tuple[str, ...], option("only of records with weight>=3, author=ann, or JSON", short="w")
    ] = ()
    prefix: Prefix = None
    limit: Limit = 100
    as_of: AsOf = None


class CountTags(Ask):
    """Input of `data.tags`."""

    schema: Annotated[str | None, argument("only of records of this schema", complete="schema")] = None
    prefix: Prefix = None
    limit: Limit = 100
    all: All = False
    as_of: AsOf = None


@verb("data.values", effect="read", errors=(InputError,))
async def values(context: Context, ask: CountValues) -> ValueCounts:
    """List the distinct values of a field, with the number of records that have each."""
    u = await context.universe()
    where = parse.where(ask.where)
    filters = {} if where is None else {"where": where}
    point = parse.point(ask.as_of)
    found = await u.values(
        ask.schema, ask.path, prefix=ask.prefix, limit=ask.limit, as_of=point, partial=True, **filters
    )
    return _answer(found)


@verb("data.tags", effect="read", errors=(InputError,))
async def tags(context: Context, ask: CountTags) -> ValueCounts:
    """List the tags of records, with the number of records that have each."""
    u = await context.universe()
    point = parse.point(ask.as_of)
    if ask.schema is not None or ask.all:
        found = await u.tags(ask.schema, prefix=ask.prefix, limit=ask.limit, as_of=point, partial=True)
        return _answer(found)
    counts = Counter(dict(await u.tags(prefix=ask.prefix, as_of=point, partial=True)))
    # An index counts those of each schema, so that no record has to be read to leave some out.
    for schema in await u.schemas(partial=True):
        if reserved.is_reserved(schema.name):
            counts -= Counter(dict(await u.tags(schema.name, prefix=ask.prefix, as_of=point, partial=True)))
    return _answer(sorted(counts.items())[: ask.limit])


def _answer(found: Counts) -> ValueCounts:
    return ValueCounts([ValueCount(value, count) for value, count in found])
