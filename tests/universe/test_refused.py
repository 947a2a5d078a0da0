"""What cannot be stored is refused before anything is written, and the field is named."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

import dgent
from tests.cupboard.conftest import few_engines as engine
from tests.universe.marks import Mark, mark

__all__ = ["engine"]  # whatever is refused here is refused before an engine sees it


@dataclass(frozen=True)
class Note:
    text: str = ""
    number: int = 0
    ratio: float = 0.0
    map: dict[str, Any] = field(default_factory=dict)
    at: datetime | None = None


NOTE = dgent.Schema("test.note", contract=Note)

BAD_VALUES: dict[str, tuple[Note, str]] = {
    "NaN": (Note(ratio=math.nan), "ratio"),
    "infinity": (Note(ratio=-math.inf), "ratio"),
    "NaN deep inside": (Note(map={"a": [{"b": math.nan}]}), "map.a.0.b"),
    "half a surrogate pair": (Note(text="\ud800"), "text"),
    "half a surrogate pair as a key": (Note(map={"\udfff": 1}), "map"),
    "a key that is not text": (Note(map={1: 2}), "map"),  # type: ignore[dict-item]
    "65 bits": (Note(number=2**64), "number"),
    "65 bits inside": (Note(map={"n": -(2**63) - 1}), "map.n"),
    "a time without a zone": (Note(at=datetime(2024, 1, 1)), "at"),
    "something that is no data": (Note(map={"f": object()}), "map.f"),
}


@pytest.fixture(autouse=True)
def _registered(u: dgent.Universe) -> None:
    u.register(NOTE)


async def refused(u: dgent.Universe, work: Coroutine[Any, Any, Any], *names: str) -> dgent.InputError:
    before = await u.seq(), await u.count()
    with pytest.raises(dgent.InputError) as raised:
        await work
    assert (await u.seq(), await u.count()) == before
    assert raised.value.code in ("input", "query")
    for name in names:
        assert name in str(raised.value)
    return raised.value


@pytest.mark.parametrize("case", BAD_VALUES)
async def test_values(u: dgent.Universe, case: str) -> None:
    value, name = BAD_VALUES[case]
    await refused(u, u.remember(value), name)
    kept = await u.remember(Note())
    await refused(u, u.store(kept.replace(value=value)), name)

    async def in_transaction() -> None:
        async with u.transaction() as tx:
            await tx.remember(Note("fine"))
            await tx.remember(value)

    await refused(u, in_transaction(), name)


async def test_every_wrong_field_is_named_at_once(u: dgent.Universe) -> None:
    wrong = Mark(1, "fine", None, tags=("fine", 2))  # type: ignore[arg-type]
    error = await refused(u, u.remember(wrong), "action", "author", "tags.1")
    assert set(error.details["fields"]) == {"action", "author", "tags.1"}
    kept = await u.remember(mark())
    await refused(u, u.store(kept.replace(value=wrong)), "action", "author", "tags.1")
    await refused(u, u.store(kept.replace(value="no mark")), "Mark")


async def test_raw_data_is_looked_at_too(u: dgent.Universe) -> None:
    for bad in ({"a": math.nan}, {"a": "\ud800"}, {1: 1}, {"a": 2**64}, {"a": {"b": object()}}, []):
        datum = dgent.Datum(data=bad)  # type: ignore[arg-type]
        await refused(u, u.put(datum))
        await refused(u, u.put_many([dgent.Datum(), datum]))
    deep: Any = {}
    for _ in range(70):
        deep = {"d": deep}
    await refused(u, u.put(dgent.Datum(data=deep)), "deeper")


BAD_ENVELOPES: dict[str, tuple[str, dict[str, Any]]] = {
    "an empty id": ("id", {"id": ""}),
    "a NUL in the id": ("id", {"id": "a\0b"}),
    "an id of 513 bytes": ("id", {"id": "é" * 256 + "x"}),
    "an id that is no text": ("id", {"id": 7}),
    "an id that cannot be hashed": ("id", {"id": ["x"]}),
    "tags that are one text": ("tags", {"tags": "eureka"}),
    "a tag that is no text": ("tags", {"tags": {1}}),
    "too many tags": ("tags", {"tags": {str(n) for n in range(65)}}),
    "a source that is no text": ("source", {"source": b"x"}),
    "a parent that is no text": ("parent", {"parent": 12}),
    "content that is text": ("content", {"content": "x"}),
    "a time without a zone": ("zone", {"created_at": datetime(2024, 1, 1)}),
    "a time that is text": ("created_at", {"created_at": "today"}),
}


@pytest.mark.parametrize("case", BAD_ENVELOPES)
async def test_envelopes(u: dgent.Universe, case: str) -> None:
    name, fields = BAD_ENVELOPES[case]
    await refused(u, u.remember(mark(), **fields), name)

    async def in_transaction() -> None:
        async with u.transaction() as tx:
            await tx.remember(mark("fine"))
            await tx.remember(mark(), **fields)

    await refused(u, in_transaction(), name)


BAD_CALLS: dict[str, Callable[[dgent.Universe], Any]] = {
    "get": lambda u: u.get(""),
    "get many": lambda u: u.get_many(["fine", 1]),
    "get many of one text": lambda u: u.get_many("x"),
    "put many of one": lambda u: u.put_many(dgent.Datum()),
    "versions of a number": lambda u: u.versions(7),
    "upgrade all of a number": lambda u: u.upgrade_all(7),
    "a lens that is none": lambda u: u.focus("x", "lens").get(),
    "get as of a float": lambda u: u.get("x", as_of=1.5),
    "get as of a negative": lambda u: u.get("x", as_of=-1),
    "get as of a naive time": lambda u: u.get("x", as_of=datetime(2024, 1, 1)),
    "get as of True": lambda u: u.get("x", as_of=True),
    "exists": lambda u: u.exists(None),
    "delete": lambda u: u.delete(b"x"),
    "expect": lambda u: u.delete("x", expect=-1),
    "expect text": lambda u: u.put(dgent.Datum(), expect="1"),
    "key": lambda u: u.put(dgent.Datum(), key=""),
    "put a dict": lambda u: u.put({"a": 1}),
    "put many dicts": lambda u: u.put_many([{"a": 1}]),
    "the same id twice": lambda u: u.put_many([dgent.Datum(id="x"), dgent.Datum(id="x")]),
    "query a dict": lambda u: u.query({"schema": "x"}),
    "page a text": lambda u: u.page("x"),
    "recall a number": lambda u: u.recall(3),
    "count a text": lambda u: u.count("x"),
    "list after a text": lambda u: u.list(after="now"),
    "list after a naive time": lambda u: u.list(after=datetime(2024, 1, 1)),
    "list a number": lambda u: u.list(prefix=3),
    "history of nothing": lambda u: u.history(""),
    "history limit": lambda u: u.history("x", limit=0),
    "history limit of text": lambda u: u.history("x", limit="3"),
    "changes limit": lambda u: u.changes(0, limit=0),
    "changes since text": lambda u: u.changes("0"),
    "changes since before the beginning": lambda u: u.changes(-1),
    "undo zero": lambda u: u.undo(0),
    "undo text": lambda u: u.undo("1"),
    "watch text": lambda u: anext(u.watch(since="1")),
    "watch by a dict": lambda u: anext(u.watch(since=0, query={"schema": "x"})),
    "iterate a text": lambda u: anext(u.iterate("x")),
    "chain of nothing": lambda u: u.causal_chain(""),
    "compact text": lambda u: u.compact("all"),
    "compact True": lambda u: u.compact(True),
    "forget a number": lambda u: u.forget(3),
    "outcome of nothing": lambda u: u.outcome(""),
    "resolve an id": lambda u: u.resolve("x"),
    "referrers limit": lambda u: u.referrers("x", limit=0),
    "weight": lambda u: u.associate("a", "b", weight="heavy"),
    "weight NaN": lambda u: u.associate("a", "b", weight=math.nan),
    "kind": lambda u: u.associate("a", "b", kind=""),
    "dissociate": lambda u: u.dissociate("a", None),
}


@pytest.mark.parametrize("case", BAD_CALLS)
async def test_calls(u: dgent.Universe, case: str) -> None:
    async def call() -> None:
        await BAD_CALLS[case](u)

    await refused(u, call())
