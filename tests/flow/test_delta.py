"""Large states: saved as what changed, and never lost, mixed up or left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgent
from dgent.errors import Conflict, InputError, UndoConflict, VersionConflict
from dgent.flow import StatefulAgent, StateFunctor
from dgent.flow.patch import apply_patch, copy_plain, find_patch
from dgent.verbs.room import inspect

LINE = "a line of some forty bytes, as texts are "
START = {"log": [f"{n} {LINE}" for n in range(300)], "count": 0}
Chat = StatefulAgent[dict[str, Any], str, int]


def add(line: str, s: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return s["count"], {"log": [*s["log"], line], "count": s["count"] + 1}


def chat(u: dgent.Universe, namespace: str = "chat") -> Chat:
    return StateFunctor(dict, u, START, namespace).lift_logic(add)


@pytest.fixture
async def u() -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:") as u:
        yield u


async def deltas(u: dgent.Universe) -> list[dgent.Datum]:
    found: list[dgent.Datum] = await u.query(schema="flow.delta", limit=None, raw=True)
    return sorted(found, key=lambda each: each.seq or 0)


async def test_a_search_does_not_show_parts_of_a_state(u) -> None:
    agent = chat(u)
    await agent.invoke("a heron")
    await agent.invoke("a stork")
    assert await deltas(u)
    assert {hit.record.schema for hit in await u.search("heron stork")} <= {"flow.state"}


scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-2, 2) | st.text(max_size=3)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)
maps = st.dictionaries(st.text(max_size=2), values, max_size=4)


@given(maps, maps)
def test_a_patch_leads_to_the_new_value(old: dict[str, Any], new: dict[str, Any]) -> None:
    before, patch = copy_plain(old), find_patch(old, new)
    assert repr(old) == repr(before), "finding a patch changes nothing"
    after = old if patch is None else apply_patch(copy_plain(old), copy_plain(patch))
    assert _text(after) == _text(new)


def _text(value: Any) -> str:
    """Spell a value out, so that 1, 1.0 and True differ, and the order of keys does not matter."""
    if isinstance(value, dict):
        return repr(sorted((key, _text(each)) for key, each in value.items()))
    return f"[{','.join(map(_text, value))}]" if isinstance(value, list) else repr(value)


def test_patches_are_small_and_checked_where_they_are() -> None:
    log = [{"text": LINE, "n": n} for n in range(100)]
    assert find_patch({"log": log}, {"log": [*log, 1]}) == ["{", {}, [], {"log": ["[", 100, 0, [1]]}]
    changed = [*log[:50], {"text": LINE, "n": -1}, *log[51:]]
    inner = ["@", 50, ["{", {"n": -1}, [], {}]]
    assert find_patch({"log": log}, {"log": changed}) == ["{", {}, [], {"log": inner}]
    assert find_patch({"a": [1]}, {"a": (1,)}) is None  # what is stored is the same
    for wrong in ({"log": [*log, object()]}, {"log": log, 5: 1}, {"log": [*log[:9], {"text": float("nan")}]}):
        with pytest.raises(InputError):
            find_patch({"log": log}, wrong)
    with pytest.raises(InputError, match=r"log\.100\.bad"):
        find_patch({"log": log}, {"log": [*log, {"bad": object()}]})


def test_a_deep_change_takes_no_longer_than_its_depth() -> None:
    def nest(leaf: int) -> Any:
        value: Any = leaf
        for _ in range(60):
            value = [value, 0]
        return value

    assert find_patch({"a": nest(1)}, {"a": nest(2)}) is not None
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    with pytest.raises(InputError, match="deeper"):
        find_patch({"a": {"b": 1}}, {"a": {"b": deep}})


async def test_steps_of_a_large_state_are_small_and_every_one_can_be_gone_back_to(tmp_path: Path) -> None:
    url, steps = f"sqlite:///{tmp_path}/s.db", 150
    async with dgent.open(url) as u:
        agent = chat(u)
        for n in range(steps):
            assert await agent.invoke(f"line {n}") == n
        assert len(await deltas(u)) >= steps - 3, "nearly all steps are deltas"
        assert len(await u.history("chat:state")) <= 3
    async with dgent.open(url) as u:
        agent = chat(u)
        assert await agent.invoke("after a restart") == steps
        history = await agent.history()
        assert [version.rev for version in history] == [*range(steps + 1, 0, -1)]
        for version in history:
            assert version.datum is not None and version.datum.data["count"] == version.rev
            assert len(version.datum.data["log"]) == 300 + version.rev
        assert (await agent.history(2)) == history[:2]
        assert (await agent.state_at(77))["log"][-1] == "line 76"
        twin = await agent.fork("what if", rev=40)
        assert await twin.invoke("x") == 40 and await agent.invoke("y") == steps + 1
        assert (await agent.resume(10))["count"] == 10
        assert await agent.invoke("z") == 10 and await agent.invoke("z") == 11
        revs = [version.rev for version in await agent.history()]
        assert revs == [*range(steps + 5, 0, -1)]


async def test_a_state_that_comes_back_does_not_bring_its_old_steps(u: dgent.Universe) -> None:
    agent: StatefulAgent[dict[str, Any], Any, None] = StateFunctor(dict, u, START, "s").lift_logic(
        lambda new, s: (None, {**START, "count": new} if type(new) is int else new)
    )
    other = {"log": [LINE * 2] * 300}
    await agent.invoke(0)
    for state in (1, 2, other, START, 7, other, START):
        await agent.invoke(state)
        fresh = StateFunctor(dict, u, {}, "s").lift_logic(lambda _, s: (s, s))
        wanted = {**START, "count": state} if type(state) is int else state
        assert await fresh.invoke(None) == await agent.current_state() == wanted
    await u.delete("s:state")
    assert await agent.current_state() == START
    await agent.invoke(0)
    assert await StateFunctor(dict, u, {}, "s").lift_logic(lambda _, s: (s, s)).invoke(None) == START
    assert [v.rev for v in await agent.history()] == sorted(
        (v.rev for v in await agent.history()), reverse=True
    )


async def test_two_handles_of_a_file_lose_no_step(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with dgent.open(url) as one, dgent.open(url) as two:
        agents = [chat(one), chat(two), chat(one)]
        await agents[0].invoke("first")
        seen = await asyncio.gather(*(agents[i % 3].invoke(f"{i}") for i in range(60)))
        assert sorted(seen) == [*range(1, 61)]
        state = await agents[1].current_state()
        assert state["count"] == 61 and sorted(state["log"][301:]) == sorted(map(str, range(60)))


async def test_a_rival_between_load_and_save_is_noticed(u: dgent.Universe) -> None:
    await chat(u).invoke("a")
    await chat(u).invoke("b")

    async def meet(rival: Any) -> None:
        async def slow(line: str, s: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            await rival()
            return add(line, s)

        agent = StateFunctor(dict, u, START, "chat").lift_logic(slow, attempts=1)
        with pytest.raises(VersionConflict):
            await agent.invoke("mine")

    async def by_hand() -> None:
        await u.put((await u.get("chat:state", raw=True)).replace(data={**START, "count": 50}))

    async def undo() -> None:
        await u.undo(await u.seq())

    await meet(undo)
    assert (await chat(u).current_state())["count"] == 1
    await meet(by_hand)
    assert await chat(u).invoke("c") == 50, "what was written by hand is the state"


async def test_a_look_during_a_step_does_not_hide_a_rival(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with dgent.open(url) as mine, dgent.open(url) as theirs:
        rival = chat(theirs)
        await rival.invoke("first")

        async def slow(line: str, s: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            if line == "mine" and s["count"] < 3:
                await rival.invoke("theirs")
                assert (await agent.current_state())["count"] == s["count"] + 1
            return add(line, s)

        agent = StateFunctor(dict, mine, START, "chat").lift_logic(slow)
        await agent.invoke("before")
        assert await agent.invoke("mine") == 3
        assert (await chat(theirs).current_state())["log"][300:] == ["first", "before", "theirs", "mine"]


async def test_a_step_can_be_undone_and_what_later_ones_build_on_is_missed(u: dgent.Universe) -> None:
    agent, seqs = chat(u), []
    for n in range(5):
        await agent.invoke(f"{n}")
        seqs.append(await u.seq())
    await u.undo(seqs[4])
    assert (await agent.current_state())["count"] == 4 == (await chat(u).current_state())["count"]
    with pytest.raises(UndoConflict, match="later steps build on"):
        await u.undo(seqs[2])
    undone = await u.undo(seqs[2], force=True)
    with pytest.raises(Conflict, match="later ones build on it"):
        await chat(u).invoke("x")
    await u.undo(undone.seq)
    assert await chat(u).invoke("5") == 4
    await u.undo(seqs[2], force=True)
    assert (await agent.resume(2))["count"] == 2
    assert await chat(u).invoke("again") == 2
    with pytest.raises(UndoConflict):
        await u.undo(seqs[0])


async def test_an_altered_step_is_noticed(u: dgent.Universe) -> None:
    agent = chat(u)
    for n in range(4):
        await agent.invoke(f"{n}")
    assert [each.level for each in await inspect(u, deep=True)] == ["ok"]
    second = (await deltas(u))[1]
    await u.put(second.replace(data={**second.data, "patch": ["{", {"count": 99}, [], {}]}))
    with pytest.raises(Conflict, match="altered"):
        await chat(u).current_state()
    (found,) = await inspect(u, deep=True)
    assert found.level == "problem" and "chat:state" in found.message


async def test_forgetting_a_state_erases_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with dgent.open(f"sqlite:///{path}") as u:
        agent = chat(u)
        for n in range(4):
            await agent.invoke(f"{n} my secret")
        await u.undo(await u.seq())  # its text is in the history of a part that is deleted
        await u.forget("chat:state")
        assert await deltas(u) == [] and await agent.history() == []
        assert await agent.invoke("anew") == 0
    left = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert b"my secret" not in left and b"anew" in left


async def test_pruned_versions_take_their_steps_with_them(u: dgent.Universe) -> None:
    agent = chat(u)
    for n in range(150):
        await agent.invoke(f"{n}")
    before = len(await deltas(u))
    await u.compact(0)
    assert 0 < len(await deltas(u)) < before - 100
    assert (await chat(u).current_state())["count"] == 150
    assert (await agent.history(1))[0].rev == 150


async def test_a_copy_of_the_records_is_a_copy_of_the_state(u: dgent.Universe) -> None:
    """Revs and commits are others in the copy."""
    for n in range(40):
        await chat(u).invoke(f"{n}")
    records = [await u.get("chat:state", raw=True), *await deltas(u)]
    async with dgent.open("memory:") as copy:
        for record in reversed(records):
            await copy.put(record.replace(rev=None, seq=None, updated_at=None))
        assert await chat(copy).current_state() == await chat(u).current_state()
        assert await chat(copy).invoke("on") == 40


async def test_a_cancelled_step_is_done_or_not_done(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/s.db") as u:
        agent = chat(u)
        await agent.invoke("first")
        for n in range(20):
            task = asyncio.create_task(agent.invoke(f"{n}"))
            for _ in range(n % 5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        now = await agent.current_state()
        assert now == await chat(u).current_state() and now["count"] == len(now["log"]) - 300
        assert await agent.invoke("last") == now["count"]


async def test_an_old_state_goes_on(u: dgent.Universe) -> None:
    """States of earlier versions of dgent are records without parts."""
    for n in range(3):
        old = {**START, "count": n}
        await u.put(dgent.Datum("chat:state", data=old, schema="flow.state", schema_version=1), expect=n)
    agent = chat(u)
    assert await agent.invoke("a") == 2 and await agent.invoke("b") == 3
    assert [version.rev for version in await agent.history()] == [5, 4, 3, 2, 1]


async def test_a_repeated_step_of_a_large_state_happens_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with dgent.open(url) as one, dgent.open(url) as two:
        agents = [chat(one), chat(two)]
        await agents[0].invoke("first")
        seen = await asyncio.gather(*(agents[n % 2].invoke("x", step="s") for n in range(8)))
        assert seen == [1] * 8 and (await agents[1].current_state())["count"] == 2


async def test_a_namespace_too_long_for_steps_is_saved_whole(u: dgent.Universe) -> None:
    agent = chat(u, "n" * 500)
    for n in range(3):
        assert await agent.invoke("x") == n
    assert await deltas(u) == [] and (await agent.state_at(2))["count"] == 2


async def test_namespaces_that_begin_with_another_one_are_apart(u: dgent.Universe) -> None:
    names = ("a", "a:state+b", "a:state+b:state+", "é+.1", "..", "a b\n")
    for name in names:
        for n in range(3):
            assert await chat(u, name).invoke(f"{name} {n}") == n
    for name in names:
        history = await chat(u, name).history()
        assert [version.rev for version in history] == [3, 2, 1]
        assert history[0].datum is not None and history[0].datum.data["log"][-1] == f"{name} 2"
    await u.forget("a:state")
    for name in names[1:]:
        assert (await chat(u, name).current_state())["count"] == 3
    assert len(await deltas(u)) == 2 * (len(names) - 1)


async def test_a_step_with_the_name_of_a_state_is_refused(u: dgent.Universe) -> None:
    await chat(u, "a:step:b").invoke("x")
    with pytest.raises(Conflict, match="another name"):
        await chat(u, "a").invoke("x", step="b:state")
    assert (await chat(u, "a:step:b").current_state())["count"] == 1


async def test_a_state_of_ten_megabytes_is_saved_by_what_changes(tmp_path: Path) -> None:
    big = {"log": ["x" * 1000] * 10_000, "count": 0}
    async with dgent.open(f"sqlite:///{tmp_path}/s.db") as u:
        agent = StateFunctor(dict, u, big, "big").lift_logic(add)
        for n in range(20):
            assert await agent.invoke("y" * 1000) == n
        assert (await u.stats()).size_bytes < 15_000_000
        assert len((await StateFunctor(dict, u, {}, "big").lift_logic(add).current_state())["log"]) == 10_020
