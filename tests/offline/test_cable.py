"""A store that goes away while it is in use, at the worst moments, and comes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import dgent
from dgent.errors import Busy, Degraded, OutcomeUnknown, StorageFull, Unavailable
from dgent.store.backend import Committed, Put
from dgent.store.offline import backend as degradable
from dgent.store.offline.backend import DegradableBackend, Place
from dgent.store.offline.outbox import Outbox
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.universe.universe import Universe
from tests.offline.cable import Cable, connected
from tests.offline.world import back

pytestmark = pytest.mark.filterwarnings("ignore::dgent.errors.Degraded")


@pytest.fixture
def cable(tmp_path: Path) -> Cable:
    return Cable(tmp_path / "store.db")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(degradable, "PROBE_S", (0.05, 0.1))
    monkeypatch.setattr(degradable, "LOOK_S", 0.05)
    yield


async def put(u: dgent.Universe, id: str, n: int = 0, **rest: object) -> Committed:
    return await u.commit([Put(dgent.Datum(id=id, data={"n": n}))], **rest)  # type: ignore[arg-type]


async def versions(path: Path) -> dict[str, list[int]]:
    """Every record's versions, oldest first."""
    async with dgent.open(f"sqlite:///{path}") as u:
        found: dict[str, list[int]] = {}
        for change in await u.changes(0, limit=None):
            for item in change.items:
                assert item.id is not None
                found.setdefault(item.id, []).append(item.datum.data["n"] if item.datum else -1)
        return found


async def test_it_goes_away_in_use_and_comes_back(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        changes = []

        async def follow() -> None:
            async for change in u.watch():
                changes.append((change.kind, change.seq, change.provisional))

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.02)
        assert (await put(u, "a", 1)).seq == 1
        async with asyncio.timeout(5):
            while not changes:
                await asyncio.sleep(0.01)
        cable.cut()
        with pytest.warns(Degraded):
            receipt = await put(u, "a", 2)
        assert receipt.pending and u.degraded is not None
        # The second one where opening it again has failed by now.
        assert u.degraded.reason in ("the cable is cut", "the sqlite store cannot be opened at far://store")
        assert (await u.get("a", raw=True, partial=True)).data == {"n": 2}
        assert (await u.page(dgent.Query(), partial=True)).partial
        await asyncio.sleep(0.02)
        cable.mend()
        await back(u)
        assert not (await u.page(dgent.Query())).partial
        assert (await put(u, "a", 3)).seq == 3
        async with asyncio.timeout(5):
            while len(changes) < 6:
                await asyncio.sleep(0.02)
        following.cancel()
    assert changes == [
        ("data", 1, False),
        ("degraded", None, True),
        ("data", None, True),
        ("restored", None, True),
        ("data", 2, False),
        ("data", 3, False),
    ]
    assert await versions(cable.path) == {"a": [1, 2, 3]}


async def test_a_read_notices_too(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        await put(u, "a", 1)
        cable.cut()
        with pytest.warns(Degraded):
            assert await u.get("a", partial=True) is None
        assert u.degraded is not None


async def test_a_lost_answer_is_not_done_twice(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        await put(u, "a", 1)
        cable.mute = 1
        assert (await put(u, "a", 2)).pending
        assert (await put(u, "a", 3)).pending
        cable.mend()
        await back(u)
    assert await versions(cable.path) == {"a": [1, 2, 3]}


async def test_a_lost_answer_to_what_cannot_wait_is_unknown(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        await put(u, "a", 1)
        cable.mute = 1
        with pytest.raises(OutcomeUnknown) as lost:
            await u.put(dgent.Datum(id="a", data={"n": 2}), expect=1)
        assert u.degraded is not None and u.degraded.pending == 0
        cable.mend()
        await back(u)
        assert await u.outcome(lost.value.details["key"]) is not None
    assert await versions(cable.path) == {"a": [1, 2]}


async def test_what_expects_something_is_refused_and_did_not_happen(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        await put(u, "a", 1)
        cable.cut()
        with pytest.raises(Unavailable, match="needs far://store"):
            await u.put(dgent.Datum(id="a", data={"n": 2}), expect=1)
        cable.mend()
        await back(u)
    assert await versions(cable.path) == {"a": [1]}


@pytest.mark.parametrize("error", [Busy("busy"), StorageFull("full")])
async def test_busy_or_full_is_not_away(
    cable: Cable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:

        async def refuse(*_: object) -> None:
            raise error

        monkeypatch.setattr(SQLiteBackend, "commit", refuse)
        with pytest.raises(type(error)):
            await put(u, "a", 1)
        assert u.degraded is None


@pytest.mark.parametrize("left", range(9))
async def test_replay_that_is_interrupted_goes_on(cable: Cable, tmp_path: Path, left: int) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        await put(u, "x", 0)
        cable.cut()
        for n in range(1, 9):
            await put(u, f"r{n % 3}", n)
        cable.mend()
        cable.left = left
        cable.mute = left % 2
        before = cable.opened
        async with asyncio.timeout(10):
            while cable.opened < before + 2 and u.degraded is not None:
                await asyncio.sleep(0.01)
                if not cable.whole and cable.opened > before:
                    break
        cable.mend()
        await back(u)
    assert await versions(cable.path) == {"x": [0], "r1": [1, 4, 7], "r2": [2, 5, 8], "r0": [3, 6]}


async def test_many_tasks_over_a_cable_that_breaks(cable: Cable, tmp_path: Path) -> None:
    """Everything acknowledged is there, once, and in the order of each writer."""
    rng = random.Random(7)
    async with connected(cable, tmp_path / "outbox.db") as u:

        async def write(name: str) -> None:
            for n in range(40):
                await put(u, name, n)
                await asyncio.sleep(rng.random() * 0.005)

        async def shake() -> None:
            while True:
                await asyncio.sleep(rng.random() * 0.1)
                cable.mute = rng.randrange(2)
                if not cable.mute:
                    cable.cut()
                await asyncio.sleep(rng.random() * 0.1)
                cable.mend()

        shaking = asyncio.create_task(shake())
        await asyncio.gather(*(write(f"w{n}") for n in range(8)))
        shaking.cancel()
        cable.mend()
        await back(u)
    assert await versions(cable.path) == {f"w{n}": list(range(40)) for n in range(8)}


async def test_two_programs_share_an_outbox(cable: Cable, tmp_path: Path) -> None:
    other = Cable(cable.path)
    async with (
        connected(cable, tmp_path / "outbox.db", author="ann") as a,
        connected(other, tmp_path / "outbox.db", author="bob") as b,
    ):
        cable.cut()
        other.cut()
        for n in range(10):
            await put(a, "a", n)
            await put(b, "b", n)
            await put(a if n % 2 else b, "both", n)
        assert (await b.get("both", raw=True, partial=True)).data == {"n": 9}
        assert (await a.get("b", raw=True, partial=True)).data == {"n": 9}
        cable.mend()
        await back(a)
        # Bob is still away: what he writes is done by whoever is there.
        await put(b, "b", 10)
        async with asyncio.timeout(5):
            while (await a.get("b", raw=True)).data != {"n": 10}:
                await asyncio.sleep(0.02)
        other.mend()
        await back(b)
        authors = [change.author for change in await a.changes()]
        assert authors.count("ann") == 15 and authors.count("bob") == 16
    ten = list(range(10))
    assert await versions(cable.path) == {"a": ten, "b": [*ten, 10], "both": ten}


async def test_replay_while_others_write(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        await put(u, "x", 0)
        cable.cut()
        for n in range(200):
            await put(u, f"mine{n % 5}", n)
        async with dgent.open(f"sqlite:///{cable.path}", durability="relaxed") as other:
            cable.mend()
            n = 0
            while u.degraded is not None:
                await put(other, "theirs", n)
                n += 1
                await asyncio.sleep(0)
    found = await versions(cable.path)
    assert found["theirs"] == list(range(n)) and n > 3
    assert [found[f"mine{k}"] for k in range(5)] == [list(range(k, 200, 5)) for k in range(5)]


async def test_the_clock_jumps_back_between_writes(
    cable: Cable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        await put(u, "x", 0)
        cable.cut()
        real = degradable.clock.now_us
        for n in range(6):
            jump = n * 3_600_000_000
            monkeypatch.setattr(degradable.clock, "now_us", lambda jump=jump: real() - jump)
            await put(u, "a", n)
        cable.mend()
        await back(u)
    assert (await versions(cable.path))["a"] == list(range(6))


async def test_a_large_commit_waits_too(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        await put(u, "x", 0)
        cable.cut()
        big = [dgent.Datum(id=f"big{n}", content=bytes([n]) * (9 << 20)) for n in range(3)]
        await u.put_many(big)
        await put(u, "after", 1)
        cable.mend()
        await back(u)
        assert [d.content for d in await u.get_many([d.id for d in big], raw=True, partial=True)] == [
            d.content for d in big
        ]
    async with dgent.open(f"sqlite:///{tmp_path}/outbox.db") as outbox:
        assert await outbox.count(schema="dgent.outbox.part") == 0


async def test_forgetting_reaches_the_outbox(cable: Cable, tmp_path: Path) -> None:
    secret = "s3cret-" * 4
    path = tmp_path / "outbox.db"
    async with connected(cable, path) as u:
        await put(u, "x", 0)
        cable.cut()
        await u.put(dgent.Datum(id="a", data={"text": secret}))
        with pytest.raises(Unavailable):
            await u.forget("a")
        cable.mend()
        await back(u)
        await u.forget("a")
        held = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
        assert secret.encode() not in held


async def test_a_stand_in_that_goes_away_too_is_let_go(cable: Cable, tmp_path: Path) -> None:
    other = Cable(tmp_path / "stand-in.db")
    async with dgent.open(f"sqlite:///{other.path}") as stand_in:
        await put(stand_in, "below", 1)
    kept = Outbox(SQLiteBackend(str(tmp_path / "outbox.db")), str(tmp_path / "outbox.db"))
    places = [Place(each.make, name, name) for each, name in ((cable, "far://a"), (other, "far://b"))]
    async with Universe(DegradableBackend(places, kept)) as u:
        await put(u, "a", 1)
        cable.cut()
        assert (await u.get("below", partial=True)).data == {"n": 1}
        await put(u, "mine", 2)
        other.cut()
        assert [datum.id for datum in await u.query(partial=True)] == ["mine"]
        assert u.degraded is not None and u.degraded.stand_in is None
        cable.mend()
        await back(u)
        assert sorted(datum.id for datum in await u.query(partial=True)) == ["a", "mine"]


async def test_reads_while_it_comes_and_goes_are_whole_or_partial_but_never_fail(
    cable: Cable, tmp_path: Path
) -> None:
    stand_in = f"sqlite:///{tmp_path}/stand-in.db"
    async with dgent.open(stand_in) as below:
        await put(below, "a", 0)
    kept = Outbox(SQLiteBackend(str(tmp_path / "outbox.db")), str(tmp_path / "outbox.db"))
    places = [
        Place(cable.make, "far://a", "far://a"),
        Place(lambda: SQLiteBackend(f"{tmp_path}/stand-in.db"), stand_in, stand_in),
    ]
    async with Universe(DegradableBackend(places, kept)) as u:
        await put(u, "a", 1)
        partial = whole = 0
        until = asyncio.get_running_loop().time() + 2

        async def read() -> None:
            nonlocal partial, whole
            while asyncio.get_running_loop().time() < until:
                assert await u.get("a", partial=True) is not None
                page = await u.page(dgent.Query(), partial=True)
                assert [datum.id for datum in page.items] == ["a"]
                assert await u.count(partial=True) == 1
                partial, whole = partial + page.partial, whole + (not page.partial)
                await asyncio.sleep(0)

        async def shake() -> None:
            while True:
                cable.cut()
                await asyncio.sleep(0.05)
                cable.mend()
                await asyncio.sleep(0.15)

        shaking = asyncio.create_task(shake())
        await asyncio.gather(*(read() for _ in range(4)))
        shaking.cancel()
        assert partial > 10 and whole > 10


async def test_what_may_have_arrived_long_ago_is_set_aside(
    cable: Cable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while sending, and started again when the store no longer knows the key."""
    outbox = tmp_path / "outbox.db"
    async with connected(cable, outbox) as u:
        await put(u, "x", 0)
        cable.cut()
        await put(u, "a", 1)
        await put(u, "b", 2)
        kept: Outbox = u.backend.outbox  # type: ignore[attr-defined]
        first, _ = kept.entries()
        real = degradable.clock.now_us
        monkeypatch.setattr(degradable.clock, "now_us", lambda: real() - 8 * 24 * 3600 * 1_000_000)
        await kept.write_attempt([first])
        monkeypatch.undo()
    cable.mend()
    with pytest.warns(Degraded, match="may have arrived"):
        u = await connected(cable, outbox)
    assert (await u.stats()).details["conflicts"] == 1
    await u.close()
    assert await versions(cable.path) == {"x": [0], "b": [2]}


async def test_what_was_being_sent_a_moment_ago_is_sent_again(cable: Cable, tmp_path: Path) -> None:
    outbox = tmp_path / "outbox.db"
    async with connected(cable, outbox) as u:
        await put(u, "x", 0)
        cable.cut()
        await put(u, "a", 1)
        kept: Outbox = u.backend.outbox  # type: ignore[attr-defined]
        await kept.write_attempt(kept.entries())
    cable.mend()
    async with connected(cable, outbox) as u:
        assert (await u.stats()).details["conflicts"] == 0
    assert await versions(cable.path) == {"x": [0], "a": [1]}


@pytest.mark.parametrize("luck", range(12))
async def test_optimistic_chains_against_a_model(cable: Cable, tmp_path: Path, luck: int) -> None:
    """A chain goes on to its first conflict, and what is blind overwrites until then."""
    rng = random.Random(luck)
    ids = [f"r{n}" for n in range(4)]
    async with connected(cable, tmp_path / "outbox.db", optimistic=True) as u:
        for id in ids[:3]:
            await put(u, id, 0)
        seen = {id: 1 if id != "r3" else 0 for id in ids}  # the rev each chain builds on
        cable.cut()
        await u.count(partial=True)
        ours: dict[str, list[tuple[int, bool]]] = {id: [] for id in ids}
        for n in range(1, 25):
            id = rng.choice(ids)
            known = await u.get(id, raw=True, partial=True)
            careful = rng.random() < 0.6
            expect = None if not careful else seen[id] if known is None else known.rev
            await u.put(dgent.Datum(id=id, data={"n": n}), expect=expect)
            ours[id].append((n, careful))
        touched = set(rng.sample(ids, 2))
        async with dgent.open(f"sqlite:///{cable.path}") as other:
            for id in touched:
                await put(other, id, -1)
        cable.mend()
        await back(u)
        refused = (await u.stats()).details["conflicts"]
    found = await versions(cable.path)
    expected_refused = 0
    for id in ids:
        base = ([0] if id != "r3" else []) + ([-1] if id in touched else [])
        done: list[int] = []
        for place, (n, careful) in enumerate(ours[id]):
            if careful and place == 0 and id in touched:
                expected_refused += len(ours[id])
                break
            done.append(n)
        assert found.get(id, []) == base + done, id
    assert refused == expected_refused


async def test_those_who_write_quicker_than_a_replay_do_not_keep_it_from_ending(
    cable: Cable, tmp_path: Path
) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        await put(u, "x", 0)
        cable.cut()
        cable.slow_s = 0.01
        counts = [0, 0, 0]
        ended = asyncio.Event()

        async def write(name: int) -> None:
            while not ended.is_set():
                await put(u, f"w{name}", counts[name])
                counts[name] += 1
                await asyncio.sleep(0)

        writers = [asyncio.create_task(write(name)) for name in range(3)]
        while sum(counts) < 150:
            await asyncio.sleep(0.001)
        cable.mend()
        while not u.backend._throttle._running:  # until it is noticed, all of them write freely
            await asyncio.sleep(0)
        waiting = sum(counts)
        await back(u, 60)
        # Half of what a replay does may be added: in all as much again, and what was on its way.
        assert sum(counts) < 2 * waiting + 200
        ended.set()
        await asyncio.gather(*writers)
    found = await versions(cable.path)
    assert [found[f"w{n}"] for n in range(3)] == [list(range(count)) for count in counts]


async def test_calls_that_hang_while_it_goes_away_are_answered(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        await put(u, "a", 1)
        cable.hang = asyncio.Event()
        reading = asyncio.create_task(u.get("a", partial=True))
        writing = asyncio.create_task(put(u, "b", 2))
        careful = asyncio.create_task(u.put(dgent.Datum(id="a", data={"n": 3}), expect=1))
        await asyncio.sleep(0.05)
        cable.cut()
        with pytest.warns(Degraded):
            await u.count(partial=True)
        await asyncio.sleep(0.3)  # the old handle is closed meanwhile, to try a new one
        cable.hang.set()
        cable.hang = None
        assert await reading is None
        assert (await writing).pending
        with pytest.raises(OutcomeUnknown):
            await careful
        cable.mend()
        await back(u)
    assert await versions(cable.path) == {"a": [1], "b": [2]}


async def test_it_is_found_again_soon(cable: Cable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(degradable, "LOOK_S", 60.0)
    async with connected(cable, tmp_path / "outbox.db") as u:
        await put(u, "a", 1)
        await asyncio.sleep(0.05)
        cable.cut()
        await put(u, "a", 2)
        cable.mend()
        await back(u, 5)


async def test_it_closes_though_it_noticed_something_at_that_moment(cable: Cable, tmp_path: Path) -> None:
    u = connected(cable, tmp_path / "outbox.db")
    await u.open()
    await put(u, "a", 1)
    assert isinstance(u.backend, DegradableBackend)
    for _ in range(3):
        await asyncio.sleep(0)
    u.backend._went_down.set()
    tending = u.backend._watching
    assert tending is not None
    tending.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait([tending])
        await u.close()
