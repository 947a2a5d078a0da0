"""Random programs on both sides of a folder, with syncs that are killed: then both sides are at rest."""

from __future__ import annotations

import json
import os
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.blocks import Block, Library
from dgent.errors import DgentError
from tests.blocks.test_folder_crash import Killed, Until

LABELS = ("a", "B", "b", "c/d", "CON", "é", "x.y")
NAMES = ("q", "w", "a", "Z", "shared")
SUFFIXES = (".md", ".json", ".jsonl")


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class Program:
    """Does random things to blocks and to files; knows each word that was written and not removed since."""

    def __init__(self, lib: Library, folder: Path, dice: random.Random) -> None:
        self.lib, self.folder, self.dice = lib, folder, dice
        self.words: set[str] = set()
        self._count = 0

    def word(self) -> str:
        """A word of one letter, which cannot be taken apart."""
        self._count += 1
        self.words.add(made := chr(0x4E00 + self._count))
        return made

    async def step(self) -> None:
        """One thing, on either side."""
        blocks = await self.lib.list()
        files = sorted(each for each in self.folder.iterdir() if each.suffix in SUFFIXES)
        what = self.dice.random()
        if what < 0.2 and len(blocks) < 6:
            kind = self.dice.choice(("text", "list", "log", "map", "tree"))
            await self.lib.create(self.dice.choice(LABELS), document=kind)
        elif what < 0.4 and blocks:
            await self._edit(self.dice.choice(blocks))
        elif what < 0.46 and blocks:
            await self.lib.delete(self.dice.choice(blocks).label)
        elif what < 0.52 and blocks:
            await self.lib.rename(self.dice.choice(blocks).label, self.dice.choice(LABELS))
        elif what < 0.75 and files:
            self._write(self.dice.choice(files))
        elif what < 0.8 and files:
            self._remove(self.dice.choice(files))
        elif what < 0.9 and files:
            self._rename(self.dice.choice(files))
        else:
            self._new(self.folder / (self.dice.choice(NAMES) + self.dice.choice(SUFFIXES)))

    async def _edit(self, block: Block) -> None:
        word = self.word()
        if block.document_kind == "map":
            await block.set_field(f"k{self._count}", word)
        elif block.document_kind == "tree":
            await block.add_node({"name": word})
        else:
            await block.append(f"{word}\n" if block.document_kind == "text" else word)

    def _write(self, file: Path) -> None:
        word, text = self.word(), file.read_text()
        if file.suffix != ".json":
            file.write_text(text + (f"{word}\n" if file.suffix == ".md" else dumps({"message": word}) + "\n"))
            return
        value = json.loads(text)
        if isinstance(value, dict):
            value[f"k{self._count}"] = word
        else:
            card = file.with_suffix(".toml")
            tree = "data" in text or (card.exists() and 'document = "tree"' in card.read_text())
            value.insert(self.dice.randrange(len(value) + 1), {"data": {"name": word}} if tree else word)
        file.write_text(dumps(value))

    def _remove(self, file: Path) -> None:
        self.words -= set(file.read_text())
        file.unlink()

    def _rename(self, file: Path) -> None:
        to = file.with_name(self.dice.choice(NAMES) + file.suffix)
        for suffix in (file.suffix, ".toml")[: self.dice.choice((1, 2))]:
            old, new = file.with_suffix(suffix), to.with_suffix(suffix)
            if old.exists() and not new.exists():
                old.rename(new)

    def _new(self, file: Path) -> None:
        if not file.exists():
            word = self.word()
            file.write_text(
                {".md": word, ".json": f'["{word}"]', ".jsonl": f'{{"message": "{word}"}}'}[file.suffix]
            )

    async def everything(self) -> str:
        """What there is of words: in blocks and their histories, also deleted ones, and in files."""
        found = "".join(each.read_text() for each in self.folder.rglob("*") if each.is_file())
        for number, label in enumerate(await self.lib.list_deleted()):
            await self.lib.restore(label, to=f"back {number}")
        for block in await self.lib.list():
            for version in await block.history():
                found += dumps((await block.at(version.number)).value)
        return found


async def killed(lib: Library, folder: Path, most: int) -> None:
    """A sync that ends after so many steps, or at its end."""
    with pytest.MonkeyPatch.context() as patch:
        Until(patch, most)
        with suppress(Killed):
            await lib.sync(folder)


@pytest.mark.parametrize("seed", range(10))
async def test_random_programs_come_to_rest_and_lose_no_word(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
    dice = random.Random(seed)
    async with dgent.open("memory:") as universe:
        program = Program(Library(universe, agent="scout"), tmp_path, dice)
        for _ in range(60):
            if dice.random() < 0.2:
                await killed(program.lib, tmp_path, dice.randrange(80))
                program.lib = Library(universe, agent="scout")
            try:
                await program.step()
            except DgentError:  # a label that is taken, say
                continue
        for _ in range(2):  # a file may have to wait until another one has left its name
            await program.lib.sync(tmp_path)
        rest = await program.lib.sync(tmp_path)
        assert not rest.taken and not rest.written and not rest.deleted
        found = set(re.findall(r"[\u4e00-\u9fff]", await program.everything()))
        assert program.words <= found
