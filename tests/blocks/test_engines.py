"""The same story on every engine: what a block does is not a matter of where it is kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import dgent
from dgent.blocks import Library
from dgent.blocks.history import log
from dgent.errors import VersionConflict
from tests.blocks.conftest import Rival
from tests.contract.columns import SETTINGS


@pytest.fixture(autouse=True)
def short_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold early, so that a few versions show all of it."""
    for name, value in (("PACK_SIZE", 8), ("KEEP", 2), ("STATE_EVERY", 2)):
        monkeypatch.setattr(log, name, value)


async def test_history_folds_and_the_way_back(lib: Library, rival: Rival) -> None:
    notes = await lib.create("notes", text="[start]")
    texts = ["[start]"]
    for n in range(30):
        await notes.append(f"[{n}]", message=f"m{n}")
        texts.append(await notes.text())
    assert notes._version_log.last_packed > 20
    other = await (await rival()).get("notes")
    assert await other.text() == texts[-1]
    assert [(await other.at(number)).text for number in (1, 2, 8, 9, 17, 30, 31)] == [
        texts[number - 1] for number in (1, 2, 8, 9, 17, 30, 31)
    ]
    assert [each.message for each in await other.history(3)] == ["m29", "m28", "m27"]
    assert "-[start][0][1]\n" in str(await other.diff(3, 5))
    await other.rollback(2)
    assert await notes.text() == texts[1]
    await notes.undo()
    assert await other.text() == texts[-1]
    await other.undo()
    await other.append("[branch]")
    assert [each.fork for each in await notes.branches()] == [30, 30]
    await notes.visit(5)
    assert await other.text() == texts[4]
    await notes.checkpoint("five")
    assert await other.checkpoints() == {"five": notes.version}
    with pytest.raises(VersionConflict):
        await other.write("late", expect=3)
    assert (await notes.redact(10)).versions == (10,)
    assert "[8]" not in (await other.at(12)).text and (await other.history())[-10].redacted
    await notes.compact(keep=3)
    assert await other.text() == await notes.text()
    assert [each.number for each in await other.history()] == list(range(notes.version, 0, -1))


async def test_two_programs_write_at_once(lib: Library, rival: Rival) -> None:
    mine = await lib.create("notes", limit=10_000)
    tasks = await lib.create("tasks", document="list")
    hits = await lib.create("hits", document="counter")
    other = await rival()
    theirs, their_tasks, their_hits = [await other.get(label) for label in ("notes", "tasks", "hits")]
    await asyncio.gather(
        *(each.append(f"[{name}{n}]") for n in range(12) for name, each in (("a", mine), ("b", theirs))),
        *(each.append(f"{name}{n}") for n in range(4) for name, each in (("a", tasks), ("b", their_tasks))),
        *(each.increment() for each in (hits, their_hits) for _ in range(5)),
    )
    text = await mine.text()
    assert await theirs.text() == text
    assert all(text.count(f"[{name}{n}]") == 1 for n in range(12) for name in "ab")
    assert sorted((await tasks.value())["items"]) == sorted(f"{name}{n}" for n in range(4) for name in "ab")
    assert await hits.text() == await their_hits.text() == "10"
    assert [each.number for each in await mine.history()] == list(range(25, 0, -1))


async def test_sharing_notices_search_and_the_context(lib: Library, rival: Rival) -> None:
    await lib.agents.create("scribe")
    persona = await lib.create("persona", template="persona", text="I like plain answers.")
    await lib.share("persona", with_agent="scribe", permission="append")
    scribe = await rival("scribe")
    await lib.render(mark=True)
    await (await scribe.get("persona")).append(" I thank people.")
    assert "persona: version 1 is 2 now, by scribe" in await lib.render()
    [notice] = await lib.notices(mark=True)
    assert notice.by == ("scribe",) and await lib.notices() == []
    assert [hit.label for hit in await scribe.search("thank")] == ["persona"]
    entry = await lib.archive("The ferry leaves at nine.", tags=["travel"])
    assert [hit.id for hit in await lib.search("ferry", tags=["travel"])] == [entry.id]
    assert [each.what for each in await scribe.activity(limit=2)] == ["append", "share"]
    await lib.unshare("persona", with_agent="scribe")
    assert await scribe.search("thank") == []
    await lib.delete("persona")
    assert await (await lib.restore("persona", to="old")).text() == await persona.text()


@pytest.mark.parametrize("name", ["sqlite", "jsonl", "postgres"])
async def test_it_is_there_after_the_store_was_closed(name: str, tmp_path: Path) -> None:
    url = SETTINGS[name][0].url(tmp_path)
    async with dgent.open(url) as u:
        lib = Library(u, agent="scout")
        notes = await lib.create("notes")
        for n in range(20):
            await notes.append(f"[{n}]")
        before = await notes.text(), await notes.history()
    async with dgent.open(url) as u:
        notes = await Library(u, agent="scout").get("notes")
        assert (await notes.text(), await notes.history()) == before
        await notes.append("[more]")
        assert notes.version == 22
