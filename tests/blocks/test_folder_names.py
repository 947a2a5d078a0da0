"""File names of labels: safe everywhere, and each label has its own."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.blocks import Library
from dgent.blocks.folder.format import MAX_BYTES, label_of, normalize_name, stem_of
from dgent.errors import Unavailable
from tests.blocks.agents import Open, library, scout, u

__all__ = ["library", "scout", "u"]

ODD = [
    *("../../etc/passwd", "..", ".", "/", "a/b", "a\\b", ".hidden", "-rf", "~x", "#general", "%2F", "a%2Fb"),
    *("CON", "con.txt", "nul", "COM1", "lpt9.md", "aux", "a:b", 'a"b', "a|b", "a?b*", "<a>", "a\nb", "a\tb"),
    *("trailing.", "trailing ", " leading", "é", "e\u0301", "\u202etxt", "a\u200bb", "x" * 256, "é" * 120),
    *("shared", ".blocks", "persona.md", "persona.toml", "日本語", "🦀", "\x7f", "a\u2028b", "ﬁ"),
]


@pytest.mark.parametrize("label", ODD)
def test_a_file_name_has_nothing_that_a_system_minds(label: str) -> None:
    stem = stem_of(label)
    assert len(stem.encode()) <= MAX_BYTES
    assert not set(stem) & set('<>:"/\\|?*\0') and all(unicodedata.category(each)[0] != "C" for each in stem)
    assert stem[0] not in ". ~#-" and stem[-1] not in ". " and unicodedata.normalize("NFC", stem) == stem
    assert stem.partition(".")[0].upper() not in ("CON", "NUL", "AUX", "PRN", "COM1", "LPT9")
    if len(label.encode()) < 100:
        assert label_of(stem) == unicodedata.normalize("NFC", label)


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=20))
def test_two_labels_never_share_a_name(labels: list[str]) -> None:
    taken: set[str] = set()
    for label in labels:
        key = normalize_name(stem_of(label, taken))
        assert key not in taken
        taken.add(key)


async def test_blocks_with_odd_labels_go_out_and_come_back(scout: Library, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    labels = [*dict.fromkeys(ODD), "Persona", "PERSONA"]
    for label in labels:
        await scout.create(label, text=f"this is {label}")
    await scout.sync(folder)
    files = [each for each in folder.rglob("*.md") if each.is_file()]
    assert len(files) == len(labels) + 1 and sorted(os.listdir(tmp_path))[0] == "memory"
    assert not await scout.sync(folder)
    for file in files:
        file.write_text(file.read_text() + "more\n")
    report = await scout.sync(folder)
    assert len(report.taken) == len(files) and not report.refused and not report.conflicts
    for label in labels:
        text = await (await scout.get(label)).text()
        assert text.startswith(f"this is {label}") and text.endswith("more")


async def test_links_are_not_followed(scout: Library, tmp_path: Path) -> None:
    folder, outside = tmp_path / "memory", tmp_path / "outside.md"
    outside.write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    await scout.create("rules", text="r")
    await scout.create("charter", text="c", owner="_constellation_")
    folder.mkdir()
    (folder / "shared").symlink_to(tmp_path / "elsewhere")
    (folder / "stolen.md").symlink_to(outside)
    os.mkfifo(folder / "pipe.md")
    report = await scout.sync(folder)
    why = {each.file: each.why for each in report.refused}
    assert "link" in why["stolen.md"] and "not a file" in why["pipe.md"]
    assert "link" in why["shared/_constellation_/charter.md"]
    assert not list((tmp_path / "elsewhere").iterdir())
    (folder / "rules.md").unlink()
    (folder / "rules.md").symlink_to(outside)
    await (await scout.get("rules")).append("!")
    report = await scout.sync(folder)
    assert any(each.file == "rules.md" and "link" in each.why for each in report.refused)
    assert outside.read_text() == "secret" and (folder / "rules.md").is_symlink()
    assert await (await scout.get("rules")).text() == "r!"


async def test_a_folder_that_cannot_be_used_says_so(scout: Library, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable):
        await scout.sync(tmp_path / "file" / "below")
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "persona.md").mkdir()
    report = await scout.sync(folder)
    assert [each.file for each in report.refused] == ["persona.md"]
    (folder / "persona.md").rmdir()
    assert [each.file for each in (await scout.sync(folder)).written] == ["persona.md"]


async def test_names_that_some_systems_take_for_one(scout: Library, library: Open, tmp_path: Path) -> None:
    await scout.create("notes", text="mine\n")
    for agent in ("Ann", "ann"):
        other = library(agent)
        await other.create("plan", text=f"of {agent}\n")
        await other.share("plan", with_agent="scout", permission="admin")
    await scout.sync(tmp_path)
    assert len({each.name.casefold() for each in (tmp_path / "shared").iterdir()}) == 2
    (tmp_path / "Notes.md").write_text("another\n")
    (tmp_path / "notes.json").write_text("[1]")
    (tmp_path / "alone.toml").write_text('template = "persona"\n')
    report = await scout.sync(tmp_path)
    assert [each.file for each in report.refused] == ["Notes.md", "alone.toml", "notes.json"]
    assert not report.taken and not report.written and not report.deleted
    for name in ("Notes.md", "notes.json", "alone.toml"):
        (tmp_path / name).unlink()
    (tmp_path / "notes.md").rename(tmp_path / "NOTES.md")
    (tmp_path / "NOTES.md").write_text("mine, loud\n")
    report = await scout.sync(tmp_path)
    assert len(report.taken) == 1 and not report.refused and not report.deleted
    assert await (await scout.get("notes")).text() == "mine, loud\n"
    await (await scout.get("notes")).append("more\n")
    await scout.sync(tmp_path)
    assert (tmp_path / "NOTES.md").read_text() == "mine, loud\nmore\n" and not await scout.sync(tmp_path)


async def test_a_copy_of_both_files_is_another_block(scout: Library, tmp_path: Path) -> None:
    await scout.sync(tmp_path)
    for suffix in (".md", ".toml"):
        (tmp_path / f"persona2{suffix}").write_bytes((tmp_path / f"persona{suffix}").read_bytes())
    await scout.sync(tmp_path)
    assert [block.label for block in await scout.list()] == ["persona", "persona2"]
    assert 'label = "persona2"' in (tmp_path / "persona2.toml").read_text()
    (tmp_path / "odd.md").write_text("x")
    (tmp_path / "odd.toml").write_text("limit = \n")
    assert "not valid TOML" in (await scout.sync(tmp_path)).refused[0].why
    (tmp_path / "odd.toml").write_text("colour = 3\n")
    assert "'colour' is not a known field" in (await scout.sync(tmp_path)).refused[0].why
    assert (tmp_path / "odd.toml").read_text() == "colour = 3\n"


async def test_a_name_that_is_no_text_is_told_and_left_alone(scout: Library, tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff.md", "w") as file:
        file.write("x")
    report = await scout.sync(tmp_path)
    assert [each.why for each in report.refused] == ["its name is not UTF-8"]
    report.refused[0].file.encode()
    assert b"\xff.md" in os.listdir(os.fsencode(tmp_path))
