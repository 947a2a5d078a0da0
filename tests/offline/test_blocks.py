"""Blocks while the store is away: what cannot be known is not made up, and what is kept is not lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import dgent
from dgent.blocks import Block, Library
from dgent.errors import Unavailable
from tests.offline.cable import Cable, connected
from tests.offline.world import back

pytestmark = pytest.mark.filterwarnings("ignore::dgent.errors.Degraded")


@pytest.fixture
def cable(tmp_path: Path) -> Cable:
    return Cable(tmp_path / "store.db")


async def check(u: dgent.Universe, handle: Block, text: str) -> None:
    """What a fresh handle and one that was there all the time see, and that both can go on."""
    fresh = await Library(u, agent="scout").get("notes")
    assert await fresh.text() == text
    await handle.append("[end]")
    assert await fresh.text() == f"{text}[end]"
    await fresh.append("[too]")
    assert await handle.text() == await fresh.text() == f"{text}[end][too]"
    versions = await fresh.history()
    assert [each.number for each in versions] == list(range(len(versions), 0, -1))


async def test_what_cannot_be_known_is_refused(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        lib = Library(u, agent="scout")
        notes = await lib.create("notes", kind="core", text="[base]")
        cable.cut()
        for call in (
            lambda: notes.append("[lost]"),
            lambda: notes.write("other"),
            notes.text,
            notes.history,
            notes.undo,
            lambda: lib.get("notes"),
            lambda: lib.create("new"),
            lambda: lib.delete("notes"),
            lambda: lib.log_event("started"),
        ):
            with pytest.raises(Unavailable):
                await call()
        assert "the store is offline" in await lib.render(budget_tokens=100)
        entry = await lib.archive("put away meanwhile")
        cable.mend()
        await back(u)
        assert "the store is offline" not in await lib.render()
        assert (await lib.get_archived(entry.id)).text == "put away meanwhile"
        await check(u, notes, "[base]")


async def test_edits_that_were_kept_happen_when_it_is_back(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db", optimistic=True) as u:
        notes = await Library(u, agent="scout").create("notes", text="[base]")
        await notes.append("[one]")
        cable.cut()
        for n in range(5):
            await notes.append(f"[{n}]")
        cable.mend()
        await back(u)
        assert (await u.stats()).details["conflicts"] == 0
        await check(u, notes, "[base][one][0][1][2][3][4]")


@pytest.mark.parametrize("ours", [1, 2])
@pytest.mark.parametrize("theirs", [1, 2, 3])
@pytest.mark.parametrize("look", [False, True])
async def test_whoever_was_faster_is_not_written_over(
    cable: Cable, tmp_path: Path, ours: int, theirs: int, look: bool
) -> None:
    async with connected(cable, tmp_path / "outbox.db", optimistic=True) as u:
        notes = await Library(u, agent="scout").create("notes", text="[base]")
        await notes.append("[one]")
        cable.cut()
        for n in range(ours):
            await notes.append(f"[away{n}]")
        async with dgent.open(f"sqlite:///{cable.path}") as there:
            other = await Library(there, agent="scout").get("notes")
            for n in range(theirs):
                await other.append(f"[there{n}]")
        cable.mend()
        await back(u)
        # What was written here is set aside with both versions, as any conflict; nothing builds on it.
        assert (await u.stats()).details["conflicts"] == ours
        text = "[base][one]" + "".join(f"[there{n}]" for n in range(theirs))
        if look:
            assert await notes.text() == text
        await check(u, notes, text)


async def test_blocks_are_searched_while_the_store_is_unavailable(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db", optimistic=True) as u:
        lib = Library(u, agent="scout")
        notes = await lib.create("notes", text="the kettle boils")
        await notes.append(" and boils")
        assert [hit.label for hit in await lib.search("kettle")] == ["notes"]
        cable.cut()
        await notes.append(" on the stove")
        entry = await lib.archive("put away on the stove")
        found = [hit.id for hit in await lib.search("stove")]
        assert u.degraded is not None
        assert entry.id in found
        cable.mend()
        await back(u)
        assert {hit.id for hit in await lib.search("stove")} == {notes.id, entry.id}
