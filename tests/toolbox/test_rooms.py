"""The tools `work` and `data`: an agent's day over the cupboard and the records."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.doors.tools.tool import tool_of
from dgent.tools import Toolbox
from dgent.universe.gate import Principal
from tests.toolbox.tooling import minimal, no, ok


@pytest.fixture
async def u() -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:", author="boss") as universe:
        yield universe


@pytest.fixture
def box(u: dgent.Universe) -> Toolbox:
    """The tools of an agent that is a friend."""
    return Toolbox(u.acting(Principal("scout", "friend")))


# -- work ---------------------------------------------------------------------------------------


async def test_a_day_of_work(box: Toolbox, u: dgent.Universe) -> None:
    first = await ok(
        box, "work", "add", name="find the leak", state="ready", priority="high", label=["house"]
    )
    after = await ok(box, "work", "add", name="paint the wall", state="ready", parent=[first["id"]])
    assert first["properties"]["labels"] == ["house"]
    ready = (await ok(box, "work", "ready"))["items"]
    assert [each["name"] for each in ready] == ["find the leak"], "the other one waits"
    assert (await ok(box, "work", "blocked"))["items"][0]["waits_for"]
    taken = await ok(box, "work", "take")
    assert taken["id"] == first["id"] and taken["holder"] == "scout"
    other = Toolbox(u.acting(Principal("scribe", "friend")))
    await no(other, "work", "not_lock_holder", "done", id=first["id"])
    assert "no argument 'force'" in await no(other, "work", "input", "done", id=first["id"], force=True)
    await ok(box, "work", "comment", id=first["id"], text="It is the tap.")
    whole = await ok(box, "work", "get", id="find the leak")
    assert whole["metadata"][0]["content"] == "It is the tap."
    assert [each["name"] for each in whole["children"]] == ["paint the wall"]
    assert (await ok(box, "work", "done", id=first["id"], token=taken["token"]))["state"] == "pebble"
    assert (await ok(box, "work", "take"))["id"] == after["id"]
    assert (await ok(box, "work", "release", id=after["id"]))["holder"] is None
    assert (await ok(box, "work", "drop", id=after["id"]))["state"] == "dust"
    assert [each["name"] for each in (await ok(box, "work", "list", state="closed"))["items"]] == [
        "paint the wall",
        "find the leak",
    ]
    answer = await box.call("work", {"operation": "ready"})
    assert answer["message"] == "nothing found: there is no unfinished work"


async def test_a_trail_is_explored_and_given_up(box: Toolbox) -> None:
    trail = await ok(box, "work", "explore", name="without a tap", goal="no leak")
    await ok(box, "work", "add", name="buy a bucket", trail=trail["id"])
    assert len((await ok(box, "work", "get_trail", id=trail["id"]))["crumbs"]) == 1
    assert [each["name"] for each in (await ok(box, "work", "list_trails", state=["active"]))["items"]]
    ended = await ok(box, "work", "abandon", id="without a tap", reason="wet", lesson="mend the tap")
    assert ended["trail"]["state"] == "abandoned" and len(ended["crumbs"]) == 1
    assert (await ok(box, "work", "list"))["items"] == []
    assert (await ok(box, "work", "lessons", words="tap"))["items"][0]["lesson"] == "mend the tap"
    again = await ok(box, "work", "explore", name="with a plumber")
    await ok(box, "work", "complete", id=again["id"])
    await no(box, "work", "invalid_state", "abandon", id=again["id"])


async def test_mistakes_in_work_say_what_to_call(box: Toolbox) -> None:
    await ok(box, "work", "add", name="x")
    assert '`work {"operation": "list"}` shows what there is' in await no(
        box, "work", "entity_not_found", "get", id="nothing"
    )
    said = await no(box, "work", "not_found", "take")
    assert '`work {"operation": "state", "id": "ID", "state": "ready"}` offers one' in said
    assert "give name, state, property" in await no(box, "work", "input", "set", id="x")
    assert "limit is from 1 to 50" in await no(box, "work", "input", "list", limit=51)
    assert "state must be a text" in await no(box, "work", "input", "state", id="x", state=["ready"])
    assert "did you mean ready" in await no(box, "work", "input", "redy")
    await no(box, "work", "invalid_state", "state", id="x", state="odd")


async def test_long_lists_of_work_come_in_parts(box: Toolbox, u: dgent.Universe) -> None:
    for n in range(25):
        await ok(box, "work", "add", name=f"crumb {n:02}", state="ready")
    first = await box.call("work", {"operation": "list"})
    assert len(first["data"]["items"]) == 20 and "go on with offset=20" in first["message"]
    rest = await box.call("work", {"operation": "list", "offset": 20})
    assert len(rest["data"]["items"]) == 5 and "offset" not in rest["message"]


# -- data ---------------------------------------------------------------------------------------


async def test_records_are_remembered_found_and_brought_back(box: Toolbox) -> None:
    made = await ok(box, "data", "put", id="tea", schema="note", data={"text": "Tea at nine."})
    assert made["author"] == "scout" and made["rev"] == 1
    assert (await ok(box, "data", "put", data="just a text"))["data"] == {"text": "just a text"}
    await ok(box, "data", "put", id="tea", schema="note", data={"text": "Tea at ten."}, expect=1)
    assert (await ok(box, "data", "get", id="tea"))["data"] == {"text": "Tea at ten."}
    found = await ok(box, "data", "query", schema="note", where=["text^=Tea"])
    assert [each["id"] for each in found["items"]] == ["tea"]
    assert (await ok(box, "data", "count", schema="note"))["count"] == 1
    assert [each["rev"] for each in (await ok(box, "data", "history", id="tea"))["items"]] == [2, 1]
    assert (await ok(box, "data", "diff", id="tea"))["differences"][0]["old"] == "Tea at nine."
    commit = (await ok(box, "data", "log", id="tea", limit=1))["items"][0]["seq"]
    assert (await ok(box, "data", "undo", seq=commit, dry_run=True))["changed"] == ["tea"]
    await ok(box, "data", "undo", seq=commit)
    assert (await ok(box, "data", "get", id="tea", as_of=str(commit)))["data"] == {"text": "Tea at ten."}
    assert (await ok(box, "data", "get", id="tea"))["data"] == {"text": "Tea at nine."}
    await ok(box, "data", "put", id="pot", data={"x": 1}, parent="tea")
    await ok(box, "data", "associate", a="tea", b="pot")
    assert len((await ok(box, "data", "associated", id="tea"))["items"]) == 1
    assert [each["id"] for each in (await ok(box, "data", "chain", id="pot"))["items"]] == ["tea", "pot"]
    await ok(box, "data", "delete", id="pot")
    assert "data" in await no(box, "data", "not_found", "get", id="pot")


async def test_the_gate_holds_for_records_too(box: Toolbox, u: dgent.Universe) -> None:
    mine = Library(u, agent="boss")
    block = await mine.create("secret", text="hidden")
    await no(box, "data", "not_found", "get", id=block.id)
    await no(box, "data", "denied", "put", id=block.id, data={"text": "x"})
    assert "takes no author" in await no(box, "data", "input", "put", data={"a": 1}, author="boss")
    reader = Toolbox(Library(u, agent="eve", trust="conversant"), rooms=("data",))
    await ok(reader, "data", "put", data={"a": 1})
    await no(reader, "data", "denied", "put", id="x", data={"a": 1})
    await no(reader, "data", "denied", "undo")


HOSTILE: list[Any] = ["\ud800", "\0", "x" * 60_000, "\x1b[2J{", "-1", "{", 10**400, [[[]]], {"a": {}}]


@pytest.mark.parametrize("word", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_values_in_every_argument(word: Any) -> None:
    async with dgent.open("memory:") as u:
        box = Toolbox(u)
        for name in ("work", "data"):
            for operation, found in tool_of(name).operations.items():
                for hostile in found.fields:
                    answer = await box.call(name, {**minimal(name, operation), hostile: word})
                    assert len(json.dumps(answer, ensure_ascii=False).encode()) < 110_000
