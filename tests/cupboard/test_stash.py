"""Stashes: each operation on each type, versions, history, names in their scopes, locks."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

import dgent
from dgent.cupboard import Cupboard, Link, Stash, errors
from dgent.cupboard.lease import lease_id
from dgent.universe.lease import send_heartbeats
from tests.cupboard.conftest import Frozen, Hours, Rival

TYPES = ("resource", "artifact", "context", "counter", "lock")
VALUES: dict[str, Any] = {
    "resource": {"uri": "file:///x", "kind": "file"},
    "artifact": {"path": "/x", "producer": "c", "checksum": "0"},
    "context": {"any": ["thing", 1, None, {"deep": True}]},
    "counter": {"value": 10},
    "lock": None,
}
every_type = pytest.mark.parametrize("kind", TYPES)


async def made(cupboard: Cupboard, kind: str, value: Any = None, name: str = "s") -> Stash:
    stash = Stash(name, kind, value)
    await cupboard.stashes.set(None, stash)
    return stash


@every_type
async def test_creation(cupboard: Cupboard, kind: str) -> None:
    stash = Stash("s", kind, VALUES[kind], version=7)
    await cupboard.stashes.set(None, stash)
    assert uuid.UUID(stash.stash_id).version == 7
    assert (stash.version, stash.last_operation, stash.changed_by) == (1, "create", None)
    found = await cupboard.stashes.get(stash.id)
    assert found == stash and found.get_value() == VALUES[kind]
    assert found.created_at == found.updated_at
    [entry] = await cupboard.stashes.history(stash.id)
    assert (entry.version, entry.operation, entry.value) == (1, "create", VALUES[kind])
    assert (entry.stash_id, entry.changed_by, entry.created_at) == (stash.id, None, stash.created_at)
    assert [s.id for s in await cupboard.stashes.fetch(stash_type=kind)] == [stash.id]
    assert [s.id for s in await cupboard.stashes.fetch(StashType=kind, Name="s", Version=1)] == [stash.id]
    assert [s.id for s in await cupboard.stashes.fetch(value=VALUES[kind])] == [stash.id]
    assert await cupboard.stashes.fetch(value={"other": 1}) == []


async def test_a_counter_begins_at_zero(quick: Cupboard) -> None:
    assert (await made(quick, "counter")).value == {"value": 0}


@every_type
async def test_each_operation_is_for_its_types(quick: Cupboard, kind: str) -> None:
    stash = await made(quick, kind, VALUES[kind])
    table = quick.stashes
    if kind == "lock":
        for refused in (lambda: stash.set_value(1), lambda: stash.set_value(None)):
            with pytest.raises(errors.InvalidStashType):
                refused()
        with pytest.raises(errors.InvalidStashType):
            await table.set_value(stash.id, 1)
    else:
        for refused in (lambda: stash.acquire("me"), lambda: stash.acquire(""), lambda: stash.release("me")):
            with pytest.raises(errors.InvalidStashType):
                refused()
        for call in (
            table.acquire(stash.id, "me"),
            table.acquire(stash.id, ""),
            table.release(stash.id, "me"),
            table.heartbeat(stash.id, "me"),
        ):
            with pytest.raises(errors.InvalidStashType):
                await call
    if kind != "counter":
        with pytest.raises(errors.InvalidStashType):
            stash.increment(1)
        with pytest.raises(errors.InvalidStashType):
            await table.increment(stash.id)
    assert (stash.version, stash.value) == (1, VALUES[kind])
    assert len(await table.history(stash.id)) == 1


@every_type
async def test_a_type_stays(quick: Cupboard, kind: str) -> None:
    stash = await made(quick, kind, VALUES[kind])
    stash.stash_type = TYPES[TYPES.index(kind) - 1]
    with pytest.raises(errors.InvalidStashType):
        await quick.stashes.set(stash.id, stash)
    for wrong in ("", "queue", None, 5, ["lock"]):
        with pytest.raises(errors.InvalidStashType):
            await quick.stashes.set(None, Stash("x", wrong))  # type: ignore[arg-type]
    for name in ("", None, 5, ["x"]):
        with pytest.raises(errors.InvalidName):
            await quick.stashes.set(None, Stash(name, kind))  # type: ignore[arg-type]


async def test_values_and_versions_in_memory(cupboard: Cupboard) -> None:
    stash = await made(cupboard, "context", {"n": 50})
    stash.set_value({"n": 60})
    assert (stash.version, stash.last_operation) == (2, "set")
    await cupboard.stashes.set(stash.id, stash)
    assert ((await cupboard.stashes.get(stash.id)).value, stash.version) == ({"n": 60}, 2)
    stash.set_value({"n": 60})  # the same again is a version of its own
    await cupboard.stashes.set(stash.id, stash)
    assert [(e.version, e.operation) for e in await cupboard.stashes.history(stash.id)] == [
        (1, "create"),
        (2, "set"),
        (3, "set"),
    ]
    stash.name = "renamed"
    await cupboard.stashes.set(stash.id, stash)
    assert stash.version == 4 and (await cupboard.stashes.history(stash.id))[-1].operation == "set"
    await cupboard.stashes.set(stash.id, stash)  # nothing was changed
    assert stash.version == 4


async def test_a_counter_in_memory(cupboard: Cupboard) -> None:
    stash = await made(cupboard, "counter")
    assert [stash.increment(10), stash.increment(-3), stash.increment(5)] == [10, 7, 12]
    assert stash.version == 4
    await cupboard.stashes.set(stash.id, stash)
    found = await cupboard.stashes.get(stash.id)
    assert (found.version, found.value) == (4, {"value": 12})
    assert [(e.version, e.operation) for e in await cupboard.stashes.history(stash.id)] == [
        (1, "create"),
        (4, "increment"),
    ]
    stash.increment()
    assert stash.value == {"value": 13}
    stash.set_value({"value": 100})
    assert stash.increment(1) == 101
    for odd in (None, {}, {"value": "x"}, "x", {"value": True}):
        stash.value = odd
        assert stash.increment(2) == 2
    for wrong in (1.5, "1", None, True):
        with pytest.raises(errors.TypeMismatch):
            stash.increment(wrong)  # type: ignore[arg-type]
    stash.value = {"value": 2**63 - 1}
    with pytest.raises(errors.InvalidData):
        stash.increment(1)


async def test_operations_in_one_step(cupboard: Cupboard) -> None:
    stash = await made(cupboard, "counter", {"value": 1})
    assert await cupboard.stashes.increment(stash.id, 5) == 6
    assert await cupboard.stashes.increment(stash.id, -2, changed_by="crumb-1") == 4
    assert await cupboard.stashes.increment(stash.id) == 5
    await cupboard.stashes.set_value(stash.id, {"value": 7}, expected_version=4)
    history = await cupboard.stashes.history(stash.id)
    assert [(e.version, e.operation, e.value["value"], e.changed_by) for e in history] == [
        (1, "create", 1, None),
        (2, "increment", 6, None),
        (3, "increment", 4, "crumb-1"),
        (4, "increment", 5, None),
        (5, "set", 7, None),
    ]
    assert len({e.history_id for e in history}) == 5
    assert [e.created_at for e in history] == sorted(e.created_at for e in history)


async def test_an_expected_version_on_every_write(cupboard: Cupboard, rival: Rival) -> None:
    table, other = cupboard.stashes, await rival()
    counter, lock = await made(cupboard, "counter", name="n"), await made(cupboard, "lock", name="l")
    for call in (
        lambda: table.set(counter.id, counter, expected_version=2),
        lambda: table.set_value(counter.id, {}, expected_version=2),
        lambda: table.increment(counter.id, expected_version=2),
        lambda: table.acquire(lock.id, "me", expected_version=2),
        lambda: table.release(lock.id, "me", expected_version=2),
        lambda: table.delete(counter.id, expected_version=2),
    ):
        with pytest.raises(dgent.errors.VersionConflict):
            await call()
    mine, theirs = await table.get(counter.id), await other.stashes.get(counter.id)
    mine.increment(1)
    theirs.increment(1)
    await table.set(mine.id, mine)
    with pytest.raises(dgent.errors.VersionConflict):
        await other.stashes.set(theirs.id, theirs)
    assert (await table.get(counter.id)).value == {"value": 1}


async def test_a_lock_in_memory(cupboard: Cupboard) -> None:
    lock = await made(cupboard, "lock")
    for nobody in ("", None, 5):
        with pytest.raises(errors.InvalidHolder):
            lock.acquire(nobody)  # type: ignore[arg-type]
    with pytest.raises(errors.NotLockHolder):
        lock.release("worker-1")
    lock.acquire("worker-1")
    assert lock.version == 2 and lock.value["holder"] == "worker-1" and lock.value["acquired_at"]
    await cupboard.stashes.set(lock.id, lock)
    before = dict(lock.value)
    lock.acquire("worker-1")
    assert (lock.version, lock.value) == (2, before)
    with pytest.raises(errors.LockHeld):
        lock.acquire("worker-2")
    with pytest.raises(errors.NotLockHolder):
        lock.release("worker-2")
    with pytest.raises(errors.LockHeld):
        await cupboard.stashes.delete(lock.id)
    lock.release("worker-1")
    await cupboard.stashes.set(lock.id, lock)
    found = await cupboard.stashes.get(lock.id)
    assert (found.value, found.version) == (None, 3)
    assert [e.operation for e in await cupboard.stashes.history(lock.id)] == ["create", "acquire", "release"]
    await cupboard.stashes.delete(lock.id)


async def test_a_lock_in_one_step(cupboard: Cupboard, rival: Rival) -> None:
    other = (await rival()).stashes
    table, lock = cupboard.stashes, await made(cupboard, "lock")
    tokens = [await table.acquire(lock.id, "one")]
    assert await table.acquire(lock.id, "one") == tokens[0]  # again by who has it: nothing changes
    assert (await table.get(lock.id)).version == 2
    with pytest.raises(errors.LockHeld, match="one"):
        await other.acquire(lock.id, "two")
    for call in (other.release(lock.id, "two"), other.heartbeat(lock.id, "two")):
        with pytest.raises(errors.NotLockHolder):
            await call
    with pytest.raises(errors.LockHeld):
        await other.delete(lock.id)
    await table.release(lock.id, "one")
    with pytest.raises(errors.NotLockHolder):
        await table.release(lock.id, "one")
    tokens.append(await other.acquire(lock.id, "two"))
    await other.release(lock.id, "two")
    tokens.append(await table.acquire(lock.id, "one"))
    assert tokens == sorted(set(tokens))


async def test_a_lease_that_ends_and_one_that_is_kept(cupboard: Cupboard, rival: Rival, hours: Hours) -> None:
    other = (await rival()).stashes
    table, lock = cupboard.stashes, await made(cupboard, "lock")
    first = await table.acquire(lock.id, "one", lease_s=100)
    hours.pass_by(101)
    with pytest.raises(errors.NotLockHolder):
        await table.heartbeat(lock.id, "one")
    second = await other.acquire(lock.id, "two", lease_s=100)
    assert second > first
    await other.heartbeat(lock.id, "two", lease_s=1000)
    hours.pass_by(101)
    for attempt in (table.acquire(lock.id, "one"), table.delete(lock.id)):
        with pytest.raises(errors.LockHeld):
            await attempt
    # Whoever reads it cannot see the signs of life; storing it does.
    stale = await table.get(lock.id)
    stale.acquire("one")
    with pytest.raises(errors.LockHeld):
        await table.set(stale.id, stale)
    assert (await table.get(lock.id)).value["holder"] == "two"


async def test_held_for_a_block(quick: Cupboard, frozen: Frozen) -> None:
    lock = await made(quick, "lock")

    async def lease_end() -> int:
        found = await quick.universe.get(lease_id(lock.id))
        return found.value.ends_us

    async with quick.stashes.held(lock.id, "me", lease_s=0.3) as token:
        for _ in range(4):  # longer than a lease: signs of life keep it
            before = await lease_end()
            frozen.pass_by(0.2)
            async with asyncio.timeout(60):
                while await lease_end() == before:
                    await asyncio.sleep(0.02)
        with pytest.raises(errors.LockHeld):
            await quick.stashes.acquire(lock.id, "you")
        assert token == (await quick.stashes.get(lock.id)).value["token"]
    assert (await quick.stashes.get(lock.id)).value is None
    with pytest.raises(ZeroDivisionError):
        async with quick.stashes.held(lock.id, "me"):
            raise ZeroDivisionError
    assert (await quick.stashes.get(lock.id)).value is None


async def count_heartbeats(length_s: float, beat_s: float) -> list[float]:
    """Return when heartbeats of a lease of 3 s began, each of which takes `beat_s`."""
    loop, begun = asyncio.get_running_loop(), list[float]()

    async def beat() -> None:
        begun.append(round(loop.time(), 3))
        await asyncio.sleep(beat_s)

    since = loop.time()
    await asyncio.sleep(beat_s)  # so long it took to get the lease
    async with send_heartbeats(beat, 3, since):
        await asyncio.sleep(length_s - beat_s)
    return begun


@pytest.mark.parametrize(
    ("beat_s", "begun"),
    [(0.0, [1, 2, 3, 4, 5]), (0.7, [1, 2, 3, 4, 5]), (1.4, [1.4, 2.8, 4.2, 5.6]), (2.5, [2.5, 5])],
)
def test_heartbeats_are_due_from_the_beginning_of_the_last(beat_s: float, begun: list[float]) -> None:
    """A lease counts from there too: a slow store must not use up the time of the next one."""
    now = 0.0
    loop = asyncio.SelectorEventLoop()
    select = loop._selector.select  # type: ignore[attr-defined]

    def jump(timeout: float | None) -> Any:
        nonlocal now
        now += timeout or 0
        return select(0)

    loop.time, loop._selector.select = lambda: now, jump  # type: ignore[attr-defined, method-assign]
    try:
        assert loop.run_until_complete(count_heartbeats(5.9, beat_s)) == begun
    finally:
        loop.close()


async def test_a_block_that_lost_its_lock_is_told(quick: Cupboard) -> None:
    lock = await made(quick, "lock")
    reached = False
    with pytest.raises(errors.NotLockHolder):
        async with quick.stashes.held(lock.id, "me", lease_s=1.5):
            stolen = await quick.stashes.get(lock.id)
            stolen.value = None  # by force
            await quick.stashes.set(stolen.id, stolen)
            await asyncio.sleep(5)
            reached = True
    assert not reached
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    with pytest.raises(ZeroDivisionError):  # what went wrong in the block says more
        async with quick.stashes.held(lock.id, "me"):
            await quick.stashes.release(lock.id, "me")
            raise ZeroDivisionError


async def test_names_in_their_scopes(cupboard: Cupboard) -> None:
    one, two = await cupboard.start("one"), await cupboard.start("two")
    first = await made(cupboard, "context", {}, "config")
    with pytest.raises(errors.DuplicateName):
        await made(cupboard, "lock", None, "config")
    await cupboard.links.set(None, Link("scoped_to", first.id, one.id))
    second = await made(cupboard, "context", {}, "config")  # the name is free again
    with pytest.raises(errors.DuplicateName):
        await cupboard.links.set(None, Link("scoped_to", second.id, one.id))
    await cupboard.links.set(None, Link("scoped_to", second.id, two.id))
    third = await made(cupboard, "context", {}, "config")
    with pytest.raises(errors.DuplicateName):
        await cupboard.links.delete((await cupboard.links.fetch(from_id=first.id))[0].id)
    other = await made(cupboard, "context", {}, "other")
    other.name = "config"
    with pytest.raises(errors.DuplicateName):
        await cupboard.stashes.set(other.id, other)
    third.name = "free"
    await cupboard.stashes.set(third.id, third)
    await cupboard.stashes.set(other.id, other)
    assert len(await cupboard.stashes.fetch(name="config")) == 3


async def test_deleting_one_takes_its_history_and_scope_along(cupboard: Cupboard) -> None:
    trail = await cupboard.start("t")
    stash = await cupboard.stashes.create("s", "counter", trail=trail.id)
    await cupboard.stashes.increment(stash.id)
    await cupboard.stashes.delete(stash.id)
    assert await cupboard.links.fetch() == await cupboard.stashes.history(stash.id) == []
    again = Stash("s", "counter", {"value": 5})
    await cupboard.stashes.set(stash.id, again)
    assert [(e.version, e.value) for e in await cupboard.stashes.history(stash.id)] == [(1, {"value": 5})]
    for nothing in ("nothing", trail.id):
        assert await cupboard.stashes.history(nothing) == []
    for empty in ("", None):
        with pytest.raises(errors.InvalidID):
            await cupboard.stashes.history(empty)  # type: ignore[arg-type]


async def test_operations_on_nothing(quick: Cupboard) -> None:
    crumb = await quick.add("x")
    table = quick.stashes
    for id, error in (
        ("nothing", errors.EntityNotFound),
        (crumb.id, errors.EntityNotFound),
        ("", errors.InvalidID),
    ):
        for call in (
            table.set_value(id, 1),
            table.increment(id),
            table.acquire(id, "me"),
            table.release(id, "me"),
            table.heartbeat(id, "me"),
        ):
            with pytest.raises(error):
                await call


@pytest.mark.parametrize("lease_s", [0, -1, "5", True, float("nan"), float("inf"), 10**12])
async def test_a_lease_is_a_time(quick: Cupboard, lease_s: Any) -> None:
    lock = await made(quick, "lock")
    for call in (
        lambda: quick.stashes.acquire(lock.id, "me", lease_s=lease_s),
        lambda: quick.take("me", lease_s=lease_s),
    ):
        with pytest.raises(errors.InvalidData):
            await call()
    with pytest.raises(errors.InvalidData):
        lock.acquire("me", lease_s=lease_s)
    assert (await quick.stashes.get(lock.id)).value is None
