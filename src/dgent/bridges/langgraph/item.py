"""The items of LangGraph's store as records: their schemas, ids and values, filters, and times to live."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import isfinite
from sys import byteorder
from typing import Any

import msgspec
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import Item, SearchItem

from dgent import clock, codec, ids
from dgent.bridges.key import record_id
from dgent.bridges.langgraph.record import part_of, printable
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.model.vector import Metric, check_spec

ITEM: Schema[Any] = Schema("langgraph.item", indexes=("place",), text={"*": 1})
LONGEST = 5e8  # minutes; a longer time to live would end after the last date that there is

METRICS: dict[str, Metric] = {"cosine": "cosine", "l2": "l2", "inner_product": "dot"}
_serde = JsonPlusSerializer()
_JSON, _TYPED = b"j", b"t"

Namespace = tuple[str, ...]


class VersionedItem(Item):
    """An item with the number of its version, for `put(..., expect=item.rev)`."""

    __slots__ = ("rev",)

    def __init__(self, *, rev: int, **fields: Any) -> None:
        super().__init__(**fields)
        self.rev = rev


class ItemChange(msgspec.Struct, frozen=True):
    """A change of an item, as the feed gives it; `item` is None for a deletion."""

    seq: int | None
    at: datetime
    author: str
    id: str
    item: VersionedItem | None


def vector_schema(dims: int, distance: str) -> Schema[Any]:
    """Return the schema of the vectors of items: each of one text of an item."""
    spec = check_spec(dims, METRICS[distance])
    name = f"langgraph.vector.{dims}-{distance}"
    return Schema(name, indexes=("place",), vector=spec, history="none", feed=False)


def place_of(namespace: Iterable[str]) -> str:
    """Return the place of a namespace: all below it begin with it."""
    return "".join(part_of(label).replace(".", "~2") + "." for label in namespace)


def labels_of(place: str) -> Namespace | None:
    """Return the namespace of a place; None where a label of it is hashed, so that only a record says it."""
    if "~h" in place:
        return None
    return tuple(ids.unescape(part.replace("~2", ".")) for part in place.split(".")[:-1])


def within(schema: str, prefix: Namespace, **rest: Any) -> Query:
    """Return a query for the records in the namespaces that begin with one."""
    place = place_of(prefix)
    # The place ends in ".", and "/" is the character after it.
    where = {"place": {"$gte": place, "$lt": place[:-1] + "/"}} if place else None
    return Query(schema=schema, where=where, **{"limit": None, **rest})


def item_id(namespace: Namespace, key: str) -> str:
    """Return the id of an item."""
    return record_id("langgraph-item", place_of(namespace), key)


def part_id(kind: str, item: str, path: str = "") -> str:
    """Return the id of a record that belongs to an item."""
    return record_id(f"langgraph-{kind}", item, path)


def make_item(
    namespace: Namespace,
    key: str,
    value: Mapping[str, Any],
    ttl: float | None,
    paths: Sequence[str],
    before: Datum | None,
) -> Datum:
    """Return the record of an item; what JSON cannot hold exactly is kept beside it."""
    exact = [list(namespace), key, value]
    content = b"" if _is_plain(exact) else _pack(exact)
    data: dict[str, Any] = {"place": place_of(namespace), "namespace": list(namespace), "key": key}
    data["value"] = dict(value)
    if content:
        data = printable(data)
    if ttl is not None:
        data["ttl"] = float(ttl)
    if paths:
        data["vectors"] = list(paths)
    return Datum(
        item_id(namespace, key),
        None if before is None else before.created_at,
        data,
        content,
        schema=ITEM.name,
        schema_version=ITEM.version,
        expires_at=None if ttl is None else clock.from_us(clock.now_us()) + lifetime_of(ttl),
    )


def read_item(datum: Datum, score: float | None = None, search: bool = False) -> Any:
    """Return the item of a record; with `search` as a search gives it."""
    if datum.content:
        namespace, key, value = _unpack(datum.content)
    else:
        namespace, key, value = datum.data["namespace"], datum.data["key"], datum.data["value"]
    fields: dict[str, Any] = {
        "namespace": tuple(namespace),
        "key": key,
        "value": value,
        "created_at": datum.created_at,
        "updated_at": updated_of(datum),
    }
    return SearchItem(**fields, score=score) if search else VersionedItem(**fields, rev=datum.rev or 0)


def updated_of(datum: Datum) -> datetime | None:
    """Return the time of an item's last change: one that was imported has that of its source."""
    updated = datum.data.get("updated_us")
    return datum.updated_at if updated is None else clock.from_us(updated)


def value_of(datum: Datum) -> Any:
    """Return the value of an item's record."""
    return _unpack(datum.content)[2] if datum.content else datum.data["value"]


def namespace_of(datum: Datum) -> Namespace:
    """Return the namespace of an item's record."""
    return tuple(_unpack(datum.content)[0] if datum.content else datum.data["namespace"])


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Return whether dgent's data can hold a value exactly."""
    kind = type(value)
    if kind is str:
        return codec.is_text(value)
    if value is None or kind is bool:
        return True
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    if kind is float:
        return isfinite(value)
    if depth > codec.MAX_DEPTH // 2:
        return False
    if kind is dict:
        return all(type(key) is str and codec.is_text(key) for key in value) and all(
            _is_plain(each, depth + 1) for each in value.values()
        )
    return kind is list and all(_is_plain(each, depth + 1) for each in value)


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str for key in value) and all(map(_is_json, value.values()))
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or type(value) in (str, bool, int, float)


def _pack(exact: Any) -> bytes:
    if _is_json(exact):
        return _JSON + json.dumps(exact).encode()  # also NaN, and halves of surrogate pairs as escapes
    kind, data = _serde.dumps_typed(exact)
    return _TYPED + kind.encode() + b"\0" + data


def _unpack(content: bytes) -> Any:
    if content[:1] == _JSON:
        return json.loads(content[1:])
    kind, _, data = content[1:].partition(b"\0")
    return _serde.loads_typed((kind.decode(), data))


def vector_bytes(numbers: Iterable[float]) -> bytes:
    """Return numbers as a vector is stored: little-endian, 32 bits each."""
    made = array("f", numbers)
    if byteorder == "big":
        made.byteswap()
    return made.tobytes()


def lifetime_of(ttl: float) -> timedelta:
    """Return a time to live that is given in minutes."""
    return timedelta(minutes=min(ttl, LONGEST))


# -- filters ------------------------------------------------------------------------------


OPERATORS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


def check_filter(wanted: Any) -> None:
    """Raise ValueError for a filter with an operator that is not known."""
    if isinstance(wanted, dict):
        unknown = [key for key in wanted if str(key).startswith("$") and key not in OPERATORS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not a valid operator (use {', '.join(OPERATORS)})")
        for each in wanted.values():
            check_filter(each)


def fits(value: Any, wanted: Any) -> bool:
    """Return whether a value passes a filter: a plain value, a map of keys, or operators."""
    if isinstance(wanted, dict):
        if any(str(key).startswith("$") for key in wanted):
            return all(_compare(value, operator, operand) for operator, operand in wanted.items())
        return isinstance(value, dict) and all(fits(value.get(key), each) for key, each in wanted.items())
    if isinstance(wanted, list | tuple):
        same = isinstance(value, list | tuple) and len(value) == len(wanted)
        return same and all(map(fits, value, wanted))
    return bool(value == wanted)


def _compare(value: Any, operator: str, operand: Any) -> bool:
    if operator in ("$eq", "$ne"):
        return bool(value == operand) is (operator == "$eq")
    try:
        left, right = float(value), float(operand)
    except (TypeError, ValueError):
        if not (isinstance(value, str) and isinstance(operand, str)):
            return False
        left, right = value, operand  # type: ignore[assignment]
    return {"$gt": left > right, "$gte": left >= right, "$lt": left < right, "$lte": left <= right}[operator]
