"""A handle that acts for somebody does no more than that one may, also where a room works on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.cupboard import Cupboard
from dgent.universe.gate import Principal
from dgent.universe.token import create_token
from dgent.verbs.caller import Caller
from dgent.verbs.path import invoke


@pytest.fixture
async def u() -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:", author="ann") as universe:
        await universe.put(dgent.Datum("open", data={"n": 1}))
        yield universe


def acting(u: dgent.Universe, trust: Any, name: str = "eve") -> dgent.Universe:
    return u.acting(Principal(name, trust))


READS: dict[str, Callable[[dgent.Universe], Awaitable[object]]] = {
    "get": lambda u: u.get("open"),
    "get_many": lambda u: u.get_many(["open"]),
    "exists": lambda u: u.exists("open"),
    "query": lambda u: u.query(),
    "query of a schema": lambda u: u.query(schema="witness.mark"),
    "count": lambda u: u.count(),
    "count of a schema": lambda u: u.count(schema="witness.mark"),
    "list": lambda u: u.list(),
    "as of": lambda u: u.get("open", as_of=1),
    "history": lambda u: u.history("open"),
    "changes": lambda u: u.changes(0),
    "watch": lambda u: anext(aiter(u.watch(0))),
    "causal_chain": lambda u: u.causal_chain("open"),
    "undo": lambda u: u.undo(1),
    "crumbs": lambda u: Cupboard(u).crumbs.fetch(),
    "blocks": lambda u: Library(u, "eve", trust="untrusted").list(),
}


@pytest.mark.parametrize("what", READS)
async def test_who_is_not_trusted_reads_nothing(u: dgent.Universe, what: str) -> None:
    with pytest.raises(dgent.Denied):
        await READS[what](acting(u, "untrusted"))


async def test_a_room_writes_no_more_than_the_handle_may(u: dgent.Universe) -> None:
    whole = Cupboard(u)
    crumb = await whole.add("work")
    lock = await whole.stashes.create("lock", "lock")
    with pytest.raises(dgent.Denied):
        await Cupboard(acting(u, "untrusted")).add("more")
    conversant = Cupboard(acting(u, "conversant"))
    await conversant.add("more", parents=crumb)
    await conversant.comment(crumb, "a word")
    before = await u.seq()
    crumb.name = "other work"
    for change in (
        conversant.crumbs.delete(crumb.id),
        conversant.crumbs.set(crumb.id, crumb),
        conversant.drop(crumb.id),
        conversant.stashes.acquire(lock.id, "eve"),
    ):
        with pytest.raises(dgent.Denied, match="eve is conversant"):
            await change
    assert await u.seq() == before
    await Cupboard(acting(u, "friend")).crumbs.delete(crumb.id)


async def test_an_undo_is_by_the_handle_that_was_asked(u: dgent.Universe) -> None:
    whole = Cupboard(u)
    await whole.add("work")
    seq = await u.seq()
    for trust in ("conversant", "untrusted"):
        handle = acting(u, trust)
        with pytest.raises(dgent.Denied):
            await handle.undo(seq)
        Cupboard(handle)
        with pytest.raises(dgent.Denied):
            await handle.undo(seq)
    friend = acting(u, "friend")
    Cupboard(friend)
    await friend.undo(seq)
    assert (await u.changes(seq))[0].author == "eve"
    await u.undo(await u.seq())
    assert (await u.changes(seq))[1].author == "ann"


async def test_a_library_is_for_whom_the_handle_acts(u: dgent.Universe) -> None:
    await Library(u, "ann").create("plan", text="secret")
    for trust in ("friend", "conversant", "untrusted"):
        handle = acting(u, trust)
        with pytest.raises(dgent.Denied, match="acts for 'eve'"):
            Library(handle, "ann", trust=trust)
        with pytest.raises(dgent.Denied, match=f"'eve', who is {trust}"):
            Library(handle, "eve")
    assert await Library(acting(u, "friend"), "eve", trust="conversant").list() == []
    with pytest.raises(dgent.Denied):  # the caller that a program names does not count for more either
        await invoke(acting(u, "conversant"), "self.block.create", label="news", shared=True)


async def test_a_handle_sees_what_a_room_allows_where_the_room_is_not_in_use(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with dgent.open(url) as u:
        mine = await Library(u, "eve").create("mine", text="x")
        await Library(u, "ann").create("hers", text="x")
    async with dgent.open(url) as u:
        found = await acting(u, "friend").query(schema="block.block", raw=True)
        assert [each.id for each in found] == [mine.id]


@pytest.mark.parametrize("trust", ["partner", "friend"])
async def test_no_verb_for_records_touches_what_is_dgents_own(u: dgent.Universe, trust: Any) -> None:
    made, _ = await create_token(u, Principal("ann", "friend"))
    id, caller, before = f"dgent.token/{made.id}", Caller("eve", "eve", trust), await u.seq()
    for verb, args in (
        ("put", {"id": id, "data": {"trust": "partner"}}),
        ("put", {"id": "dgent.token/mine", "data": {}, "expect": 0}),
        ("put", {"id": "dgent.copy", "data": {}}),
        ("delete", {"id": id}),
        ("delete", {"id": "dgent.token/none"}),
        ("forget", {"id": [id]}),
        ("forget", {"id": ["open", id], "dry_run": True}),
    ):
        with pytest.raises(dgent.Denied):
            await invoke(u, f"self.data.{verb}", caller=caller, **args)
    assert await u.seq() == before
    assert await u.exists(id)
