"""A schema with an owner room is written by that room alone, and read by everyone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import dgent
from dgent.errors import Denied
from dgent.model import lens
from tests.universe.conftest import Another
from tests.universe.marks import mark


@dataclass(frozen=True)
class Crumb:
    n: int


CRUMB = dgent.Schema("cupboard.crumb", contract=Crumb, owner="cupboard", indexes=("n",))


@pytest.fixture
async def room(u: dgent.Universe) -> dgent.Universe:
    u.register(CRUMB)
    return u.for_room("cupboard")


async def test_the_room_may_do_everything(u: dgent.Universe, room: dgent.Universe) -> None:
    kept = await room.remember(Crumb(1))
    kept = await room.store(kept.replace(value=Crumb(2)), expect=kept.rev)
    async with room.transaction() as tx:
        await tx.store((await tx.get(kept.id)).replace(value=Crumb(3)))
    await room.focus(kept.id, lens.field("n")).modify(lambda n: n + 1)
    assert (await u.get(kept.id)).value == Crumb(4)
    await room.undo(await room.seq())
    await room.delete(kept.id)
    await room.forget(kept.id)
    assert await room.count() == 0


async def test_outside_nothing_is_written(u: dgent.Universe, room: dgent.Universe, another: Another) -> None:
    kept = await room.remember(Crumb(1), id="x")
    stranger = await another()
    other_room = u.for_room("blocks")
    free = await u.remember(mark())
    seq = await u.seq()
    raw = kept.datum.replace(data={"n": 9})

    async def in_transaction() -> None:
        async with u.transaction() as tx:
            await tx.delete("x")

    for work in (
        u.remember(Crumb(2)),
        u.remember(mark(), id="x"),
        u.store(kept.replace(value=Crumb(2))),
        u.put(raw),
        u.put_many([dgent.Datum(), raw.replace(id="y")]),
        u.delete("x"),
        u.undo(kept.seq),
        u.forget("x"),
        u.forget(free.id, "x"),
        u.focus("x", lens.field("n")).set(5),
        in_transaction(),
        stranger.put(raw),
        stranger.delete("x"),
        stranger.forget("x"),
        stranger.undo(kept.seq),
        other_room.put(raw),
        other_room.delete("x"),
    ):
        with pytest.raises(Denied) as denied:
            await work
        assert "cupboard" in str(denied.value)
    assert await u.seq() == seq
    assert await u.get("x") == kept
    assert await u.exists(free.id)


async def test_everyone_may_read_and_link(u: dgent.Universe, room: dgent.Universe, another: Another) -> None:
    kept = await room.remember(Crumb(1), id="x")
    free = await u.remember(mark(), parent=kept)
    assert await u.query(dgent.Query(schema="cupboard.crumb", where={"n": 1})) == [kept]
    assert await u.causal_chain(free.id) == [kept, free]
    link = await u.associate(free, kept)
    assert await u.associated("x") == [link]
    assert (await (await another()).get("x")).data == {"n": 1}


async def test_a_room_lives_as_long_as_its_universe(u: dgent.Universe, url: str) -> None:
    early = dgent.open("memory:")
    view = early.for_room("cupboard")
    async with early:
        view.register(CRUMB)
        assert (await view.remember(Crumb(1))).rev == 1
        assert await early.count() == 1
        assert "open" in repr(view)
    assert "closed" in repr(view)
    with pytest.raises(dgent.StorageError):
        await view.count()
