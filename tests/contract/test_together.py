"""Commits of one group: written together, yet each sees the ones before it."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent.store.backend import Check, Commit, Committed, Delete, Put, Written
from dgent.store.engine.commit import prepare
from tests.fault.check import move_entries


@dataclass(frozen=True)
class Note:
    text: str
    size: int = 0


NOTE = dgent.Schema("note", contract=Note, indexes=("size",))


@pytest.mark.parametrize("durability", ["full", "relaxed"])
async def test_a_group_sees_its_own_commits(tmp_path: Path, durability: str) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/a.db", durability=durability) as u:
        u.register(NOTE)
        tries = [u.remember(Note("first", n), id="one", expect=0) for n in range(20)]
        changes = [u.remember(Note("again", n), id="two") for n in range(20)]
        deletes = [
            u.remember(Note("gone"), id="three"),
            u.delete("three"),
            u.remember(Note("back"), id="three"),
        ]
        ended = await asyncio.gather(*tries, *changes, *deletes, return_exceptions=True)
        won = [each for each in ended[:20] if isinstance(each, dgent.Crystal)]
        assert len(won) == 1
        assert all(isinstance(each, dgent.VersionConflict) for each in ended[:20] if each not in won)
        assert sorted(each.rev for each in ended[20:40]) == list(range(1, 21))
        assert [each.rev for each in (await u.get("two"), await u.get("three"))] == [20, 3]
        assert len(await u.history("two")) == 20
        assert await u.count(schema="note", where={"size": won[0].value.size}) >= 1
        await move_entries(u.backend)
    found = apsw.Connection(str(tmp_path / "a.db"))
    assert found.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    # Every entry has its live row, and every live row stands in its schema's stream exactly once.
    assert found.execute(
        "SELECT count(*) FROM entry e LEFT JOIN datum d ON d.dk = e.dk AND d.live = 1 WHERE d.dk IS NULL"
    ).fetchall() == [(0,)]


@pytest.mark.parametrize("history", ["all", "none"])
async def test_a_group_adds_and_deletes_a_record(tmp_path: Path, history: Any) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/a.db", durability="relaxed") as u:
        u.register(dgent.Schema("note", contract=Note, indexes=("size",), history=history))
        await u.remember(Note("the first of its schema"))
        await asyncio.gather(
            u.remember(Note("gone", 5), id="one"),
            u.delete("one"),
            u.remember(Note("gone", 5), id="two"),
            u.delete("two"),
            u.remember(Note("back", 6), id="two"),
        )
        assert [await u.exists("one"), (await u.get("two")).rev] == [False, 3]
        assert [await u.count(schema="note", where={"size": size}) for size in (5, 6)] == [0, 1]


def test_the_collector_watches_none_of_it() -> None:
    op = Put(dgent.Datum(id="a"))
    commit = Commit((op,))
    prepared = prepare(commit)
    written = Written("a", 1, 1, True)
    for each in (
        op,
        commit,
        prepared,
        prepared.drafts[0],
        written,
        Committed(1, (written,)),
        Delete("a"),
        Check("a"),
    ):
        assert not gc.is_tracked(each), type(each).__name__


@pytest.mark.parametrize("place", ["memory:", "sqlite"])
async def test_a_crystal_of_a_page_is_whole(tmp_path: Path, place: str) -> None:
    async with dgent.open(place if place == "memory:" else f"sqlite:///{tmp_path}/a.db") as u:
        u.register(NOTE)
        kept = await u.remember(
            Note("x", 1),
            tags={"t"},
            author="ann",
            source="mail",
            parent="p",
            content=b"bytes",
            created_at=None,
        )
        (found,) = await u.recall(schema="note", tags={"t"}, where={"size": 1})
        assert not gc.is_tracked(found)
        again = pickle.loads(pickle.dumps(found))
        assert (
            found.datum == kept.datum == again.datum == copy.copy(found).datum == copy.deepcopy(found).datum
        )
        assert found.datum is found.datum
        assert repr(found) == repr(await u.get(kept.id))
        assert (found.tags, found.author, found.source, found.parent_id) == ({"t"}, "ann", "mail", "p")
        assert found.datum.content == b"bytes"
        assert found == kept
        assert (await u.store(found.replace(value=Note("y", 1)), expect=found.rev)).rev == 2
