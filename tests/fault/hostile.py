"""Values that no one should pass, and every place in the API they can be passed to."""

from __future__ import annotations

import enum
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import dgent
from dgent.store.backend import Check, Delete, Put


class Text(str):
    """A text that says it is another one."""

    def __str__(self) -> str:
        return "'; DROP TABLE datum; --"

    def encode(self, *_: Any) -> bytes:
        return b"'; DROP TABLE datum; --"


class Colour(str, enum.Enum):  # noqa: UP042 - unlike StrEnum, it prints as its own name
    """A text that is a member."""

    RED = "red' OR '1'='1"


TEXTS = [
    "'; DROP TABLE datum; --",
    '" OR ""="',
    "x' UNION SELECT name FROM meta --",
    "%",
    "_%_",
    "*?[a-z]",
    "\\%",
    "a\0b",
    "\0",
    "",
    " ",
    " \t\r\n",
    "../../etc/passwd",
    "/absolute",
    "C:\\nul",
    "file:x?mode=memory",
    ":memory:",
    "$where",
    "$eq",
    "$",
    "$$",
    "a.b.c",
    ".",
    "..",
    "a..b",
    ".a",
    "a\\.b",
    "\\",
    "a\\",
    "a\\b",
    "@author",
    "@parent",
    "@ref",
    "created_at",
    "data",
    "dk",
    "rowid",
    "main",
    "dgent.association",
    "0",
    "00",
    "-1",
    "1e309",
    "NaN",
    "null",
    "true",
    "[]",
    '["a"]',
    "{}",
    "{0}",
    "%s%n",
    "?1",
    ":name",
    "\u202eabc",
    "\u200b",
    "\ufeffbom",
    "e\u0301",
    "\u00e9",
    "\u1100\u1161\u11a8",
    "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0010ffff",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\ud800",
    "x\udfff",
    "\udc80\udcff",
    "\x7f\x80\x1b[2J",
    "İıſK",
    "ß",
    "\u2028",
    "a" * 119,
    "a" * 120,
    "a" * 121,
    "a" * 256,
    "a" * 257,
    "a" * 512,
    "a" * 513,
    "é" * 128,
    "é" * 129,
    "\U0010ffff" * 64,
    "x" * 100_000,
]
THINGS: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63 - 1,
    2**63,
    -(2**63),
    2**70,
    -(2**70),
    1.5,
    float("nan"),
    float("inf"),
    b"bytes",
    b"",
    [],
    ["a"],
    (),
    ("a", "b"),
    {},
    {"a": 1},
    {"$eq": 1},
    {1: 2},
    set(),
    {"a"},
    frozenset({"a", 1}),
    object(),
    object,
    len,
    datetime(2020, 1, 1),
    datetime(2020, 1, 1, tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=14))),
    timedelta(days=1),
    timedelta.max,
    Text("harmless"),
    Colour.RED,
    dgent.Datum(id="d"),
    dgent.Query(),
    ValueError("x"),
]


def value(rng: random.Random) -> Any:
    """One hostile value: listed, or put together from listed ones."""
    kind = rng.random()
    if kind < 0.25:
        return rng.choice(TEXTS)
    if kind < 0.45:
        return rng.choice(THINGS)
    if kind < 0.8:
        return "".join(rng.choice(TEXTS)[:40] for _ in range(rng.randrange(2, 5)))
    letters = [
        chr(rng.choice((rng.randrange(0x20), rng.randrange(0x300), rng.randrange(0x110000))))
        for _ in range(8)
    ]
    return "".join(letters)


Probe = Callable[[Any, Any, str], Awaitable[Any]]
AT = datetime(2024, 1, 1, tzinfo=UTC)


def made(id: str, **fields: Any) -> dgent.Datum:
    return dgent.Datum(id=id, created_at=AT, **fields)


async def _as_id(u: Any, v: Any, n: str) -> Any:
    if v is None:
        return None  # no id is a fresh id
    stored = await u.put(made(v, data={"n": n}))
    assert stored.id == v
    found = [await u.get(v, raw=True), *await u.get_many([v], raw=True)]
    assert all(each.id == v and each.data["n"] == n for each in found)
    assert await u.exists(v)
    near = await u.query(dgent.Query(prefix=v, limit=None), raw=True)
    assert v in {each.id for each in near} and all(each.id.startswith(v) for each in near)
    versions = [(each.rev, each.op, each.id) for each in await u.history(v)]
    return stored, sorted(each.id for each in near), versions, await u.delete(v), await u.exists(v)


async def _as_tag(u: Any, v: Any, n: str) -> Any:
    await u.put(made(n, tags=frozenset({v, "t"})))
    ways: list[dict[str, Any]] = [{"tags": {v}}, {"any_tags": {v}}, {"tags": {v, "t"}}]
    found = [await u.query(dgent.Query(limit=None, **way), raw=True) for way in ways]
    assert all(n in {each.id for each in some} for some in found)
    assert all(v in each.tags for some in found for each in some)
    return found


def _as_name(field: str, asked: str) -> Probe:
    async def probe(u: Any, v: Any, n: str) -> Any:
        more = {"schema_version": 1} if field == "schema" else {}
        await u.put(made(n, **{field: v}, **more))
        if v is None:
            return None
        found = await u.query(dgent.Query(limit=None, **{asked: v}), raw=True)
        assert n in {each.id for each in found} and all(getattr(each, field) == v for each in found)
        return found, await u.count(dgent.Query(**{asked: v}))

    return probe


async def _as_note(u: Any, v: Any, n: str) -> Any:
    await u.put(made(n), note=v)
    (version,) = await u.history(n)
    assert version.note == v
    return version


async def _as_key(u: Any, v: Any, n: str) -> Any:
    first = await u.put(made("keyed", data={"v": repr(type(v))}), key=v)
    again = await u.put(made("keyed", data={"v": repr(type(v))}), key=v)
    assert v is None or (first.rev, first.seq) == (again.rev, again.seq)
    return first, None if v is None else await u.outcome(v)


async def _as_data_key(u: Any, v: Any, n: str) -> Any:
    await u.put(made(n, data={v: n}))
    found = await u.query(dgent.Query(where={(v,): n}), raw=True)
    assert [each.id for each in found] == [n]
    return found, [each.id for each in await u.query(dgent.Query(order_by=(v,), limit=5), raw=True)]


async def _as_data_value(u: Any, v: Any, n: str) -> Any:
    stored = await u.put(made(n, data={"v": v}))
    found = await u.query(dgent.Query(where={"v": {"$eq": v}}, limit=None), raw=True)
    assert n in {each.id for each in found}
    return await u.get(n, raw=True), len(found), stored.rev


async def _asked(u: Any, query: dgent.Query) -> Any:
    page = await u.page(query, raw=True)
    return [each.id for each in page.items], page.cursor is None


def _asking(make: Callable[[Any], dgent.Query]) -> Probe:
    async def probe(u: Any, v: Any, n: str) -> Any:
        return await _asked(u, make(v))

    return probe


async def _drained(u: Any, v: Any, n: str) -> Any:
    return [each.id async for each in u.iterate(dgent.Query(limit=5), as_of=v, raw=True)]


async def _watched(u: Any, v: Any, n: str) -> Any:
    await u.put(made(n))
    if v is None or (isinstance(v, int) and v >= await u.seq()):
        return None
    async for change in u.watch(v):
        return change.seq
    return None


async def _bought(u: Any, v: Any, n: str) -> Any:
    async with u.transaction(note=v) as tx:
        await tx.put(made(n))
        await tx.check(v)


PROBES: dict[str, Probe] = {
    "id": _as_id,
    "tag": _as_tag,
    "schema": _as_name("schema", "schema"),
    "author": _as_name("author", "author"),
    "source": _as_name("source", "source"),
    "parent": _as_name("parent_id", "parent"),
    "note": _as_note,
    "key": _as_key,
    "data key": _as_data_key,
    "data value": _as_data_value,
    "path": _asking(lambda v: dgent.Query(where={v: 1})),
    "operator": _asking(lambda v: dgent.Query(where={"a": {v: 1}})),
    "operand": _asking(lambda v: dgent.Query(where={"a": {"$gt": v}})),
    "choices": _asking(lambda v: dgent.Query(where={"a": {"$in": v}})),
    "where": _asking(lambda v: dgent.Query(where=v)),
    "or": _asking(lambda v: dgent.Query(where={"$or": [{"a": 1}, v]})),
    "order": _asking(lambda v: dgent.Query(order_by=v, limit=5)),
    "limit": _asking(lambda v: dgent.Query(limit=v)),
    "offset": _asking(lambda v: dgent.Query(offset=v, limit=5)),
    "cursor": _asking(lambda v: dgent.Query(cursor=v, limit=5)),
    "since": _asking(lambda v: dgent.Query(since=v, limit=5)),
    "tags": _asking(lambda v: dgent.Query(tags=v, limit=5)),
    "query": lambda u, v, n: u.query(v),
    "created_at": lambda u, v, n: u.put(dgent.Datum(id=n, created_at=v)),
    "content": lambda u, v, n: u.put(made(n, content=v)),
    "data": lambda u, v, n: u.put(made(n, data=v)),
    "extra": lambda u, v, n: u.put(made(n, extra=v)),
    "tag set": lambda u, v, n: u.put(made(n, tags=v)),
    "version": lambda u, v, n: u.put(made(n, schema="s", schema_version=v)),
    "put": lambda u, v, n: u.put(v),
    "put_many": lambda u, v, n: u.put_many([made(n), v]),
    "expect": lambda u, v, n: u.put(made(n), expect=v),
    "ops": lambda u, v, n: u.commit([Put(made(n)), v]),
    "delete op": lambda u, v, n: u.commit([Delete(v)]),
    "check op": lambda u, v, n: u.commit([Put(made(n)), Check(v, 0)]),
    "kind": lambda u, v, n: u.commit([Put(made(n))], kind=v),
    "of_seq": lambda u, v, n: u.commit([Put(made(n))], of_seq=v),
    "commit": lambda u, v, n: u.commit(v),
    "as_of": lambda u, v, n: u.get("keyed", as_of=v, raw=True),
    "query as_of": lambda u, v, n: u.count(dgent.Query(prefix="k"), as_of=v),
    "iterate": _drained,
    "history": lambda u, v, n: u.history("keyed", limit=v),
    "changes": lambda u, v, n: u.changes(v, limit=2),
    "changes limit": lambda u, v, n: u.changes(0, limit=v),
    "watch": _watched,
    "undo": lambda u, v, n: u.undo(v),
    "undo only": lambda u, v, n: u.undo(1, only=v),
    "forget": lambda u, v, n: u.forget(v),
    "outcome": lambda u, v, n: u.outcome(v),
    "chain": lambda u, v, n: u.causal_chain(v),
    "referrers": lambda u, v, n: u.referrers(v),
    "referrers limit": lambda u, v, n: u.referrers("keyed", limit=v),
    "associated": lambda u, v, n: u.associated(v),
    "associate": lambda u, v, n: u.associate("keyed", v),
    "dissociate": lambda u, v, n: u.dissociate("keyed", v),
    "drop index": lambda u, v, n: u.drop_index("s", v),
    "drop schema": lambda u, v, n: u.drop_index(v, "a"),
    "versions": lambda u, v, n: u.versions(v),
    "list": lambda u, v, n: u.list(v, limit=5),
    "list after": lambda u, v, n: u.list(after=v, limit=5),
    "list limit": lambda u, v, n: u.list(limit=v),
    "get_many": lambda u, v, n: u.get_many(v),
    "transaction": _bought,
    "compact": lambda u, v, n: u.compact(v),
}

HASHED = {"tag", "path", "operator", "data key"}
"""Places inside a set or as a key of a dict, where Python itself refuses some values."""
