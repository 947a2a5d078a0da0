"""A constellation at work, on every engine: what agents share, find, see and are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import dgent
from dgent.blocks import Library
from dgent.blocks.errors import BlockNotFound, PermissionDenied
from dgent.store.registry import Engine
from tests.contract.columns import SETTINGS
from tests.universe.conftest import engine

__all__ = ["engine"]


async def test_agents_of_a_constellation(engine: Engine, tmp_path: Path) -> None:
    async with dgent.open(SETTINGS[engine.name][0].url(tmp_path)) as u:
        scout, scribe = Library(u, agent="scout"), Library(u, agent="scribe")
        persona = await scout.create("persona", text="I like short answers.")
        await scribe.create("notes", text="My own answers.")
        await scout.groups.create("writers")
        await scout.groups.join("writers", "scribe", role="specialist")
        await scout.share("persona", with_group="writers", permission="read_write")

        theirs = await scribe.get("persona")
        await theirs.write("I like everything.", message="simpler")
        [notice] = await scout.notices(mark=True)
        assert notice.by == ("scribe",) and "-I like short answers." in notice.diff.text
        await persona.rollback(1)
        assert await theirs.text() == "I like short answers."

        entry = await scribe.archive("Short answers are liked by scout.", tags=["style"])
        found = await scribe.search("short answers")
        assert {hit.label or hit.id for hit in found} == {"persona", "notes", entry.id}
        assert [hit.label for hit in await scout.search("short answers")] == ["persona"]

        await scout.share("persona", with_agent="scribe", permission="admin")
        await scout.groups.leave("writers", "scribe")
        await scout.share("persona", with_agent="scribe", permission="read_only")
        with pytest.raises(PermissionDenied):
            await theirs.append("!")
        await scout.unshare("persona", with_agent="scribe")
        with pytest.raises(PermissionDenied):
            await theirs.text()
        with pytest.raises(BlockNotFound):
            await scribe.get("persona", owner="scout")
        assert [(each.agent, each.what) for each in await scout.refusals()] == [
            ("scribe", "read"),
            ("scribe", "append"),
        ]
        done = [(each.by, each.what) for each in await scout.activity(limit=7)]
        assert done[0] == ("scout", "unshare") and ("scout", "rollback") in done
        assert ("scribe", "write") in done and await scribe.search("scout", kind="core") == []
