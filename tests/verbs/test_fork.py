"""Forks on the command line: they come and go whole, and the store they were made from is not touched."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.exchange import folders
from tests.cli.terminal import Terminal, on_a_terminal
from tests.exchange.forks import fill, state
from tests.fault.check import check_store
from tests.verbs.test_constellation import killed


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A home with a filled default constellation."""
    made = Terminal(tmp_path / "home", monkeypatch)
    assert made("constellation", "create", "default").code == 0
    asyncio.run(in_store(made, "default", fill))
    return made


async def in_store(terminal: Terminal, name: str, work: Callable[[dgent.Universe], Awaitable[Any]]) -> Any:
    """Do something in a constellation."""
    folder = terminal.store.parents[1] / name
    async with dgent.open(f"sqlite:///{folder}/membrane.db", author="ann") as u:
        return await work(u)


async def append(u: dgent.Universe) -> None:
    await (await Library(u, "scout").get("persona")).append(" In the fork.", message="tried")
    await u.put(dgent.Datum("a", data={"n": 7}))


async def persona(u: dgent.Universe) -> str:
    return await (await Library(u, "scout").get("persona")).text()


def told(terminal: Terminal, *words: str) -> Any:
    """What a command answers."""
    return terminal(*words, "--json").data


def refused(terminal: Terminal, *words: str) -> str:
    """The code of the error of a command."""
    code: str = terminal(*words, "--json").error["code"]
    return code


def inside(terminal: Terminal) -> list[str]:
    return sorted(os.listdir(terminal.store.parents[1]))


@pytest.mark.parametrize("words", [(), ("--scope", "core"), ("--since", "0")])
def test_made_changed_and_merged(terminal: Terminal, words: tuple[str, ...]) -> None:
    made = told(terminal, "constellation", "fork", "sandbox", *words)
    assert made["blocks"] == (1 if "core" in words else 3)
    [listed] = told(terminal, "fork", "list")["items"]
    assert (listed["name"], listed["source_name"], listed["whole"]) == ("sandbox", "default", True)
    assert listed["fork_point"] == made["fork_point"]
    asyncio.run(in_store(terminal, "sandbox", append))
    apart = told(terminal, "fork", "status", "sandbox")
    assert apart["merge"]["blocks"][0]["label"] == "persona" and apart["source_commits"] == 0
    assert "scout/persona  1 version came" in terminal("fork", "status", "sandbox").out
    done = told(terminal, "constellation", "merge", "sandbox")
    assert [each["versions"] for each in done["blocks"]] == [1]
    assert asyncio.run(in_store(terminal, "default", persona)).endswith(" In the fork.")
    assert terminal("constellation", "merge", "sandbox").out.startswith("merged nothing")
    check_store(str(terminal.store))


def test_thrown_away_it_leaves_nothing(terminal: Terminal) -> None:
    before = asyncio.run(in_store(terminal, "default", state))
    size = sorted(path.name for path in terminal.store.parent.iterdir())
    assert terminal("constellation", "fork", "sandbox").code == 0
    asyncio.run(in_store(terminal, "sandbox", append))
    assert terminal("fork", "delete", "sandbox", "--dry-run").out.startswith("would throw away sandbox")
    assert inside(terminal) == ["default", "sandbox"]
    assert terminal("fork", "delete", "sandbox", "--yes").code == 0
    assert inside(terminal) == ["default"]
    assert asyncio.run(in_store(terminal, "default", state)) == before
    assert sorted(path.name for path in terminal.store.parent.iterdir()) == size
    assert told(terminal, "fork", "list")["items"] == []
    assert terminal("fork", "delete", "default", "--yes").code != 0 and inside(terminal) == ["default"]


@pytest.mark.parametrize("words", [(), ("--scope", "core")])
def test_killed_while_it_is_made(terminal: Terminal, words: tuple[str, ...]) -> None:
    for at in ("dgent.exchange.fork.baseline.save", "dgent.exchange.folders.publish_folder"):
        killed(at, "constellation", "fork", "sandbox", *words)
        assert inside(terminal) == [".sandbox.making", "default"]
        assert told(terminal, "fork", "list")["items"] == []
        assert folders.find_leftovers(terminal.store.parent) == [
            terminal.store.parents[1] / ".sandbox.making"
        ]
    assert terminal("constellation", "fork", "sandbox", *words).code == 0
    assert inside(terminal) == ["default", "sandbox"]


def test_killed_while_it_is_merged(terminal: Terminal) -> None:
    assert terminal("constellation", "fork", "sandbox").code == 0
    asyncio.run(in_store(terminal, "sandbox", append))
    for at in ("dgent.blocks.history.join.join", "dgent.exchange.fork.baseline.save"):
        killed(at, "constellation", "merge", "sandbox")
        check_store(str(terminal.store))
    assert terminal("constellation", "merge", "sandbox").code == 0
    text = asyncio.run(in_store(terminal, "default", persona))
    assert text.count(" In the fork.") == 1
    assert terminal("constellation", "merge", "sandbox").out.startswith("merged nothing")


def test_names_that_are_taken_and_stores_that_are_not_theirs(terminal: Terminal) -> None:
    assert terminal("constellation", "fork", "sandbox").code == 0
    assert refused(terminal, "constellation", "fork", "sandbox") == "conflict"
    assert terminal("constellation", "create", "other").code == 0
    assert refused(terminal, "-C", "other", "constellation", "merge", "sandbox") == "conflict"
    assert refused(terminal, "-C", "sandbox", "constellation", "merge", "sandbox") == "conflict"
    assert refused(terminal, "constellation", "merge", "other") == "not_found"
    assert told(terminal, "-C", "sandbox", "constellation", "fork", "inner")["blocks"] == 3
    assert refused(terminal, "constellation", "merge", "inner") == "conflict"
    assert terminal("-C", "sandbox", "constellation", "merge", "inner").code == 0


def edit(side: str, n: int) -> Callable[[dgent.Universe], Awaitable[None]]:
    async def work(u: dgent.Universe) -> None:
        await (await Library(u, "scout").get("persona")).append(f" {side}.")
        await u.put(dgent.Datum("a", data={"n": n}))

    return work


def test_a_fork_catches_up(terminal: Terminal) -> None:
    told(terminal, "constellation", "fork", "sandbox")
    asyncio.run(in_store(terminal, "default", append))
    done = told(terminal, "fork", "pull", "sandbox", "--dry-run")
    assert done["dry_run"] and done["changed"] == 1
    out = terminal("fork", "pull", "sandbox").out
    assert "scout/persona  1 version came" in out and "records: 1 changed" in out
    assert asyncio.run(in_store(terminal, "sandbox", persona)).endswith(" In the fork.")
    assert terminal("-C", "sandbox", "fork", "pull").out.startswith("merged nothing")


def test_between_forks_and_by_label(terminal: Terminal) -> None:
    for name in ("one", "two"):
        told(terminal, "constellation", "fork", name)
    asyncio.run(in_store(terminal, "two", append))
    done = told(terminal, "fork", "pull", "one", "--from", "two", "--label", "persona", "--owner", "scout")
    assert [each["label"] for each in done["blocks"]] == ["persona"] and done["changed"] == 0
    assert told(terminal, "-C", "one", "fork", "pull", "--from", "two")["changed"] == 1
    assert refused(terminal, "fork", "pull", "one", "--label", "nothing") == "not_found"
    assert terminal("fork", "pull", "one", "--from", "default").out.startswith("merged nothing")


def test_conflicts_are_chosen(terminal: Terminal) -> None:
    told(terminal, "constellation", "fork", "sandbox")
    asyncio.run(in_store(terminal, "default", edit("Home", 2)))
    asyncio.run(in_store(terminal, "sandbox", edit("Fork", 3)))
    out = terminal("fork", "pull", "sandbox", "--conflicts", "ask").out  # no terminal: nobody to ask
    assert "a: changed on both sides; not decided: use --conflicts both, theirs or mine" in out
    assert asyncio.run(in_store(terminal, "sandbox", persona)).endswith("tea. Fork.")
    done = told(terminal, "fork", "pull", "sandbox", "--conflicts", "theirs")
    assert [each["choice"] for each in done["conflicts"]] == ["theirs", "theirs"]
    assert asyncio.run(in_store(terminal, "sandbox", persona)).endswith("tea. Home.")
    assert not told(terminal, "constellation", "merge", "sandbox")["conflicts"], "it was decided"


def test_conflicts_are_asked_about(terminal: Terminal) -> None:
    told(terminal, "constellation", "fork", "sandbox")
    asyncio.run(in_store(terminal, "default", edit("Home", 2)))
    asyncio.run(in_store(terminal, "sandbox", edit("Fork", 3)))
    words = ["fork", "pull", "sandbox", "--conflicts", "ask"]
    code, said = on_a_terminal(words, b"theirs\nmine\n")
    assert code == 0 and "a: changed on both sides. Keep (both, theirs, mine, open)" in said
    assert "persona: edited on both sides. Keep" in said
    assert asyncio.run(in_store(terminal, "sandbox", persona)).endswith("tea. Fork.")

    async def number(u: dgent.Universe) -> object:
        return (await u.get("a")).data["n"]

    assert asyncio.run(in_store(terminal, "sandbox", number)) == 2
