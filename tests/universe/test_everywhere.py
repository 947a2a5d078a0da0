"""One search over everything with texts: records, crumbs, trails, lessons and comments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import dgent
from dgent import Schema
from dgent.cupboard import Cupboard, Stash
from dgent.errors import Denied, NotFound
from dgent.universe.gate import Principal
from dgent.universe.room import Title, find_titles
from dgent.verbs.path import invoke
from tests.universe.conftest import engine, u, url

__all__ = ["engine", "u", "url"]


@dataclass(frozen=True)
class Note:
    text: str


NOTE = Schema("note", 1, Note, text={"text": 1})


async def fill(u: dgent.Universe) -> None:
    u.register(NOTE)
    await u.remember(Note("Ten onions for the soup, says the cook of the inn"))
    shelf = Cupboard(u)
    properties = {"description": "with the small knife", "labels": ["kitchen"]}
    crumb = await shelf.add("Peel the onions", properties=properties)
    await shelf.comment(crumb, "they made me cry in the end")
    trail = await shelf.start("Frozen onions", goal="to save time")
    await shelf.abandon(trail, reason="too soft", lesson="Frozen vegetables lose their bite")
    await shelf.stashes.set(None, Stash("shopping", "context", {"to buy": "butter and leek"}))


async def titles(u: dgent.Universe, words: str, **filters: object) -> list[Title]:
    found = await u.search(words, **filters)  # type: ignore[arg-type]
    return [title._replace(id="") for title in await find_titles(u, [hit.datum for hit in found])]


async def test_one_list_of_everything(u: dgent.Universe) -> None:
    await fill(u)
    crumb = Title("crumb", "", "Peel the onions", "draft")
    lesson = Title("lesson", "", "Frozen onions", "abandoned")
    assert set(await titles(u, "onion")) == {crumb, lesson, Title("record", "", "", "note")}
    assert await titles(u, "knife") == await titles(u, "kitchen") == [crumb]
    assert await titles(u, "bite") == await titles(u, "soft") == await titles(u, "saved time") == [lesson]
    assert await titles(u, "crying") == [Title("comment", "", "Peel the onions", "of a crumb")]
    assert await titles(u, "leeks") == [Title("stash", "", "shopping", "context")]
    assert await titles(u, "onion", schema="cupboard.trail") == [lesson]
    assert await titles(u, "onion", where={"state": "draft"}) == [crumb]


async def test_a_program_without_a_cupboard_finds_crumbs(store_path: Path) -> None:
    url = f"sqlite:///{store_path}/store.db"
    async with dgent.open(url) as u:
        await fill(u)
    async with dgent.open(url) as u:
        assert [title.kind for title in await titles(u, "peel onion")] == ["crumb", "lesson", "record"]
        assert await u.recall() == []  # which registered nothing


async def test_words_are_recalled(u: dgent.Universe) -> None:
    await fill(u)
    await u.remember(Note("Nothing but bread"))
    assert [each.value.text[:3] for each in await u.recall("ten onions", schema="note")] == ["Ten"]
    assert {type(each.value).__name__ for each in await u.recall("onions")} == {
        "Note",
        "CrumbRecord",
        "TrailRecord",
    }
    assert len(await u.recall("onions", limit=2)) == 2
    assert len(await u.recall("note")) == 2
    assert len(await u.recall("note", where={"text": {"$contains": "bread"}})) == 1
    with pytest.raises(NotFound, match="is registered here") as slip:
        await u.recall("cupboard.crumbs")
    assert "did you mean 'cupboard.crumb'" in slip.value.hint


@pytest.mark.parametrize("trust", ["friend", "conversant", "untrusted"])
async def test_each_trust_searches_what_it_may_read(u: dgent.Universe, trust: str) -> None:
    await fill(u)
    handle = u.acting(Principal("guest", trust))  # type: ignore[arg-type]
    if trust == "untrusted":
        with pytest.raises(Denied):
            await handle.search("onions")
        return
    assert len(await handle.search("onions")) == 3


async def test_the_verbs_answer_with_things(u: dgent.Universe) -> None:
    await fill(u)
    found = await invoke(u, "self.data.search", words="peel onion", explain=True)
    best = found.items[0]
    assert (best.kind, best.name, best.detail) == ("crumb", "Peel the onions", "draft")
    assert best.parts.keys() == {"peel", "onion"}
    recalled = await invoke(u, "self.data.query", schema="peel onion")
    assert recalled.search.items[0].id == best.id == recalled.items[0].id
    assert len((await invoke(u, "self.data.query", schema="note")).items) == 1
    for more in ({"as_of": "1"}, {"cursor": "x"}, {"offset": 3}, {"ascending": True}, {"order_by": "text"}):
        with pytest.raises(dgent.InputError):
            await invoke(u, "self.data.query", schema="peel onion", **more)
    for wrong in ("notes", "nothing.like.it"):
        with pytest.raises(NotFound) as missing:
            await invoke(u, "self.data.query", schema=wrong)
        assert ("did you mean note?" in missing.value.hint) is (wrong == "notes")
    with pytest.raises(dgent.InputError, match="not a schema name"):
        await invoke(u, "self.data.count", schema="peel onion")
