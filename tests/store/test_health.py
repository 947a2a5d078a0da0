"""An inspection finds what is wrong with a store, mends what is safe to mend, and leaves the rest alone."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent.errors import Closed, Conflict, Unsupported
from dgent.store.sqlite import inspect as health
from dgent.store.sqlite import shared
from dgent.store.upkeep import Finding, Upkeep, upkeep_of
from tests.exchange import worker
from tests.fault.check import check_store, move_entries
from tests.fault.nursery import Nursery

Datum = dgent.Datum


@dataclass(frozen=True)
class Note:
    n: int
    text: str = ""


NOTE = dgent.Schema("note", contract=Note, indexes=("n",))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "SCRUB_S", 0.3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home" / "membrane.db"


@pytest.fixture
async def u(path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(NOTE)
        for n in range(20):
            await u.remember(Note(n), id=f"n{n}", tags={"even"} if n % 2 == 0 else None, parent=f"n{n - 1}")
        await u.put(Datum(id="plain", data={"x": 1}, source="web"))
        await u.delete("n3")
        await u.store((await u.get("n4")).replace(value=Note(44), author="second"))
        os.chmod(path, 0o600)
        for suffix in ("-wal", "-shm"):
            os.chmod(f"{path}{suffix}", 0o600)
        yield u


async def inspect(u: dgent.Universe, **how: Any) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in await upkeep_of(u.backend).inspect(**how):
        found.setdefault(finding.subject, []).append(finding)
    return found


def bad(found: dict[str, list[Finding]]) -> list[Finding]:
    return [finding for each in found.values() for finding in each if finding.level != "ok"]


def tamper(path: Path, *sql: str) -> None:
    """Change the file behind everybody's back."""
    other = apsw.Connection(str(path))
    other.set_busy_timeout(5000)
    for each in sql:
        other.execute(each).fetchall()
    other.close()


async def test_a_healthy_store(u: dgent.Universe) -> None:
    assert isinstance(upkeep_of(u.backend), Upkeep)
    told: list[Any] = []
    for deep in (False, True):
        found = await inspect(u, deep=deep, progress=lambda *at: told.append(at))
        assert bad(found) == []
        assert {"sqlite", "settings", "universe", "format", "integrity", "log", "disk"} <= set(found)
        assert await upkeep_of(u.backend).universe_id() in found["universe"][0].message
    assert told[-1] == (20, 20)
    assert bad(await inspect(u, deep=True, fix=True)) == []


async def test_other_engines_and_closed_handles(path: Path) -> None:
    async with dgent.open("memory:") as u:
        with pytest.raises(Unsupported) as caught:
            upkeep_of(u.backend)
        assert "sqlite" in caught.value.hint
    async with dgent.open(f"sqlite:///{path}") as u:
        pass
    with pytest.raises(Closed):
        await upkeep_of(u.backend).inspect()
    with pytest.raises(Closed):
        await upkeep_of(u.backend).copy_to(str(path) + ".copy")


async def test_permissions(u: dgent.Universe, path: Path) -> None:
    os.chmod(path, 0o644)
    os.chmod(path.parent, 0o755)
    found = await inspect(u)
    file, folder = found["permissions"]
    assert (file.level, file.fixable, file.fixed) == ("warning", True, False)
    assert (folder.level, folder.fixable) == ("note", False)
    file, _ = (await inspect(u, fix=True))["permissions"]
    assert file.fixed and "now only" in file.message
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755, "a folder may be shared for a reason"
    await u.put(Datum(id="still works"))


async def test_room(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, level in (("ROOM_BYTES", "warning"), ("NO_ROOM_BYTES", "problem")):
        monkeypatch.setattr(health, limit, 2**62)
        (disk,) = (await inspect(u))["disk"]
        assert disk.level == level and disk.hint


async def test_a_long_log(u: dgent.Universe, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOG_BYTES", 1000)
    assert (await inspect(u))["log"][0].fixable
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM datum").fetchall()
    await u.put(Datum(id="later"))
    (log,) = (await inspect(u, fix=True))["log"]
    assert not log.fixed and "could not" in log.message
    reader.close()
    (log,) = (await inspect(u, fix=True))["log"]
    assert log.fixed and os.stat(f"{path}-wal").st_size == 0


async def test_an_interrupted_forget(u: dgent.Universe, path: Path) -> None:
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM datum").fetchall()
    assert not (await u.forget("n6")).erased
    (found,) = (await inspect(u))["forgetting"]
    assert (found.level, found.fixable) == ("warning", True)
    reader.close()
    (found,) = (await inspect(u, fix=True))["forgetting"]
    assert found.fixed
    assert (await inspect(u))["forgetting"][0].level == "ok"


async def test_a_log_without_its_store(u: dgent.Universe, path: Path) -> None:
    (path.parent / "gone.db-wal").write_bytes(b"x")
    (found,) = (await inspect(u, fix=True))["leftovers"]
    assert "gone.db-wal" in found.message and (path.parent / "gone.db-wal").exists()


async def test_an_index_that_is_not_filled(u: dgent.Universe, path: Path) -> None:
    await u.put_many([Datum(id=f"m{n}", data={"n": n}, schema="more", schema_version=1) for n in range(2500)])
    await u.backend.declare(dgent.store.backend.Declaration("more", 1, ("n",)))
    (found,) = (await inspect(u, deep=True))["indexes"]
    assert (found.level, found.fixable) == ("note", True) and "more" in found.message
    assert bad(await inspect(u, deep=True)) == [found], "what is not filled yet is not missing"
    (found,) = (await inspect(u, fix=True))["indexes"]
    assert found.fixed
    assert bad(await inspect(u, deep=True)) == []
    check_store(str(path))


async def test_an_index_that_needs_a_program(u: dgent.Universe) -> None:
    """Records of an older version can be indexed only by who can upgrade them."""
    await u.put(Datum(id="m1", data={"n": 1}, schema="more", schema_version=1))
    await u.put(Datum(id="m2", data={"n": 1}, schema="more", schema_version=2))
    await u.backend.declare(dgent.store.backend.Declaration("more", 2, ("n",)))
    (found,) = (await inspect(u, deep=True, fix=True))["indexes"]
    assert not found.fixable and not found.fixed and "version 2" in found.hint
    assert bad(await inspect(u, deep=True)) == [found]
    await u.put(Datum(id="m3", data={"n": 1}, schema="more", schema_version=1))
    assert len((await inspect(u, deep=True))["indexes"]) == 2


async def test_a_damaged_file(u: dgent.Universe, path: Path) -> None:
    await move_entries(u.backend)
    tamper(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    ((root,),) = apsw.Connection(str(path)).execute("SELECT rootpage FROM sqlite_schema WHERE name = 'entry'")
    await u.close()
    with open(path, "r+b") as file:
        file.seek((root - 1) * 4096 + 8)
        file.write(b"\xff" * 200)
    async with dgent.open(f"sqlite:///{path}") as again:
        for deep in (False, True):
            (found,) = (await inspect(again, deep=deep, fix=True))["integrity"]
            assert found.level == "problem" and not found.fixed and found.hint


# -- deep ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM entry WHERE dk = 5",
        "DELETE FROM entry WHERE ix IN (SELECT ix FROM ix WHERE path = '.n')",
        "DELETE FROM entry",
        "DELETE FROM ix WHERE path = '@source'",
        "INSERT INTO entry (ix, key, t, dk) SELECT ix, x'0102', t, dk FROM entry WHERE dk = 7",
        "INSERT INTO entry (ix, key, t, dk) SELECT ix, key, t, 9999 FROM entry WHERE dk = 7",
        "INSERT INTO entry (ix, key, t, dk)"
        " SELECT ix, key, t, (SELECT dk FROM datum WHERE id = 'n3') FROM entry WHERE dk = 7",
        "INSERT INTO lag SELECT schema, dk FROM datum WHERE id = 'n7'",
        "INSERT INTO lag VALUES (99, 99)",
        "UPDATE datum SET fk = x'' WHERE id = 'n8'",
    ],
)
async def test_indexes_that_do_not_fit_the_rows(u: dgent.Universe, path: Path, sql: str) -> None:
    await move_entries(u.backend)
    await u.close()
    tamper(path, sql)
    async with dgent.open(f"sqlite:///{path}") as again:
        assert [f for f in bad(await inspect(again)) if f.level != "note"] == [], "only a deep look finds it"
        found = await inspect(again, deep=True)
        assert found["entries"][0].level == "problem" and found["entries"][0].fixable
        (mended,) = (await inspect(again, deep=True, fix=True))["entries"]
        assert mended.fixed, mended
        left = bad(await inspect(again, deep=True))
        # A row that says of itself that it lags is believed.
        assert [f.subject for f in left] == (["indexes"] if "SET fk" in sql else [])
    check_store(str(path))


@pytest.mark.parametrize(
    ("sql", "subject"),
    [
        ("DELETE FROM datum WHERE id = 'n4'", "history"),
        ("DELETE FROM commits WHERE seq = 5", "commits"),
        ("DELETE FROM name WHERE text = 'web'", "names"),
        ("UPDATE datum SET data = x'ff' WHERE id = 'n5'", "records"),
    ],
)
async def test_what_cannot_be_mended_is_left_alone(
    u: dgent.Universe, path: Path, sql: str, subject: str
) -> None:
    await u.close()
    tamper(path, sql)
    async with dgent.open(f"sqlite:///{path}") as again:
        found = (await inspect(again, deep=True, fix=True))[subject]
        assert any(f.level == "problem" and not f.fixed and f.hint for f in found)
        found = (await inspect(again, deep=True))[subject]
        assert any(f.level == "problem" for f in found)


@pytest.mark.parametrize(
    "sql", ["id = 'n5'", "id = 'n19'", "id = 'plain'", "id = 'n3'", "id IN ('n5', 'n6')"]
)
async def test_lost_records_are_never_called_healthy(u: dgent.Universe, path: Path, sql: str) -> None:
    await u.close()
    tamper(path, f"DELETE FROM datum WHERE {sql}")
    async with dgent.open(f"sqlite:///{path}") as again:
        (first,) = (await inspect(again, deep=True))["missing"]
        assert (first.level, first.fixable) == ("problem", False) and "backup" in first.hint
        assert "of commits " in first.message
        found = await inspect(again, deep=True, fix=True)
        assert found["missing"] == [first] and "entries" not in found
        assert (await inspect(again, deep=True))["missing"] == [first]
        await again.put(Datum(id="another", data={"n": 1}))
        assert (await inspect(again, deep=True))["missing"] == [first], "also when its number is taken"


async def test_lost_records_whose_commits_are_gone(u: dgent.Universe, path: Path) -> None:
    for n in range(5):
        await u.put(Datum(id="plain", data={"x": n}))
    await u.compact(0)
    await u.close()
    tamper(path, "DELETE FROM datum WHERE id = 'n5'")
    async with dgent.open(f"sqlite:///{path}") as again:
        for fix in (True, False):
            (found,) = (await inspect(again, deep=True, fix=fix))["missing"]
            assert found.level == "problem" and not found.fixable and "with index entries" in found.message


async def test_a_record_set_back_to_an_older_version(u: dgent.Universe, path: Path) -> None:
    await u.close()
    tamper(path, "UPDATE datum SET rev = 1 WHERE id = 'n4'")
    async with dgent.open(f"sqlite:///{path}") as again:
        assert (await inspect(again, deep=True))["missing"][0].level == "problem"


async def test_forgotten_records_are_not_lost(u: dgent.Universe) -> None:
    await u.forget("n5", "n4", "n3", "plain")
    assert bad(await inspect(u, deep=True)) == []
    await u.put(Datum(id="plain", data={"again": 1}))
    await u.forget("n19", "plain")
    await u.put(Datum(id="after"))
    assert bad(await inspect(u, deep=True)) == []
    for n in range(5):
        await u.put(Datum(id="after", data={"n": n}), key=f"k{n}")
    await u.forget("after")
    await u.put(Datum(id="n2"))
    await u.compact(0)
    assert bad(await inspect(u, deep=True)) == []


@pytest.mark.parametrize(
    "change",
    [
        *(f"{name} = 'abc'" for name in ("rev", "seq", "t", "at", "schema", "sv", "author", "source", "enc")),
        *(f"{name} = 1.5" for name in ("rev", "t", "sv")),
        *(f"{name} = 'text'" for name in ("data", "content", "x", "fk", "live", "tags")),
        *(f"{name} = x'ff'" for name in ("id", "tags", "parent", "rev", "x")),
        "id = CAST(x'ff' AS TEXT)",
        "tags = CAST(x'5b22ff225d' AS TEXT)",
        "parent = CAST(x'ff' AS TEXT)",
        "data = 17",
        "t = 9223372036854775807",
    ],
)
async def test_values_of_another_type(u: dgent.Universe, path: Path, change: str) -> None:
    await u.close()
    tamper(path, f"UPDATE datum SET {change} WHERE id = 'n5'")
    async with dgent.open(f"sqlite:///{path}") as again:
        for fix in (True, False):
            found = (await inspect(again, deep=True, fix=fix))["records"]
            assert [(f.level, f.fixable) for f in found] == [("problem", False)]
            assert found[0].message == "1 records are damaged"


@pytest.mark.parametrize(
    ("sql", "subject"),
    [
        ("UPDATE past SET rev = 'abc'", "history"),
        ("UPDATE commits SET ops = x'ff' WHERE seq = 5", "commits"),
        ("UPDATE commits SET ops = 'text' WHERE seq = 5", "commits"),
        ("UPDATE commits SET at = 'text' WHERE seq = 5", "commits"),
    ],
)
async def test_a_damaged_log_or_history(u: dgent.Universe, path: Path, sql: str, subject: str) -> None:
    await u.close()
    tamper(path, sql)
    async with dgent.open(f"sqlite:///{path}") as again:
        found = (await inspect(again, deep=True, fix=True))[subject]
        assert any(f.level == "problem" and "damaged" in f.message for f in found)


async def test_a_quick_look_says_what_it_left_out(u: dgent.Universe) -> None:
    assert "--deep reads every record" in (await inspect(u))["integrity"][0].message
    assert "--deep" not in (await inspect(u, deep=True))["integrity"][0].message


async def test_after_compacting(u: dgent.Universe) -> None:
    for n in range(10):
        await u.put(Datum(id="plain", data={"x": n}))
    await u.compact(2)
    assert bad(await inspect(u, deep=True)) == []
    await u.compact(0)
    assert bad(await inspect(u, deep=True)) == []


async def test_while_others_write(u: dgent.Universe, path: Path) -> None:
    with Nursery(worker.JOBS) as nursery:
        for n in range(3):
            worker.start(nursery, "write", folder=path.parent, name=f"w{n}")
        before = await u.seq()
        rounds = 0
        while rounds < 4 or await u.seq() == before:  # a busy machine lets nobody write for a while
            found = await inspect(u, deep=True, fix=True)
            # Three writers can fill the log faster than it is checkpointed.
            assert [f for f in bad(found) if f.subject not in ("permissions", "log")] == []
            rounds += 1


async def test_cancelled(u: dgent.Universe) -> None:
    await u.put_many([Datum(id=f"pad{n}", data={"x": "y" * 100}) for n in range(20_000)])
    for pause in (0, 0.02, 0.1):
        task = asyncio.create_task(upkeep_of(u.backend).inspect(deep=True))
        await asyncio.sleep(pause)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await u.put(Datum(id="goes on"))


# -- copies -------------------------------------------------------------------------------


async def test_a_copy(u: dgent.Universe, tmp_path: Path) -> None:
    told: list[Any] = []
    target = str(tmp_path / "copy ?#%.db")
    done = await upkeep_of(u.backend).copy_to(target, lambda *at: told.append(at))
    assert (done.path, done.seq, done.records) == (target, await u.seq(), 20)
    assert done.size_bytes == os.stat(target).st_size and told[-1][0] == told[-1][1] > 0
    assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
    assert [name for name in os.listdir(tmp_path) if name.startswith("copy")] == ["copy ?#%.db"]
    with pytest.raises(Conflict):
        await upkeep_of(u.backend).copy_to(target)
    check_store(target)
    async with dgent.open(f"sqlite:///{target}") as copy:
        assert await copy.list(limit=None) == await u.list(limit=None)
