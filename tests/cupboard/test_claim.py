"""A claim: who holds a crumb, how long, and who may finish it."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

import dgent
from dgent import clock
from dgent.cupboard import Crumb, Cupboard, errors
from dgent.cupboard import lease as leasing
from dgent.universe.gate import Principal
from dgent.universe.lease import LeaseRecord
from dgent.verbs.caller import Caller
from dgent.verbs.path import invoke
from tests.cupboard.conftest import Hours, Rival

HOUR = 3600.0


async def taken_by(cupboard: Cupboard, agent: str, lease_s: float | None = None) -> Crumb:
    found = await cupboard.take(agent, lease_s=lease_s)
    assert found is not None
    return found


# -- who may finish it ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["done", "drop", "release"])
async def test_only_the_holder_finishes_unless_forced(cupboard: Cupboard, rival: Rival, how: str) -> None:
    """The author of the cupboard is ann, that of the rival is bob."""
    other = await rival()
    made = await cupboard.add("x", state="ready")
    await taken_by(cupboard, "ann")
    for crumb in (made.id, await other.crumbs.get(made.id)):
        with pytest.raises(errors.NotLockHolder) as caught:
            await getattr(other, how)(crumb)
        assert "ann" in str(caught.value) and caught.value.hint
    with pytest.raises(errors.NotLockHolder):
        await getattr(cupboard, how)(made.id, agent="carl")
    assert (await cupboard.crumbs.get(made.id)).holder == "ann"
    finished = await getattr(other, how)(made.id, force=True)
    assert (finished.state != "taken", finished.holder) == (True, None)


@pytest.mark.parametrize("how", ["done", "drop", "release"])
async def test_the_lost_lease_finishes_nothing(cupboard: Cupboard, hours: Hours, how: str) -> None:
    await cupboard.add("x", state="ready")
    lost = await taken_by(cupboard, "ada", 100)
    hours.pass_by(101)
    now = await taken_by(cupboard, "bea", 100)
    for call in (
        {"crumb": lost},
        {"crumb": lost, "token": lost.token},
        {"crumb": lost.id, "agent": "ada"},
        {"crumb": lost, "agent": "ada"},
        {"crumb": lost.id},
    ):
        with pytest.raises(errors.NotLockHolder):
            await getattr(cupboard, how)(**call)
    lost.set_state("pebble")
    with pytest.raises(errors.NotLockHolder):  # nor by way of the table
        await cupboard.crumbs.set(lost.id, lost)
    assert (await cupboard.crumbs.get(lost.id)).holder == "bea"
    await getattr(cupboard, how)(now)  # as `take` gave it


async def test_at_a_door_a_friend_does_not_finish_what_another_holds(quick: Cupboard) -> None:
    """By no verb, and not with the token either: everybody can read it."""
    u = quick.universe
    made = await quick.add("x", state="ready")
    token = (await taken_by(quick, "ann")).token
    bob = Caller("mail", "bob", "friend")
    for verb, args in (
        *((f"crumb.{how}", {"token": token}) for how in ("done", "drop", "release")),
        *((f"crumb.{how}", {}) for how in ("done", "drop", "release", "delete", "heartbeat")),
        ("crumb.state", {"state": "pebble"}),
        ("crumb.set", {"state": "ready"}),
        ("cupboard.set", {"table": "crumbs", "data": {"State": "pebble"}}),
        ("cupboard.delete", {"table": "crumbs"}),
    ):
        with pytest.raises(errors.NotLockHolder):
            await invoke(u, f"self.{verb}", id=made.id, caller=bob, **args)
    for how in ("done", "drop", "release"):
        with pytest.raises(dgent.Denied):
            await invoke(u, f"self.crumb.{how}", id=made.id, force=True, caller=bob)
    assert (await quick.crumbs.get(made.id)).holder == "ann"
    data = {"Name": "y"}  # what leaves the claim alone is allowed
    await invoke(u, "self.cupboard.set", table="crumbs", id=made.id, data=data, caller=bob)
    ann = Caller("mail", "ann", "friend")
    await invoke(u, "self.crumb.done", id=made.id, token=token, caller=ann)
    await invoke(u, "self.crumb.delete", id=made.id, caller=bob)


async def test_at_a_door_a_friend_does_not_free_the_lock_of_another(quick: Cupboard) -> None:
    u = quick.universe
    lock = await quick.stashes.create("lock", "lock")
    await quick.stashes.acquire(lock.id, "ann")
    bob = Caller("mail", "bob", "friend")
    given = {"table": "stashes", "id": lock.id, "caller": bob}
    held = (await quick.stashes.get(lock.id)).value
    ended = held | {"lease_until": "2020-01-01T00:00:00Z"}
    for value in (None, {}, {"holder": "bob"}, ended, held | {"lease_until": "soon"}):
        with pytest.raises((errors.NotLockHolder, errors.LockHeld)):
            await invoke(u, "self.cupboard.set", data={"Value": value}, **given)
    await invoke(u, "self.cupboard.set", data={"Name": "other"}, **given)
    assert (await quick.stashes.get(lock.id)).value["holder"] == "ann"
    await invoke(u, "self.cupboard.set", table="stashes", id=lock.id, data={"Value": None})


async def test_at_a_door_a_friend_takes_a_crumb_from_nobody_by_way_of_its_trail(quick: Cupboard) -> None:
    u = quick.universe
    trail = await quick.start("try")
    made = await quick.add("x", state="ready", trail=trail)
    await taken_by(quick, "ann")
    bob, ann = Caller("mail", "bob", "friend"), Caller("mail", "ann", "friend")
    for verb, args in (
        ("trail.abandon", {}),
        ("trail.set", {"state": "abandoned"}),
        ("cupboard.set", {"table": "trails", "data": {"State": "abandoned"}}),
    ):
        with pytest.raises(errors.NotLockHolder) as caught:
            await invoke(u, f"self.{verb}", id=trail.id, caller=bob, **args)
        assert "ann" in str(caught.value) and "force" not in caught.value.hint
    assert (await quick.crumbs.get(made.id)).holder == "ann"
    await invoke(u, "self.trail.abandon", id=trail.id, caller=ann)
    assert await quick.crumbs.fetch() == []


async def test_at_a_door_a_friend_frees_no_lock_by_way_of_its_trail(quick: Cupboard) -> None:
    u = quick.universe
    bob = Caller("mail", "bob", "friend")
    trail = await quick.start("try")
    lock = await quick.stashes.create("lock", "lock", trail=trail.id)
    await quick.stashes.acquire(lock.id, "ann")
    with pytest.raises(errors.NotLockHolder):
        await invoke(u, "self.trail.abandon", id=trail.id, caller=bob)
    with pytest.raises(errors.NotLockHolder):
        await invoke(u, "self.data.undo", caller=bob)
    await quick.stashes.release(lock.id, "ann")
    await invoke(u, "self.trail.abandon", id=trail.id, caller=bob)
    assert await quick.stashes.fetch() == []


async def test_at_a_door_a_friend_undoes_no_claim_of_another(quick: Cupboard) -> None:
    u = quick.universe
    made = await quick.add("x", state="ready")
    added = await u.seq()
    await taken_by(quick, "ann")
    claimed = await u.seq()
    bob, ann = Caller("mail", "bob", "friend"), Caller("mail", "ann", "friend")
    for seq, force in ((claimed, False), (claimed, True), (added, True)):
        with pytest.raises(errors.NotLockHolder):
            await invoke(u, "self.data.undo", seq=seq, force=force, caller=bob)
        assert (await quick.crumbs.get(made.id)).holder == "ann"
    await invoke(u, "self.data.undo", seq=claimed, caller=ann)
    assert (await quick.crumbs.get(made.id)).state == "ready"
    await taken_by(quick, "ann")
    await quick.done(made.id, agent="ann")
    await invoke(u, "self.data.undo", caller=bob)  # nobody holds it
    assert (await quick.crumbs.get(made.id)).holder == "ann"
    await invoke(u, "self.data.undo", seq=await u.seq(), force=True)  # here is a partner


async def test_a_handle_of_a_friend_forces_nothing(quick: Cupboard, hours: Hours) -> None:
    made = await quick.add("x", state="ready")
    await taken_by(quick, "ann", 100)
    bob = Cupboard(quick.universe.acting(Principal("bob", "friend")))
    for how in (
        lambda: bob.done(made.id, force=True),
        lambda: bob.done(made.id, agent="ann"),
        lambda: bob.crumbs.delete(made.id),
    ):
        with pytest.raises(errors.NotLockHolder):
            await how()
    await bob.comment(made.id, "still at it?")
    hours.pass_by(101)
    await bob.crumbs.delete(made.id)  # nobody holds it any more


@pytest.mark.parametrize("verb", ["done", "drop", "release", "heartbeat"])
async def test_at_a_door_the_hint_is_a_command(quick: Cupboard, verb: str) -> None:
    made = await quick.add("x", state="ready")
    await taken_by(quick, "bea")
    for given in (made.id, "x"):
        with pytest.raises(errors.NotLockHolder) as caught:
            await invoke(quick.universe, f"self.crumb.{verb}", id=given)
        hint = f"`dgent --agent bea crumb {verb} {given}` acts as the holder"
        assert caught.value.hint == hint + ("" if verb == "heartbeat" else "; --force overrides")
    with pytest.raises(errors.NotLockHolder) as caught:
        await invoke(quick.universe, "self.crumb.state", id="x", state="ready")
    hint = "`dgent --agent bea crumb state x ready` acts as the holder; --force overrides"
    assert caught.value.hint == hint
    if verb != "heartbeat":
        with pytest.raises(errors.NotLockHolder) as caught:
            await invoke(quick.universe, f"self.crumb.{verb}", id="x", token=7)
        assert caught.value.hint == "`dgent crumb get x` shows who holds it"


async def test_the_holder_finishes_by_name_by_token_or_with_what_take_gave(quick: Cupboard) -> None:
    for n in range(4):
        await quick.add(f"c{n}", state="ready")
    one, two, three = [await taken_by(quick, "ada") for _ in range(3)]
    await quick.done(one)
    await quick.done(two.id, token=two.token)
    await quick.done(three.id, agent="ada")
    four = await taken_by(quick, "ann")  # the author
    await quick.done(four.id)
    assert [c.state for c in await quick.crumbs.fetch()] == ["pebble"] * 4


async def test_an_expired_lease_that_nobody_else_took_is_still_finished(
    quick: Cupboard, hours: Hours
) -> None:
    await quick.add("x", state="ready")
    mine = await taken_by(quick, "ada", 100)
    hours.pass_by(500)
    assert (await quick.done(mine)).state == "pebble"


async def test_what_nobody_holds_is_finished_by_anybody(quick: Cupboard) -> None:
    made = await quick.add("x", state="taken")  # set by hand, without a holder
    assert (await quick.done(made.id, agent="bea")).state == "pebble"
    other = await quick.add("y", state="ready")
    assert (await quick.drop(other.id, agent="bea")).state == "dust"


# -- how long it lasts ----------------------------------------------------------------------------


async def test_a_claim_without_a_lease_lasts(cupboard: Cupboard, rival: Rival, hours: Hours) -> None:
    other = await rival()
    made = await cupboard.add("x", state="ready")
    mine = await taken_by(cupboard, "ada")
    assert mine.lease_until is None
    hours.pass_by(10 * 365 * 24 * HOUR)
    assert await other.take("bea") is None and await other.ready() == []
    assert (await other.explain(made)).reasons == ("its state is taken by ada",)
    assert await cupboard.heartbeat(mine, "ada") is None
    with pytest.raises(errors.NotLockHolder):
        await cupboard.heartbeat(mine, "bea")
    await cupboard.release(mine)
    assert (await taken_by(other, "bea")).id == made.id


# -- clocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-10 * 365 * 24 * HOUR, -HOUR, HOUR, 10 * 365 * 24 * HOUR])
async def test_setting_the_clock_moves_no_lease(cupboard: Cupboard, hours: Hours, jump: float) -> None:
    made = await cupboard.add("x", state="ready")
    lock = await cupboard.stashes.create("l", "lock")
    mine = await taken_by(cupboard, "ada", 100)
    await cupboard.stashes.acquire(lock.id, "ada", lease_s=100)
    hours.set_clock(jump)
    hours.pass_by(50)
    assert await cupboard.take("bea") is None and not (await cupboard.explain(made)).ready
    with pytest.raises(errors.LockHeld):
        await cupboard.stashes.acquire(lock.id, "bea")
    await cupboard.heartbeat(mine, "ada", lease_s=100)
    await cupboard.stashes.heartbeat(lock.id, "ada", lease_s=100)
    hours.set_clock(-jump / 2)
    hours.pass_by(99)
    assert await cupboard.take("bea") is None
    with pytest.raises(errors.LockHeld):
        await cupboard.stashes.delete(lock.id)
    hours.pass_by(2)
    assert (await cupboard.explain(made)).ready
    with pytest.raises(errors.NotLockHolder):
        await cupboard.heartbeat(mine, "ada")
    assert (await taken_by(cupboard, "bea", 100)).id == made.id
    assert await cupboard.stashes.acquire(lock.id, "bea", lease_s=100) > 0


async def test_a_lock_acquired_in_memory_has_such_a_lease_too(quick: Cupboard, hours: Hours) -> None:
    lock = await quick.stashes.create("l", "lock")
    lock.acquire("ada", lease_s=100)
    await quick.stashes.set(lock.id, lock)
    hours.set_clock(HOUR)
    with pytest.raises(errors.LockHeld):
        await quick.stashes.acquire(lock.id, "bea")
    hours.pass_by(101)
    await quick.stashes.acquire(lock.id, "bea")


async def test_on_another_machine_the_wall_clock_counts(
    quick: Cupboard, hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await quick.add("x", state="ready")
    await taken_by(quick, "ada", 100)
    monkeypatch.setattr(clock, "boot", lambda: "elsewhere")
    hours.pass_by(99)
    assert await quick.take("bea") is None
    hours.pass_by(2)
    assert (await taken_by(quick, "bea", 100)).id == made.id


async def test_a_machine_whose_clock_is_behind_waits_one_lease_at_most(
    quick: Cupboard, hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await quick.add("x", state="ready")
    mine = await taken_by(quick, "ada", 100)
    here = clock.boot()
    monkeypatch.setattr(clock, "boot", lambda: "elsewhere")
    hours.set_clock(-10 * HOUR)
    assert await quick.take("bea") is None  # from here on it watches
    hours.pass_by(99)
    assert await quick.take("bea") is None
    monkeypatch.setattr(clock, "boot", lambda: here)
    await quick.heartbeat(mine, "ada", lease_s=100)
    monkeypatch.setattr(clock, "boot", lambda: "elsewhere")
    hours.pass_by(2)
    assert await quick.take("bea") is None  # there was another sign of life
    hours.pass_by(101)
    assert (await taken_by(quick, "bea", 100)).id == made.id


async def test_a_lease_of_an_older_program_goes_by_the_wall_clock(quick: Cupboard, hours: Hours) -> None:
    """It was written without the time since the boot."""
    await quick.add("x", state="ready")
    mine = await taken_by(quick, "ada", 100)
    room = quick._universe
    [lease] = await room.get_many([leasing.lease_id(mine.id)])
    old = LeaseRecord(mine.id, "ada", mine.token, lease.value.until)
    await room.store(lease.replace(value=old))
    assert await quick.take("bea") is None
    await room.delete(lease.id)
    assert await quick.take("bea") is None
    hours.pass_by(101)
    assert await quick.take("bea") is not None


def test_the_time_since_the_boot() -> None:
    assert clock.boot() == clock.boot() != ""
    first, began = clock.since_boot_us(), time.monotonic_ns()
    while clock.since_boot_us() == first:
        pass
    passed = timedelta(microseconds=clock.since_boot_us() - first)
    assert timedelta(0) < passed <= timedelta(microseconds=(time.monotonic_ns() - began) / 1000 + 10_000)
