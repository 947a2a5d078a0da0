"""Labels that are paths are files in sub-folders, and nothing outside of the folder is touched."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from dgent.blocks import Library
from dgent.blocks.folder import state
from dgent.blocks.folder.format import SUFFIXES, folder_stem_of, label_of, split_label
from tests.blocks.agents import Open, library, scout, u

__all__ = ["library", "scout", "u"]


def tree(folder: Path) -> list[str]:
    found = (each.relative_to(folder) for each in folder.rglob("*") if each.is_file())
    return sorted(str(each) for each in found if each.parts[0] != ".blocks" and each.suffix in SUFFIXES)


async def labels(scout: Library) -> list[str]:
    return sorted(block.label for block in await scout.list() if block.label != "persona")


async def test_labels_go_out_as_folders_and_edits_come_back(scout: Library, tmp_path: Path) -> None:
    await scout.create("projects/x/notes", text="n\n")
    await scout.create("projects/x/tasks", document="list", value=["go"])
    await scout.create("projects/plan", text="p\n")
    await scout.sync(tmp_path)
    assert tree(tmp_path) == [
        "persona.md",
        "projects/plan.md",
        "projects/x/notes.md",
        "projects/x/tasks.json",
    ]
    assert not await scout.sync(tmp_path)
    (tmp_path / "projects/x/notes.md").write_text("n\nedited\n")
    (tmp_path / "new/deep").mkdir(parents=True)
    (tmp_path / "new/deep/idea.md").write_text("made by hand\n")
    report = await scout.sync(tmp_path)
    assert not report.refused and not report.conflicts
    assert await (await scout.get("projects/x/notes")).text() == "n\nedited\n"
    assert await (await scout.get("new/deep/idea")).text() == "made by hand"
    assert not await scout.sync(tmp_path)


async def test_folders_follow_moves_on_both_sides(scout: Library, tmp_path: Path) -> None:
    for name in ("a", "b"):
        await scout.create(f"projects/x/{name}", text=f"{name}\n")
    await scout.sync(tmp_path)
    await scout.move_folder("projects/x", "done/x")
    await scout.sync(tmp_path)
    assert tree(tmp_path) == ["done/x/a.md", "done/x/b.md", "persona.md"]
    assert not (tmp_path / "projects").exists(), "an empty folder does not stay"
    (tmp_path / "done/x").rename(tmp_path / "done/y")  # by hand: the labels follow
    report = await scout.sync(tmp_path)
    assert not report.refused and await labels(scout) == ["done/y/a", "done/y/b"]
    (tmp_path / "done/y/a.md").rename(tmp_path / "top.md")
    (tmp_path / "done/y/a.toml").rename(tmp_path / "top.toml")
    await scout.sync(tmp_path)
    assert await labels(scout) == ["done/y/b", "top"]
    await scout.delete_folder("done")
    await scout.sync(tmp_path)
    assert tree(tmp_path) == ["persona.md", "top.md"] and not (tmp_path / "done").exists()
    assert not await scout.sync(tmp_path)


async def test_flat_files_of_an_older_folder_move_into_folders(scout: Library, tmp_path: Path) -> None:
    await scout.create("projects/x/notes", text="n\n")
    await scout.sync(tmp_path)
    ledger = tmp_path / ".blocks/ledger.json"
    known = msgspec.json.decode(ledger.read_bytes())
    [entry] = [each for each in known["entries"].values() if each["label"] == "projects/x/notes"]
    entry["place"] = "projects%2Fx%2Fnotes"
    ledger.write_bytes(msgspec.json.encode(known))
    for suffix in (".md", ".toml"):
        (tmp_path / f"projects/x/notes{suffix}").rename(tmp_path / f"projects%2Fx%2Fnotes{suffix}")
    (tmp_path / "projects%2Fx%2Fnotes.md").write_text("n\nedited\n")
    report = await scout.sync(tmp_path)
    assert tree(tmp_path) == ["persona.md", "projects/x/notes.md"] and not report.refused
    assert await (await scout.get("projects/x/notes")).text() == "n\nedited\n"


async def test_blocks_of_others_have_folders_too(scout: Library, library: Open, tmp_path: Path) -> None:
    ann = library("ann")
    await ann.create("plans/today", text="walk\n")
    await ann.share("plans/today", with_agent="scout", permission="admin")
    await scout.create("shared/ann/plans/today", text="mine\n")  # a label is not another's folder
    await scout.sync(tmp_path)
    assert (tmp_path / "shared/ann/plans/today.md").read_text() == "walk\n"
    [own] = [each for each in tree(tmp_path) if each.startswith("shared~")]
    assert (tmp_path / own).read_text() == "mine\n"
    (tmp_path / "shared/ann/plans/today.md").write_text("swim\n")
    report = await scout.sync(tmp_path)
    assert not report.refused and await (await ann.get("plans/today")).text() == "swim\n"
    assert await (await scout.get("shared/ann/plans/today")).text() == "mine\n"
    assert not await scout.sync(tmp_path)


HOSTILE = ["../up", "a/../../up", "/etc/passwd", "a//b", "./a", "a/.", "..", "a/..", "x/" * 40 + "y"]


@pytest.mark.parametrize("label", HOSTILE)
async def test_a_label_never_leads_out(scout: Library, tmp_path: Path, label: str) -> None:
    folder = tmp_path / "inside" / "memory"
    await scout.create(label, text="t\n")
    assert split_label(label) == [label]
    await scout.sync(folder)
    assert len(tree(folder)) == 2 and all("/" not in name for name in tree(folder))
    stray = [each for each in tmp_path.rglob("*") if each.suffix in SUFFIXES and folder not in each.parents]
    assert stray == []
    assert not await scout.sync(folder)


@pytest.mark.parametrize(
    "label", [".git/config", "~/x", "con/nul", "a.md/b", "A.TOML/b", " /x", "-rf/x", "a\\b/c"]
)
async def test_odd_steps_are_escaped(scout: Library, tmp_path: Path, label: str) -> None:
    await scout.create(label, text="t\n")
    if label.startswith(("a.md", "A.TOML")):
        await scout.create(label[:1], text="the file that the folder must not hide\n")
    await scout.sync(tmp_path)
    for name in tree(tmp_path):
        above = name.split("/")[:-1]
        assert all(step[0] not in ". ~#-" and not step.lower().endswith((".md", ".toml")) for step in above)
    for file in tmp_path.rglob("*.md"):
        file.write_text(file.read_text() + "more\n")
    report = await scout.sync(tmp_path)
    assert not report.refused and (await (await scout.get(label)).text()).endswith("more\n")
    assert label_of(folder_stem_of(label.split("/")[0])) == label.split("/")[0]


async def test_links_on_the_way_are_not_followed(scout: Library, tmp_path: Path) -> None:
    folder, outside = tmp_path / "memory", tmp_path / "outside"
    outside.mkdir()
    (outside / "stolen.md").write_text("secret")
    folder.mkdir()
    (folder / "projects").symlink_to(outside)
    await scout.create("projects/notes", text="n\n")
    report = await scout.sync(folder)
    assert any("link" in each.why for each in report.refused)
    assert os.listdir(outside) == ["stolen.md"] and await labels(scout) == ["projects/notes"]
    (folder / "projects").unlink()
    await scout.sync(folder)
    (folder / "projects").rename(tmp_path / "real")
    (folder / "projects").symlink_to(tmp_path / "real")  # the folder became a link: its block stays
    (tmp_path / "real/notes.md").write_text("changed through a link\n")
    report = await scout.sync(folder)
    assert any("link" in each.why for each in report.refused) and not report.deleted
    assert await (await scout.get("projects/notes")).text() == "n\n"


@pytest.mark.parametrize(
    "place",
    [
        "../x",
        "a/../x",
        "/x",
        "a//x",
        ".git/x",
        "a/.hidden",
        "shared/x",
        "SHARED/a/x",
        "a/~x",
        "a\0b/x",
        "x/" * 20 + "y",
    ],
)
def test_a_ledger_cannot_name_a_place_outside(place: str) -> None:
    with pytest.raises(ValueError, match="its place"):
        state.check_place(place)


@pytest.mark.parametrize("place", ["x", "a/x", "a/b/x", "shared/ann/x", "shared/ann/plans/x", "sharedx/y"])
def test_places_inside(place: str) -> None:
    state.check_place(place)
    assert len(place.split("/")) <= 18
