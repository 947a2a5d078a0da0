"""Verbs for relations of records: causes and associations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from dgent.errors import InputError, NotFound
from dgent.model.crystal import Crystal
from dgent.universe import relation
from dgent.verbs.context import Context
from dgent.verbs.data.answer import Records, record_of
from dgent.verbs.data.record import find_record
from dgent.verbs.registry import Ask, Items, PastAsk, argument, option, verb


class Associate(Ask):
    """Input of `data.associate`."""

    a: Annotated[str, argument("the id of the one", complete="id")]
    b: Annotated[str, argument("the id of the other", complete="id")]
    kind: Annotated[str, option("what kind of link", short="k")] = "related"
    weight: Annotated[float, option("how strong it is")] = 1.0


class RecordLink(msgspec.Struct, frozen=True):
    """A link from one record to another."""

    id: str
    a: str
    b: str
    kind: str
    weight: float
    created_at: datetime


@verb("data.associate", effect="write", errors=(InputError, NotFound))
async def associate(context: Context, ask: Associate) -> RecordLink:
    """Link two records."""
    u = await context.universe()
    a, b = (await find_record(u, ask.a)).id, (await find_record(u, ask.b)).id
    return _link(await u.associate(a, b, ask.kind, ask.weight))


class Associated(PastAsk):
    """Input of `data.associated`."""

    id: Annotated[str, argument("the record's id", complete="id")]
    kind: Annotated[str | None, option("only links of this kind", short="k")] = None


@verb("data.associated", effect="read", errors=(NotFound,))
async def associated(context: Context, ask: Associated) -> Items[RecordLink]:
    """List the links of a record."""
    u = await context.universe(ask.as_of)
    id = (await find_record(u, ask.id)).id
    return Items([_link(link) for link in await u.associated(id, ask.kind)])


class FollowParents(PastAsk):
    """Input of `data.chain`."""

    id: Annotated[str, argument("the record's id", complete="id")]


@verb("data.chain", effect="read", errors=(NotFound,))
async def chain(context: Context, ask: FollowParents) -> Records:
    """Show a record and what caused it, oldest first."""
    u = await context.universe(ask.as_of)
    links = await u.causal_chain((await find_record(u, ask.id)).id)
    return Records([record_of(each.datum if isinstance(each, Crystal) else each) for each in links])


def _link(link: Crystal[relation.Association]) -> RecordLink:
    value = link.value
    return RecordLink(link.id, value.a, value.b, value.kind, value.weight, link.created_at)
