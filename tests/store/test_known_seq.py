"""The newest seq without a read: known while only this handle's writer has written, and never wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import dgent
from dgent.store.sqlite.backend import SQLiteBackend

PROGRAM = """
import asyncio, sys, dgent
async def main():
    async with dgent.open(sys.argv[1]) as u:
        await u.remember({"text": "from another program"})
asyncio.run(main())
"""


async def test_it_is_known_after_own_commits(tmp_path: Path) -> None:
    async with dgent.Universe(SQLiteBackend(str(tmp_path / "a.db"))) as u:
        for number in range(1, 4):
            written = await u.remember({"n": number})
            assert u.backend.known_seq() == written.seq == await u.seq()


async def test_commits_of_others_are_noticed(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    # Another durability is another writer on another connection.
    async with (
        dgent.Universe(SQLiteBackend(path)) as u,
        dgent.Universe(SQLiteBackend(path, "relaxed")) as other,
    ):
        for number in range(5):
            mine = await u.remember({"n": number})
            assert u.backend.known_seq() == mine.seq
            theirs = await other.remember({"n": number})
            assert u.backend.known_seq() is None and await u.seq() == theirs.seq
            assert other.backend.known_seq() == theirs.seq


async def test_commits_of_another_process_are_noticed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with dgent.open(url) as u:
        mine = await u.remember({"n": 1})
        assert await u.seq() == mine.seq
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", PROGRAM, url], check=True)
        assert u.backend.known_seq() is None  # type: ignore[attr-defined]
        assert await u.seq() == (mine.seq or 0) + 1


async def test_it_is_not_known_before_the_first_commit_nor_while_one_waits(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    async with dgent.Universe(SQLiteBackend(path)) as u:
        await u.remember({"n": 1})
    async with dgent.Universe(SQLiteBackend(path)) as u:
        assert u.backend.known_seq() in (None, 1) and await u.seq() == 1
        writer = u.backend._shared.writer
        with writer.lock:
            assert u.backend.known_seq() is None
        assert await u.seq() == 1
