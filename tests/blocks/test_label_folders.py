"""Labels that are paths: listed, moved and deleted by folder, all or none."""

from __future__ import annotations

import pytest

from dgent.blocks import Library, errors
from dgent.errors import InputError
from tests.blocks.agents import Open, library, scout, scribe, u

__all__ = ["library", "scout", "scribe", "u"]


async def labels(lib: Library, folder: str | None = None) -> list[str]:
    return [each.label for each in await lib.list(folder)]


@pytest.fixture
async def projects(scout: Library) -> Library:
    for label in ("projects/x/notes", "projects/x/plan", "projects/y", "projectsx"):
        await scout.create(label, text=label)
    return scout


async def test_blocks_are_listed_by_folder(projects: Library, scribe: Library) -> None:
    assert await labels(projects, "projects") == ["projects/x/notes", "projects/x/plan", "projects/y"]
    assert await labels(projects, "projects/x/") == ["projects/x/notes", "projects/x/plan"]
    assert await labels(projects, "nothing") == []
    await projects.share("projects/x/plan", with_agent="scribe")
    await projects.share("persona", with_agent="scribe")
    assert [each.label for each in await scribe.list("projects", shared=True)] == ["projects/x/plan"]
    for wrong in ("", "/", "a\0"):
        with pytest.raises(InputError):
            await projects.list(wrong)


async def test_a_folder_is_moved_in_one_commit(projects: Library) -> None:
    before = await projects.universe.seq()
    moved = await projects.move_folder("projects/x", "projects/x/old")
    assert [each.label for each in moved] == ["projects/x/old/plan", "projects/x/old/notes"]
    assert await projects.universe.seq() == before + 1
    assert await (await projects.get("projects/x/old/plan")).text() == "projects/x/plan"
    await projects.move_folder("projects/x/old", "projects/x")
    assert await labels(projects, "projects/x") == ["projects/x/notes", "projects/x/plan"]


async def test_a_folder_is_moved_whole_or_not_at_all(projects: Library) -> None:
    await projects.create("done/plan")
    with pytest.raises(errors.LabelTaken):
        await projects.move_folder("projects/x", "done")
    assert await labels(projects, "projects/x") == ["projects/x/notes", "projects/x/plan"]
    await projects.move_folder("projects", "projects")
    with pytest.raises(errors.BlockNotFound):
        await projects.move_folder("nothing", "done")
    with pytest.raises(InputError):
        await projects.move_folder("projects", "x" * 600)


async def test_a_folder_is_deleted_in_one_commit_and_can_be_restored(projects: Library) -> None:
    before = await projects.universe.seq()
    gone = await projects.delete_folder("projects/x")
    assert [each.label for each in gone] == ["projects/x/plan", "projects/x/notes"]
    assert await labels(projects, "projects") == ["projects/y"]
    assert await projects.universe.seq() == before + 1
    await projects.restore("projects/x/plan")
    assert await labels(projects, "projects/x") == ["projects/x/plan"]


async def test_one_block_that_may_not_be_deleted_keeps_all(library: Open, projects: Library) -> None:
    await projects.create("projects/x/rules", permission="read_only")
    friend = library("scout", trust="friend")
    with pytest.raises(errors.PermissionDenied):
        await friend.delete_folder("projects/x")
    assert len(await labels(projects, "projects/x")) == 3
    with pytest.raises(errors.PermissionDenied):
        await library("scout", trust="conversant").move_folder("projects/x", "y")
