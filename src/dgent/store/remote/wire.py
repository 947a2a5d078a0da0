"""Values of a store as they are sent over HTTP, in MessagePack. Both ends decode them by their types.

Data of records stays the JSON that the store keeps: a server passes it on without reading it.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import msgspec

from dgent import clock, codec
from dgent.errors import Corrupt, InputError, Unsupported
from dgent.model.contract.scalar import Kind as ScalarKind
from dgent.model.datum import Blank, Datum
from dgent.model.query import Query
from dgent.model.where import All, Condition, Negated, Part
from dgent.store.backend import (
    Change,
    Check,
    Delete,
    Expect,
    Guard,
    Item,
    Op,
    Page,
    Put,
    Shaped,
)
from dgent.store.engine.check import check_op

_T_FIRST, _T_LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999


class _Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of what is sent."""


class WireDatum(_Wire, frozen=True, array_like=True):
    """A record; its times are microseconds, `data` and `extra` are JSON."""

    id: str
    us: int
    data: bytes
    tags: list[str]
    author: str | None
    schema: str | None
    schema_version: int | None
    rev: int | None
    seq: int | None
    at_us: int | None
    content: bytes = b""
    source: str | None = None
    parent_id: str | None = None
    problem: str | None = None
    extra: bytes | None = None


def pack_datum(datum: Datum) -> WireDatum:
    """Return a record as it is sent."""
    raw = datum.raw
    updated = datum.updated_at if datum._at is None else None
    return WireDatum(
        datum.id,
        datum._us if datum._created_at is None else clock.to_us(datum.created_at),
        codec.encode(datum.data) if raw is None else raw,
        sorted(datum.tags),
        datum.author,
        datum.schema,
        datum.schema_version,
        datum.rev,
        datum.seq,
        datum._at if updated is None else clock.to_us(updated),
        datum.content,
        datum.source,
        datum.parent_id,
        datum.problem,
        None if datum.extra is None else codec.encode(datum.extra),
    )


def unpack_datum(sent: WireDatum) -> Datum:
    """Return a record that was sent; its data is decoded when somebody looks."""
    if not _T_FIRST <= sent.us <= _T_LAST or not (sent.at_us is None or _T_FIRST <= sent.at_us <= _T_LAST):
        raise InputError("a time is outside the years 1 to 9999", field="created_at")
    new = object.__new__(Blank)
    new.id, new._us, new._created_at, new._raw, new._data = sent.id, sent.us, None, sent.data, None
    new.content, new.tags, new.author, new.source = (
        sent.content,
        frozenset(sent.tags),
        sent.author,
        sent.source,
    )
    new.parent_id, new.schema, new.schema_version = sent.parent_id, sent.schema, sent.schema_version
    new.rev, new.seq, new.problem = sent.rev, sent.seq, sent.problem
    new.extra = None if sent.extra is None else _map_of(sent.extra)
    new._updated_at, new._at = None, sent.at_us
    new.__class__ = Datum
    return new  # type: ignore[return-value]


def _map_of(raw: bytes) -> dict[str, Any]:
    try:
        found = codec.decode(raw)
    except Corrupt as error:
        raise InputError(f"what was sent is not JSON: {error.message}") from None
    if type(found) is not dict:
        raise InputError("what was sent is not a map")
    return found


# -- commits ------------------------------------------------------------------------------


class WireOp(_Wire, frozen=True, array_like=True):
    """One op of a commit."""

    op: Literal["put", "delete", "check"]
    expect: Expect
    id: str | None = None
    datum: WireDatum | None = None
    indexed: tuple[int, bytes] | None = None


def pack_op(op: Op) -> WireOp:
    """Return an op as it is sent; what cannot be stored is refused here."""
    check_op(op)
    if isinstance(op, Delete):
        return WireOp("delete", op.expect, op.id)
    if isinstance(op, Check):
        return WireOp("check", op.expect, op.id)
    datum = op.datum
    if op.raw is not None:
        sent = msgspec.structs.replace(pack_datum(datum), data=op.raw)
    else:
        datum = datum.check(op.plain)
        if datum.extra is not None:
            datum = datum.replace(extra=codec.plain(datum.extra))
        sent = pack_datum(datum)
    indexed = None if op.indexed is None else (op.indexed.version, codec.encode(op.indexed.data))
    return WireOp("put", op.expect, None, sent, indexed)


def unpack_op(sent: WireOp) -> Op:
    """Return an op that was sent. Nothing about it is believed: the store checks it as any other."""
    if sent.op == "put":
        if sent.datum is None:
            raise InputError("a put has no record", field="datum")
        datum = unpack_datum(sent.datum)
        datum = datum.replace(data=_map_of(sent.datum.data), problem=None)
        shaped = None if sent.indexed is None else Shaped(sent.indexed[0], _map_of(sent.indexed[1]))
        return Put(datum, sent.expect, shaped)
    if sent.id is None:
        raise InputError(f"a {sent.op} has no id", field="id")
    return Delete(sent.id, sent.expect) if sent.op == "delete" else Check(sent.id, sent.expect)


# -- queries ------------------------------------------------------------------------------


class WireQuery(_Wire, frozen=True, omit_defaults=True):
    """A query; its times are microseconds, `where` is a tree of arrays."""

    schema: str | None = None
    tags: list[str] = []
    any_tags: list[str] = []
    author: str | None = None
    source: str | None = None
    parent: str | None = None
    parents: list[str] | None = None
    ids: list[str] | None = None
    prefix: str | None = None
    since: int | None = None
    until: int | None = None
    updated_since: int | None = None
    updated_until: int | None = None
    where: list[Any] | None = None
    order_by: str | list[str] = "created_at"
    descending: bool = True
    limit: int | None = 100
    offset: int = 0
    cursor: str | None = None
    content: bool = True
    expired: bool = False


_TIMES = ("since", "until", "updated_since", "updated_until")
_SAME = (
    "schema",
    "author",
    "source",
    "parent",
    "prefix",
    "descending",
    "limit",
    "offset",
    "cursor",
    "content",
    "expired",
)


def pack_query(query: Query) -> WireQuery:
    """Return a query as it is sent."""
    if query.allow is not None:
        raise Unsupported("a query with a function cannot be sent to a server", field="allow")
    fields: dict[str, Any] = {name: getattr(query, name) for name in _SAME}
    for name in _TIMES:
        at = getattr(query, name)
        fields[name] = None if at is None else clock.to_us(at)
    return WireQuery(
        **fields,
        tags=sorted(query.tags),
        any_tags=sorted(query.any_tags),
        parents=None if query.parents is None else sorted(query.parents),
        ids=None if query.ids is None else sorted(query.ids),
        where=None if query.where is None else _pack_part(query.filter),
        order_by=query.order_by if isinstance(query.order_by, str) else list(query.order_by),
    )


def unpack_query(sent: WireQuery) -> Query:
    """Return a query that was sent, checked as any other."""
    fields: dict[str, Any] = {name: getattr(sent, name) for name in _SAME}
    for name in _TIMES:
        at = getattr(sent, name)
        fields[name] = None if at is None else time_of(at)
    return Query(
        **fields,
        tags=frozenset(sent.tags),
        any_tags=frozenset(sent.any_tags),
        parents=None if sent.parents is None else frozenset(sent.parents),
        ids=None if sent.ids is None else frozenset(sent.ids),
        where=None if sent.where is None else _unpack_part(sent.where),
        order_by=sent.order_by if isinstance(sent.order_by, str) else tuple(sent.order_by),
    )


def _pack_part(part: Part) -> list[Any]:
    if isinstance(part, Condition):
        many = isinstance(part.value, tuple)
        value = [pack_value(each) for each in part.value] if many else pack_value(part.value)
        return ["is", list(part.path), part.op, value]
    if isinstance(part, Negated):
        return ["not", _pack_part(part.part)]
    return ["all" if isinstance(part, All) else "any", *map(_pack_part, part.parts)]


def _unpack_part(sent: Any) -> dict[Any, Any]:
    """Return the conditions of a query in the form that callers write."""
    match sent:
        case ["is", [*path], str(op), [*value]] if all(isinstance(each, str) for each in path):
            many = op in ("$in", "$nin")
            return {tuple(path): {op: [*map(unpack_value, value)] if many else unpack_value(value)}}
        case ["not", part]:
            return {"$not": _unpack_part(part)}
        case ["any", *parts]:
            return {"$or": [*map(_unpack_part, parts)]}
        case ["all", *parts]:
            made = [*map(_unpack_part, parts)]
            joined = {key: value for each in made for key, value in each.items()}
            # Conditions of different fields need no level of their own: levels are counted.
            return joined if len(joined) == len(made) else {"$and": made}
    raise InputError("a condition of the query cannot be read", field="where")


def pack_value(value: Any) -> list[Any]:
    """Return a value of a field as it is sent."""
    if isinstance(value, Decimal):
        return ["decimal", str(value)]
    if isinstance(value, timedelta):
        return ["duration", value // timedelta(microseconds=1)]
    if isinstance(value, time):
        return ["time", value.isoformat()]
    return ["json", codec.encode(value)]


def unpack_value(sent: Any) -> Any:
    """Return a value that was sent."""
    try:
        match sent:
            case ["json", bytes(raw)]:
                return codec.decode(raw)
            case ["decimal", str(text)] if len(text) <= 1000:
                return Decimal(text)
            case ["duration", int(us)]:
                return timedelta(microseconds=us)
            case ["time", str(text)]:
                return time.fromisoformat(text)
    except (Corrupt, InvalidOperation, ValueError, OverflowError):
        pass
    raise InputError("a value of the query cannot be read", field="where")


# -- how the caller sees records ----------------------------------------------------------


class SeenField(_Wire, frozen=True, array_like=True):
    """A field that a caller's contract reads otherwise than it is stored."""

    path: list[str]
    kind: ScalarKind | None = None
    default: bytes | None = None  # as JSON


class SeenSchema(_Wire, frozen=True, array_like=True):
    """A schema as the caller of a query sees it: its version, and the fields of the query."""

    name: str
    version: int
    fields: list[SeenField] = []


class WireView(_Wire, frozen=True, omit_defaults=True):
    """A caller's view; `part` as for a PartView. Of `known` schemas only the version matters."""

    schemas: list[SeenSchema] = []
    known: dict[str, int] = {}
    part: Literal["kept", "gone"] | None = None


class WireGuard(_Wire, frozen=True):
    """The reads of a transaction."""

    since: int
    ids: list[str]
    queries: list[WireQuery]


def pack_guard(guard: Guard) -> WireGuard:
    """Return the reads of a transaction as they are sent."""
    if guard.sees is not None:
        raise Unsupported("a guard with a function cannot be sent to a server", field="sees")
    return WireGuard(guard.since, sorted(guard.ids), [*map(pack_query, guard.queries)])


def unpack_guard(sent: WireGuard) -> Guard:
    """Return the reads of a transaction that were sent."""
    return Guard(sent.since, frozenset(sent.ids), tuple(map(unpack_query, sent.queries)))


# -- answers ------------------------------------------------------------------------------


class WirePage(_Wire, frozen=True):
    """A page of records."""

    items: list[Datum]
    explain: str = ""
    cursor: str | None = None
    partial: bool = False


def pack_page(page: Page) -> WirePage:
    """Return a page as it is sent."""
    return WirePage(page.items, page.explain, page.cursor, page.partial)


class WireItem(_Wire, frozen=True, array_like=True):
    """One record in a change."""

    op: Literal["put", "delete", "forget"]
    id: str | None
    rev: int
    schema: str | None = None
    datum: Datum | None = None
    last: Datum | None = None


class WireChange(_Wire, frozen=True):
    """One commit; its records beside it, because those of a Change may be anything."""

    change: Change
    items: list[WireItem]


def pack_change(change: Change) -> WireChange:
    """Return a commit as it is sent."""
    items = [
        WireItem(each.op, each.id, each.rev, each.schema, each.datum, each.last) for each in change.items
    ]
    return WireChange(msgspec.structs.replace(change, items=()), items)


def unpack_change(sent: WireChange) -> Change:
    """Return a commit that was sent."""
    items = (Item(each.op, each.id, each.rev, each.schema, each.datum, each.last) for each in sent.items)
    return msgspec.structs.replace(sent.change, items=tuple(items))


class Hello(_Wire, frozen=True):
    """The caller as the server knows it, and the store."""

    format: int
    agent: str
    trust: str
    engine: str
    epoch: bytes
    seq: int


def time_of(us: int) -> datetime:
    """Return the moment of a number of microseconds."""
    if not _T_FIRST <= us <= _T_LAST:
        raise InputError("a time is outside the years 1 to 9999", field="moment")
    return clock.from_us(us)
