"""A store that cannot be reached: said aloud, writes kept, reads partial, replayed once when it is back."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import dgent
from dgent import clock, sync
from dgent.errors import (
    Conflict,
    Degraded,
    InputError,
    KeyReused,
    NoBackendAvailable,
    Unavailable,
    VersionConflict,
)
from dgent.model.lens import field
from dgent.store.backend import Delete, Put
from dgent.store.registry import ENGINES, backend_for
from tests.offline.world import NOTE, Note, World, back

pytestmark = pytest.mark.filterwarnings("ignore::dgent.errors.Degraded")


async def filled(world: World) -> None:
    async with world.plain() as u:
        u.register(NOTE)
        await u.remember(Note("old", 1), id="old")
        await u.remember(Note("other", 2), id="other")


# -- opening ------------------------------------------------------------------------------


async def test_without_leave_only_the_first_place_is_opened(world: World) -> None:
    async with dgent.open([world.url, "memory:"]) as u:
        assert u.backend.name == "sqlite" and u.degraded is None
    world.leave()
    with pytest.raises(NoBackendAvailable) as refused:
        await dgent.open([world.url, "postgresql://ann:geheim@host/db"])
    told = str(refused.value)
    assert str(world.folder) in told and "degrade=True" in told
    assert "postgresql://ann:***@host/db" in told and "geheim" not in told


async def test_a_place_of_an_unknown_engine_is_an_error_at_once(world: World) -> None:
    with pytest.raises(InputError, match="not an engine"):
        world.open("nonsense:")
    with pytest.raises(InputError, match="is empty"):
        dgent.open([])
    with pytest.raises(InputError, match="degrade is 'maybe'"):
        dgent.open(world.url, degrade="maybe")  # type: ignore[arg-type]


async def test_an_outbox_must_last_and_open(world: World) -> None:
    with pytest.raises(InputError, match="may be unavailable"):
        dgent.open(world.url, outbox=world.outbox)
    with pytest.raises(InputError, match="SQLite file"):
        dgent.open(world.url, degrade=True, outbox="memory:")
    with pytest.raises(NoBackendAvailable, match="outbox"):
        await dgent.open(world.url, degrade=True, outbox=f"{world.folder}/nowhere/outbox.db")
    world.leave()
    with pytest.raises(NoBackendAvailable, match="outbox"):
        await dgent.open(world.url, degrade=True, outbox=f"{world.folder}/outbox.db")


async def test_every_start_warns(world: World) -> None:
    await filled(world)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with world.open() as u:
            assert u.degraded is None
            details = (await u.stats()).details
            assert (details["degraded"], details["pending"]) == (False, 0)
    world.leave()
    for _ in range(2):
        with pytest.warns(Degraded, match="cannot be reached.*reads are partial"):
            u = await world.open()
        assert u.degraded is not None and str(world.folder) in u.degraded.reason
        await u.close()


async def test_a_warning_for_each_start_also_in_one_process(world: World) -> None:
    world.leave()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(3):
            async with world.open():
                pass
    assert [each.category for each in told] == [Degraded] * 3


async def test_warnings_as_errors_leave_nothing_open(world: World) -> None:
    world.leave()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Degraded):
            await world.open()
    async with world.open() as u:
        assert u.degraded is not None


def test_engines_have_their_priorities() -> None:
    wanted = {"postgres": 10, "sqlite": 50, "jsonl": 60, "memory": 100}
    for engine in ENGINES:
        assert backend_for(engine.example).priority == wanted[engine.name]


async def test_an_outbox_for_another_store_is_refused(world: World) -> None:
    world.leave()
    async with world.open() as u:
        await u.put(dgent.Datum(id="a"))
    with pytest.raises(Conflict, match="belongs to"):
        await dgent.open(f"{world.url}x", degrade=True, outbox=world.outbox)


async def test_a_relative_place_is_another_store_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("one", "two"):
        (tmp_path / name / "server").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        (tmp_path / name / "server").rename("away")
        async with dgent.open("sqlite:///server/s.db", degrade=True) as u:
            assert await u.count(partial=True) == 0
            await u.put(dgent.Datum(id=name))
    for name in ("one", "two"):
        monkeypatch.chdir(tmp_path / name)
        (tmp_path / name / "away").rename("server")
        async with dgent.open("sqlite:///server/s.db", degrade=True) as u:
            assert [datum.id for datum in await u.query(partial=True)] == [name]


# -- writing ------------------------------------------------------------------------------


async def test_a_write_is_pending_and_happens_once_when_the_store_is_back(world: World) -> None:
    await filled(world)
    world.leave()
    async with world.open() as u:
        u.register(NOTE)
        made = await u.remember(Note("new", 3), id="new", tags={"t"})
        assert (made.rev, made.seq) == (1, None)
        receipt = await u.commit([Put(dgent.Datum(id="x", data={"n": 1})), Delete("other")], note="why")
        assert receipt.pending and receipt.seq is None and not receipt.repeated
        assert [written.seq for written in receipt.written] == [None, None]
        assert await u.delete("old")
        await u.store(made.replace(value=Note("newer", 4)))
        assert u.degraded is not None and u.degraded.pending == 4
        world.come_back()
        await back(u)
        assert (await u.stats()).details["pending"] == 0
        assert (await u.get("new", partial=True)).value == Note("newer", 4)
        assert [version.rev for version in await u.history("new")] == [2, 1]
        log = await u.changes(2)
        assert [[(item.op, item.id) for item in change.items] for change in log] == [
            [("put", "new")],
            [("put", "x"), ("delete", "other")],
            [("delete", "old")],
            [("put", "new")],
        ]
        assert log[1].note == "why"


async def test_what_was_left_behind_is_done_at_the_next_start(world: World) -> None:
    world.leave()
    async with world.open(author="ann") as u:
        u.register(NOTE)
        await u.remember(Note("kept"), id="kept")
    world.come_back()
    async with world.open() as u:
        assert u.degraded is None
        assert [(change.author, change.seq) for change in await u.changes()] == [("ann", 1)]
    async with world.open() as u:
        assert await u.seq() == 1


async def test_what_needs_the_truth_is_refused(world: World) -> None:
    await filled(world)
    world.leave()
    async with world.open() as u:
        u.register(NOTE)
        mark = await u.remember(Note("mine"), id="mine")
        refusals = [
            u.put(dgent.Datum(id="old"), expect=1),
            u.put(dgent.Datum(id="certain"), expect=0),
            u.store(mark, expect=1),
            u.delete("old", expect="live"),
            u.focus("mine", field("text")).set("other"),
            u.associate("mine", "old"),
            u.get("old", as_of=1),
            u.history("old"),
            u.changes(),
            u.undo(1),
            u.forget("old"),
            u.compact(3),
            u.seq(),
            u.versions("note"),
            u.outcome("never"),
            u.upgrade_all("note"),
        ]
        for refused in refusals:
            with pytest.raises(Unavailable, match="cannot be reached") as told:
                await refused
            assert told.value.details.get("degraded") is True
        with pytest.raises(Unavailable):
            async with u.transaction() as tx:
                await tx.get("old")
        assert u.degraded is not None and u.degraded.pending == 1
        # A new record cannot collide, so that it may expect not to be there.
        assert (await u.put(dgent.Datum(), expect=0)).rev == 1


async def test_a_key_happens_once_pending_or_not(world: World) -> None:
    world.leave()
    async with world.open() as u:
        first = await u.commit([Put(dgent.Datum(id="a", data={"n": 1}))], key="k")
        again = await u.commit([Put(dgent.Datum(id="a", data={"n": 1}))], key="k")
        assert (first.repeated, again.repeated, again.pending) == (False, True, True)
        with pytest.raises(KeyReused):
            await u.commit([Put(dgent.Datum(id="a", data={"n": 2}))], key="k")
        told = await u.outcome("k")
        assert told is not None and told.pending
        world.come_back()
        await back(u)
        third = await u.commit([Put(dgent.Datum(id="a", data={"n": 1}))], key="k")
        assert third.repeated and third.seq == 1 and not third.pending
        assert len(await u.history("a")) == 1


async def test_what_is_wrong_in_itself_is_refused_now(world: World) -> None:
    world.leave()
    async with world.open() as u:
        with pytest.raises(InputError):
            await u.put(dgent.Datum(id="a", data={"x": object()}))
        with pytest.raises(InputError, match="twice"):
            await u.commit([Put(dgent.Datum(id="a")), Delete("a")])
        assert u.degraded is not None and u.degraded.pending == 0


# -- reading ------------------------------------------------------------------------------


async def test_reads_answer_from_the_outbox_and_say_that_they_are_partial(world: World) -> None:
    await filled(world)
    world.leave()
    async with world.open() as u:
        u.register(NOTE)
        assert await u.get("old", partial=True) is None
        for n in range(5):
            await u.remember(Note(f"n{n}", n), id=f"r{n}", tags={"even"} if n % 2 == 0 else set())
        await u.remember(Note("changed", 9), id="r2")
        await u.delete("r4")
        page = await u.page(dgent.Query(schema="note", order_by="n", limit=2), partial=True)
        assert page.partial and "partial" in page.explain
        assert [(c.id, c.rev, c.seq) for c in page.items] == [("r2", 2, None), ("r3", 1, None)]
        rest = await u.page(
            dgent.Query(schema="note", order_by="n", limit=2, cursor=page.cursor), partial=True
        )
        assert [c.id for c in rest.items] == ["r1", "r0"] and rest.cursor is None
        assert await u.count(schema="note", where={"n": {"$gte": 3}}, partial=True) == 2
        assert [c.id for c in await u.recall(tags={"even"}, partial=True)] == ["r0"]
        updated = await u.recall(order_by="updated_at", updated_since=clock.now(), partial=True)
        assert {c.id for c in updated} == {"r0", "r1", "r2", "r3"}, "what is pending is the newest"
        assert {c.updated_at for c in updated} == {None}
        assert [c.id async for c in u.iterate(dgent.Query(schema="note"), partial=True)] == [
            "r3",
            "r2",
            "r1",
            "r0",
        ]
        told = await u.stats()
        assert told.details["degraded"] is True and told.details["pending"] == 7
        assert (told.records, [s.records for s in told.schemas]) == (4, [4])
        assert await u.exists("r1", partial=True) and not await u.exists("r4", partial=True)


async def test_a_read_is_refused_unless_a_partial_answer_will_do(world: World) -> None:
    """None, False and 0 would be lies: nobody knows what the store has."""
    await filled(world)
    world.leave()
    async with world.open() as u:
        u.register(NOTE)
        await u.remember(Note("kept"), id="kept")

        async def iterated() -> None:
            async for _ in u.iterate(dgent.Query()):
                pass

        reads: list[Callable[[], Awaitable[object]]] = [
            lambda: u.get("old"),
            lambda: u.get("kept"),
            lambda: u.get_many(["old"]),
            lambda: u.exists("old"),
            lambda: u.query(schema="note"),
            lambda: u.page(dgent.Query()),
            lambda: u.recall(schema="note"),
            lambda: u.count(),
            lambda: u.list(),
            lambda: u.referrers("old"),
            lambda: u.causal_chain("old"),
            lambda: u.associated("old"),
            lambda: u.schemas(),
            lambda: u.collection(Note).query(),
            lambda: u.collection(Note).get("old"),
            iterated,
        ]
        for read in reads:
            with pytest.raises(Unavailable) as caught:
                await read()
            assert caught.value.details["degraded"] is True
        with pytest.raises(Unavailable, match="whole answer") as caught:
            await u.get("old")
        assert "partial=True" in caught.value.hint
        assert await u.get("old", partial=True) is None and await u.exists("kept", partial=True)
        assert [datum.id for datum in await u.list(partial=True)] == ["kept"]
        assert await u.referrers("old", partial=True) == [] == await u.causal_chain("old", partial=True)
        assert await u.collection(Note).count(partial=True) == 1
        assert [(each.name, each.records) for each in await u.schemas(partial=True)] == [("note", 1)]
        assert [note.id for note in await u.collection(Note).query(partial=True)] == ["kept"]
        world.come_back()
        await back(u)
        assert (await u.get("old")).value == Note("old", 1) and await u.count(schema="note") == 3


async def test_a_stand_in_answers_and_is_not_written_to(world: World) -> None:
    await filled(world)
    async with world.plain() as source, dgent.open(world.stand_in) as target:
        await dgent.copy(source, target)
        before = await target.seq()
    world.leave()
    async with world.open(world.stand_in, "memory:") as u:
        u.register(NOTE)
        assert u.degraded is not None and u.degraded.stand_in == "sqlite"
        old = await u.get("old", partial=True)
        assert (old.value, old.seq) == (Note("old", 1), None)
        await u.remember(Note("changed", 7), id="old")
        await u.remember(Note("new", 0), id="new")
        await u.delete("other")
        found = await u.query(schema="note", order_by="n", partial=True)
        assert [(c.id, c.value.n, c.rev) for c in found] == [("old", 7, 2), ("new", 0, 1)]
        assert found[0].created_at == old.created_at
        assert await u.count(schema="note", partial=True) == 2
        assert [c and c.value.n for c in await u.get_many(["new", "other", "old"], partial=True)] == [
            0,
            None,
            7,
        ]
        world.come_back()
        await back(u)
        assert (await u.get("old", partial=True)).value == Note("changed", 7)
    async with world.plain() as source, dgent.open(world.stand_in) as target:
        assert await target.seq() == before
        assert (await dgent.copy(source, target)).commits == 3, "it is still a copy"


async def test_memory_stands_in_only_when_written(world: World) -> None:
    await filled(world)
    world.leave()
    async with world.open("memory:") as u:
        assert u.degraded is not None and u.degraded.stand_in == "memory"
    async with world.open() as u:
        assert u.degraded is not None and u.degraded.stand_in is None


async def test_a_copy_of_a_store_that_is_away_is_refused(world: World) -> None:
    world.leave()
    async with world.open() as u, dgent.open("memory:") as target:
        with pytest.raises(Unavailable, match="both stores"):
            await dgent.copy(u, target)
        with pytest.raises(Unavailable, match="both stores"):
            await dgent.copy(target, u)


# -- conflicts ----------------------------------------------------------------------------


async def test_a_conflict_is_kept_with_both_versions_and_stops_its_chain_only(world: World) -> None:
    world.leave()
    id = dgent.Datum().id
    async with world.open() as u:
        u.register(NOTE)
        await u.remember(Note("mine"), id=id, expect=0)
        await u.remember(Note("mine too"), id=id)
        await u.remember(Note("free"), id="free")
    world.come_back()
    async with world.plain() as u:
        u.register(NOTE)
        await u.remember(Note("theirs"), id=id)
    with pytest.warns(Degraded, match="2 of the pending commits conflict"):
        u = await world.open()
    u.register(NOTE)
    assert u.degraded is None
    assert (await u.get(id, partial=True)).value == Note("theirs")
    assert (await u.get("free", partial=True)).value == Note("free")
    details = (await u.stats()).details
    assert (details["pending"], details["conflicts"]) == (0, 2)
    await u.close()
    async with dgent.open(f"sqlite:///{world.outbox}") as outbox:
        first, second = await outbox.query(schema="dgent.conflict", descending=False)
        assert first.data["code"] == "version_conflict"
        assert first.data["ours"][0]["data"]["text"] == "mine"
        assert first.data["theirs"][0]["data"]["text"] == "theirs"
        assert second.data["ours"][0]["data"]["text"] == "mine too"
    # An old conflict does not stand in the way of what is written later.
    world.leave()
    async with world.open() as u:
        u.register(NOTE)
        await u.remember(Note("later"), id=id)
    world.come_back()
    async with world.open() as u:
        u.register(NOTE)
        assert (await u.get(id, partial=True)).value == Note("later")


async def test_optimistic_writes_are_checked_here_and_there(world: World) -> None:
    await filled(world)
    world.leave()
    async with world.open(degrade="optimistic") as u:
        u.register(NOTE)
        await u.remember(Note("seen", 1), id="old", expect=1)
        assert (await u.get("old", partial=True)).rev == 1, "nothing is known of what lies below"
        await u.focus("old", field("n")).modify(lambda n: n + 1)
        await u.focus("old", field("n")).modify(lambda n: n + 1)
        with pytest.raises(VersionConflict):
            await u.remember(Note("stale"), id="old", expect=1)
        await u.remember(Note("wrong"), id="other", expect=5)
        await u.remember(Note("also wrong"), id="other")
        world.come_back()
        with pytest.warns(Degraded, match="conflict"):
            await back(u)
            await asyncio.sleep(0)
        assert (await u.get("old", partial=True)).value == Note("seen", 3) and (
            await u.get("old", partial=True)
        ).rev == 4
        assert (await u.get("other", partial=True)).value == Note("other", 2)
        assert (await u.stats()).details["conflicts"] == 2


# -- the feed -----------------------------------------------------------------------------


async def test_the_feed_tells_of_going_down_and_coming_back(world: World) -> None:
    await filled(world)
    world.leave()

    async with world.open() as u:
        u.register(NOTE)
        changes = []

        async def follow() -> None:
            async for change in u.watch():
                changes.append(change)

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.05)
        await u.remember(Note("while away", 1), id="a")
        await asyncio.sleep(0.05)
        world.come_back()
        await back(u)
        await u.remember(Note("after", 2), id="b")
        async with asyncio.timeout(10):
            while len(changes) < 4:
                await asyncio.sleep(0.02)
        following.cancel()
        told = [(c.kind, c.seq, c.provisional, [item.id for item in c.items]) for c in changes]
        assert told == [
            ("data", None, True, ["a"]),
            ("restored", None, True, []),
            ("data", 3, False, ["a"]),
            ("data", 4, False, ["b"]),
        ]
        assert changes[0].items[0].datum.value == Note("while away", 1)


# -- without a loop -----------------------------------------------------------------------


def test_the_blocking_twin_degrades_alike(world: World) -> None:
    world.leave()
    with sync.open([world.url], degrade=True, outbox=world.outbox) as u:
        u.register(NOTE)
        made = u.remember(Note("kept"), id="kept")
        assert made.seq is None and u.degraded.pending == 1
        assert (
            u.get("kept", partial=True).value == Note("kept") and u.page(dgent.Query(), partial=True).partial
        )
        with pytest.raises(Unavailable):
            u.history("kept")
    world.come_back()
    with sync.open([world.url], degrade=True, outbox=world.outbox) as u:
        assert u.degraded is None and [change.seq for change in u.changes()] == [1]
