"""Rolling logs: written by the system, read by the agent, bounded where they are shown, and all kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from dgent import clock
from dgent.blocks import Library, Shape, Template, errors
from dgent.blocks.document.render import entry_line
from dgent.blocks.document.template import ROLLING_LOG
from dgent.errors import InputError
from tests.blocks.conftest import Rival


async def test_the_system_writes_and_the_agent_reads(lib: Library) -> None:
    await lib.log_tool("search", "3 results")
    await lib.log_tool("shell", {"code": 1}, ok=False)
    await lib.log_event("wake", {"why": "timer"})
    await lib.log_summary("We spoke of tea.", 12)
    block = await lib.get("log")
    assert [line.partition(") ")[2] for line in (await block.text()).split("\n")] == [
        "We spoke of tea.; count: 12",
        "event: wake; details: {why: timer}",
        "tool: shell; ok: false; result: {code: 1}",
        "tool: search; result: 3 results",
    ]
    assert [each.op for each in await block.history()] == ["summary", "event", "tool", "tool", "create"]
    assert all(each["agent"] == "scout" and each["at"] for each in await block.entries())
    for edit in (block.log("forged"), block.append("forged"), block.rollback(1), block.undo()):
        with pytest.raises(errors.PermissionDenied):
            await edit
    assert len(await block.entries()) == 4


async def test_a_caller_without_trust_logs_nothing(quick: Library) -> None:
    stranger = Library(quick._universe, agent="scout", trust="untrusted")
    with pytest.raises(errors.PermissionDenied):
        await stranger.log_event("hello")
    assert await quick.list() == []


async def test_only_a_log_is_logged_to(quick: Library) -> None:
    await quick.create("notes")
    with pytest.raises(errors.WrongKind):
        await quick.log_event("hello", label="notes")
    with pytest.raises(InputError):
        await quick.log_tool("")


async def test_what_is_shown_is_bounded_and_everything_is_kept(quick: Library) -> None:
    for n in range(60):
        await quick.log_tool("count", f"number {n} " + "x" * 2000)
    block = await quick.describe("log", limit=5000)
    lines = (await block.text()).split("\n")
    assert len(await block.text()) <= block.limit and len(lines) < 20
    assert "number 59" in lines[0] and lines[0].endswith("…")
    assert len(await block.entries()) == 60
    found = await block.entries("NUMBER 37")
    assert [each["result"][:10] for each in found] == ["number 37 "]


async def test_entries_are_found_by_words_agent_and_time(quick: Library) -> None:
    block = await quick.create("seen", template="observation_log")
    await block.log("a red bird", by="scout")
    await block.log("a blue bird", by="scribe")
    middle = clock.now()
    await block.log("a red car", by="scribe")
    assert [each["observation"] for each in await block.entries("red")] == ["a red car", "a red bird"]
    assert [each["observation"] for each in await block.entries("bird red")] == ["a red bird"]
    assert len(await block.entries(agent="scribe")) == 2
    assert [each["observation"] for each in await block.entries(since=middle)] == ["a red car"]
    assert len(await block.entries(until=middle, limit=1)) == 1
    with pytest.raises(InputError):
        await block.entries(since=middle.replace(tzinfo=None))


async def test_old_entries_go_by_rule_and_stay_in_the_history(lib: Library) -> None:
    rule = replace(ROLLING_LOG, shape=replace(ROLLING_LOG.shape, keep=8))
    await lib.create("log", template=rule)
    for n in range(30):
        await lib.log_event("tick", n)
    block = await lib.get("log")
    kept = [each["details"] for each in await block.entries()]
    assert kept == list(range(29, 29 - len(kept), -1)) and 8 <= len(kept) <= 10
    everything = [each["details"] for each in await block.entries(trimmed=True)]
    assert everything == list(range(29, -1, -1))
    assert [each["details"] for each in await block.entries("3", trimmed=True)] == [23, 13, 3]


async def test_entries_of_an_age_go_by_rule(quick: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    block = await quick.create("l", template=Template("short", Shape("log", keep_s=3600)))
    now = clock.now()
    for minutes in range(0, 200, 10):
        monkeypatch.setattr(clock, "now", lambda minutes=minutes: now + timedelta(minutes=minutes))
        await block.log(f"{minutes}")
    kept = [int(each["message"]) for each in await block.entries()]
    assert kept[0] == 190 and 110 <= min(kept) <= 130
    assert len(await block.entries(trimmed=True)) == 20


async def test_two_programs_write_one_log(lib: Library, rival: Rival) -> None:
    other = await rival()
    await asyncio.gather(
        *(each.log_event("beat", f"{name}{n}") for n in range(5) for name, each in (("a", lib), ("b", other)))
    )
    found = {each["details"] for each in await (await lib.get("log")).entries()}
    assert found == {f"{name}{n}" for name in "ab" for n in range(5)}


async def test_two_programs_trim_one_log(lib: Library, rival: Rival) -> None:
    await lib.create("log", template=Template("few", Shape("log", keep=4)))
    other = await rival()
    await asyncio.gather(*(each.log_event("beat", n) for n in range(12) for each in (lib, other)))
    block = await lib.get("log")
    assert 4 <= len(await block.entries()) <= 6
    everything = [each["details"] for each in await block.entries(trimmed=True)]
    assert sorted(everything) == sorted([*range(12), *range(12)])


async def test_versions_of_a_log_say_how_much_came_and_went(quick: Library) -> None:
    shape = Shape("log", keep=8, display=2, clip=10)  # of which a prompt shows little
    log = await quick.create("l", template=Template("short", shape))
    lines = []
    for n in range(10):
        await log.log(f"{n} " * 50)
        [newest, *_] = await log.entries()
        lines.append(len(entry_line(newest)))
    assert [each.diffstat for each in await log.history()][:-1] == [f"+{size} -0" for size in lines[::-1]]
    await log.log("one more")
    lines.append(len(entry_line((await log.entries())[0])))
    [trim, *_] = await log.history()
    assert (trim.op, trim.added, trim.removed) == ("trim", 0, sum(lines[:3]))
    undone = await log.undo()
    assert (undone.added, undone.removed) == (sum(lines[:3]), 0)
    back = await log.rollback(2)
    assert (back.added, back.removed) == (0, sum(lines[1:]))
