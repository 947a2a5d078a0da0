"""The engines under test, each with its settings, bare and behind the wrapper that changes bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dgent.store.backend import Backend
from dgent.store.registry import ENGINES, backend_for
from dgent.store.sqlite import kernel
from dgent.testing.scramble import scramble


class Setting(NamedTuple):
    """One way to run an engine."""

    name: str
    url: Callable[[Path], str]
    options: dict[str, Any]
    persistent: bool


class Column(NamedTuple):
    """One setting, bare or scrambled: a column in the table of test results."""

    name: str
    setting: Setting
    wrapped: bool

    def make(self, folder: Path) -> Backend:
        """A backend of this column in a folder, not opened yet."""
        options = dict(self.setting.options)
        if self.wrapped:
            options["wrap"] = scramble
        # Some with every commit, some never: programs must not notice when index entries are moved.
        kernel.MOVE_AT = random.choice((1, 3, 20, 256))
        return backend_for(self.setting.url(folder), **options)


def _file(folder: Path) -> str:
    return f"sqlite:///{folder / 'store.db'}"


def _universe(folder: Path) -> str:
    from tests.postgres.lease import url_for  # starts a server, and not every test needs one

    return url_for(folder)


def _folder(folder: Path) -> str:
    return f"jsonl:{folder / 'store'}"


SETTINGS: dict[str, list[Setting]] = {
    "memory": [Setting("memory", lambda _: "memory:", {}, False)],
    "sqlite": [
        Setting("sqlite", _file, {"durability": "full"}, True),
        Setting("relaxed", _file, {"durability": "relaxed"}, True),
    ],
    "postgres": [Setting("postgres", _universe, {}, True)],
    "jsonl": [Setting("jsonl", _folder, {}, True)],
}

# From the registry, so that a new engine without a row above fails here and not in someone's hands.
COLUMNS: tuple[Column, ...] = tuple(
    Column(setting.name + suffix, setting, wrapped)
    for engine in ENGINES
    for setting in SETTINGS[engine.name]
    for suffix, wrapped in (("", False), ("_scrambled", True))
    # What an engine stores does not depend on when it waits for the disk: one setting is scrambled.
    if not wrapped or setting is SETTINGS[engine.name][0]
)
# A server in front of an engine; each test makes its own store there, so the column only has a name.
REMOTE = Column("remote", Setting("remote", lambda _: "", {}, True), False)
BARE: tuple[Column, ...] = tuple(column for column in COLUMNS if not column.wrapped)
# For tests of reads: the durability decides only how a commit is written.
READING: tuple[Column, ...] = tuple(column for column in BARE if column.name != "relaxed")
