"""Files of the Agents SDK's own sessions, imported and read by ours."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession
from agents.extensions.memory.advanced_sqlite_session import AdvancedSQLiteSession

import dgent
from dgent.bridges.openai_agents import DgentSession
from dgent.bridges.openai_agents.migrate import import_sessions
from dgent.bridges.openai_agents.records import read_talk
from dgent.errors import InputError
from tests.bridges.test_openai_agents import NAMES, act, make_item, make_step, place, view
from tests.soak import times


def digest(path: Path) -> list[str]:
    files = sorted(path.parent.glob(f"{path.name}*"))
    return [hashlib.sha256(each.read_bytes()).hexdigest() for each in files if not each.name.endswith("-shm")]


def counts(found: Any) -> tuple[int, int, int, int]:
    return found.read, found.written, found.already_there, found.left_out


@pytest.mark.parametrize("engine", ("memory", "sqlite"))
@pytest.mark.parametrize("seed", range(times(4)))
async def test_sessions_with_branches_are_the_same(engine: str, seed: int, tmp_path: Path) -> None:
    choose, file = random.Random(f"{engine} {seed}"), tmp_path / "theirs.db"
    sessions = [AdvancedSQLiteSession(session_id=id, db_path=file, create_tables=True) for id in ("s", "é/~")]
    for theirs in sessions:
        for _ in range(25):
            await act(theirs, *make_step(choose))
    before = digest(file)
    async with dgent.open(place(engine, tmp_path)) as u:
        dry = await import_sessions(u, file, dry_run=True)
        assert await u.count(dgent.Query()) == 0
        found = await import_sessions(u, file)
        assert counts(found) == counts(dry) and found.read == found.written
        assert counts(await import_sessions(u, file)) == (found.read, 0, found.read, 0)
        assert digest(file) == before
        for theirs in sessions:
            ours = DgentSession(theirs.session_id, u)
            if theirs._current_branch_id in [each["branch_id"] for each in await ours.list_branches()]:
                await ours.switch_to_branch(theirs._current_branch_id)
                assert repr(await view(ours)) == repr(await view(theirs))
            for name in NAMES:
                turns = [await each.get_conversation_turns(name) for each in (theirs, ours)]
                assert turns[0] == turns[1]  # with their times
            # Names of branches stay taken.
            talk, _ = await read_talk(u, theirs.session_id)
            assert set(talk.used) == _list_used(file, theirs.session_id)
            await ours.add_items([{"role": "user", "content": "more"}])
        # Sessions that went on here are there already.
        assert counts(await import_sessions(u, file)) == (found.read, 0, found.read, 0)


def _list_used(file: Path, session: str) -> set[str]:
    connection = sqlite3.connect(file)
    rows = connection.execute("SELECT branch_id FROM branch_reservations WHERE session_id = ?", (session,))
    found = {name for (name,) in rows}
    connection.close()
    return found


async def test_plain_sessions_and_damaged_rows(tmp_path: Path) -> None:
    file, choose = tmp_path / "plain.db", random.Random(5)
    first, second = SQLiteSession("one", file), SQLiteSession("two", file)
    await first.add_items([make_item(choose) for _ in range(30)])
    await second.add_items([{"role": "user", "content": "hello"}])
    expected = [repr(await each.get_items()) for each in (first, second)]
    with sqlite3.connect(file) as connection:
        add = "INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)"
        connection.executemany(add, [("two", "{not json"), ("two", b"\x80\x04N."), (b"\xff", "{}")])
    connection.close()
    async with dgent.open("memory:") as u:
        found = await import_sessions(u, file)
        assert counts(found) == (34, 31, 0, 3)
        assert [each.line for each in found.problems if "not JSON" in each.message] == [32, 33]
        assert any("session_id is not a text" in each.message for each in found.problems)
        assert [repr(await DgentSession(id, u).get_items()) for id in ("one", "two")] == expected
        await second.clear_session()
        await second.add_items([{"role": "user", "content": "changed"}])
        again = await import_sessions(u, file)
        assert counts(again)[1] == 0 and "another version of it is here" in again.problems[0].message
        assert await DgentSession("two", u).get_items() == [{"role": "user", "content": "hello"}]
        first.close()
        second.close()


async def test_file_without_sessions(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE other (a)").connection.close()
    async with dgent.open("memory:") as u:
        with pytest.raises(InputError, match="no table of the Agents SDK"):
            await import_sessions(u, tmp_path / "other.db")
