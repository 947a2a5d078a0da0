"""Blocks without an event loop: the same names, and every call blocks until it is answered."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import blocks as rooms
from dgent import sync
from dgent.errors import Closed, InputError
from dgent.sync import blocks as blocking
from dgent.sync.blocks import Block, Library, Request, Section, Version, View, errors

OTHERS = {"Block", "Groups", "Library", "Roster", "Section"}


@pytest.fixture
def lib(u: sync.Universe) -> Library:
    """The library of an agent."""
    return Library(u, agent="scout")


# -- the names --------------------------------------------------------------------------------


def test_the_same_names_and_only_what_waits_is_another() -> None:
    assert set(blocking.__all__) == set(rooms.__all__)
    other = {name for name in rooms.__all__ if getattr(blocking, name) is not getattr(rooms, name)}
    assert other == OTHERS


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_every_method_is_there_and_blocks(name: str) -> None:
    theirs, ours = getattr(rooms, name), getattr(blocking, name)
    public = {each for each in dir(theirs) if not each.startswith("_")}
    assert public <= set(dir(ours))
    assert ours.__module__ == "dgent.sync.blocks"
    for each in public & {each for each, _ in inspect.getmembers(theirs, inspect.isfunction)}:
        method = getattr(ours, each)
        before = inspect.signature(getattr(theirs, each)).parameters
        assert list(inspect.signature(method).parameters) == list(before)
        assert not inspect.iscoroutinefunction(method)
        assert not {"async", "await"} & set((method.__doc__ or "").replace("`", " ").split())


def test_loading_the_blocking_names_does_not_load_the_room() -> None:
    code = "import sys; from dgent import sync; print([m for m in sys.modules if 'blocks' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# -- what they do -----------------------------------------------------------------------------


def test_a_block_is_edited_and_looked_back_at(lib: Library) -> None:
    persona = lib.create("persona", text="I like short answers.")
    assert isinstance(persona, Block)
    assert isinstance(persona.replace("short", "plain", expect=persona.version), Version)
    assert [each.op for each in persona.history()] == ["replace", "create"]
    assert isinstance(persona.at(1), View)
    assert "-I like short answers." in str(persona.diff(1, 2))
    persona.undo()
    assert persona.text() == "I like short answers."
    persona.redo()
    assert lib.get("persona").text() == "I like plain answers."
    assert repr(persona) == "<Block scout/persona version 4>"


def test_what_a_library_gives_blocks_too(lib: Library) -> None:
    goals = rooms.SectionShape("goals", rooms.Shape("list"))
    plan = lib.create("plan", template=rooms.Template("plan", rooms.Shape("composite", sections=(goals,))))
    part = plan.section("goals")
    assert isinstance(part, Section)
    part.append("sleep more")
    assert part.value() == {"items": ["sleep more"]}
    found = lib.list()
    assert [type(each) for each in found] == [Block]
    assert found[0].value() == {"goals": {"items": ["sleep more"]}}
    assert lib.list(kind="core") == []
    assert lib.pin("plan").pinned
    assert (lib.agent, lib.trust) == ("scout", "partner")


def test_agents_groups_shares_and_notices(lib: Library, u: sync.Universe) -> None:
    lib.agents.create("scribe")
    lib.groups.create("writers")
    assert [member.agent for member in lib.groups.join("writers", "scribe").members] == ["scribe"]
    notes = lib.create("notes", text="one")
    lib.share("notes", with_group="writers", permission="read_write")
    scribe = Library(u, agent="scribe")
    assert "scout/notes: new to you, by scout" in scribe.render()
    scribe.get("notes").append(" two")
    [notice] = lib.notices(mark=True)
    assert (notice.by, lib.notices()) == (("scribe",), [])
    assert "+one two" in str(notice)
    assert notes.text() == "one two"
    assert [hit.label for hit in lib.search("two")] == ["notes"]


def test_a_plain_function_is_asked_for_consent_and_may_block(u: sync.Universe) -> None:
    asked: list[Request] = []

    def agree(request: Request) -> bool:
        asked.append(request)
        return u.seq() > 0 and request.operation == "append"  # itself a blocking call

    lib = Library(u, agent="scout", consent=agree)
    block = lib.create("human", permission="human", text="Ada.")
    block.append(" She is tired.")
    with pytest.raises(errors.ConsentRefused):
        block.write("Nobody.")
    assert block.text() == "Ada. She is tired."
    assert [(each.operation, each.label) for each in asked] == [("append", "human"), ("overwrite", "human")]
    assert [each.what for each in lib.refusals()] == ["write"]


def test_consent_that_is_not_given_in_time_is_none(u: sync.Universe) -> None:
    late = threading.Event()
    lib = Library(u, agent="scout", consent=lambda _request: late.wait(20), consent_s=0.05)
    block = lib.create("human", permission="human")
    begin = time.monotonic()
    with pytest.raises(errors.ConsentRefused):
        block.append("now")
    assert time.monotonic() - begin < 10
    late.set()


def test_what_is_of_the_other_kind_is_refused(u: sync.Universe) -> None:
    async def agree(_request: Request) -> bool:
        return True

    with pytest.raises(InputError, match=r"dgent\.sync"):
        Library(dgent.open("memory:"), agent="scout")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"takes a universe of dgent\.open"):
        rooms.Library(u, agent="scout")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="plain functions"):
        Library(u, agent="scout", consent=agree)  # type: ignore[arg-type]


def test_many_threads_edit_one_block(lib: Library) -> None:
    block = lib.create("notes")

    def work(n: int) -> None:
        for step in range(5):
            block.append(f"[{n}.{step}]")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text = block.text()
    assert all(text.count(f"[{n}.{step}]") == 1 for n in range(6) for step in range(5))
    assert [each.number for each in block.history()] == list(range(31, 0, -1))


def test_a_closed_universe_says_so(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/u.db"
    with sync.open(place) as u:
        block = Library(u, agent="scout").create("notes", text="kept")
    calls: list[Any] = [block.text, lambda: block.append("x"), block.history]
    for call in calls:
        with pytest.raises(Closed):
            call()
    with sync.open(place) as u:
        assert Library(u, agent="scout").get("notes").text() == "kept"
