"""Opening what is not a store: a clear error, and not one byte of it changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import dgent
from dgent.errors import Corrupt, DgentError, FormatTooNew, NoBackendAvailable
from dgent.store.sqlite import format as storage
from tests.fault.known_gaps import skip
from tests.fault.nursery import ROOT


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder; only to be called when this process has none of them open."""
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}


async def store(path: Path, records: int = 300) -> None:
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put_many([dgent.Datum(id=f"{i}", data={"text": "x" * 300}) for i in range(records)])


def foreign(path: Path, mode: str = "delete", application: int = 0) -> None:
    connection = apsw.Connection(str(path))
    list(connection.execute(f"PRAGMA journal_mode = {mode}; PRAGMA application_id = {application}"))
    connection.execute("CREATE TABLE meta (name, value); INSERT INTO meta VALUES ('format', 1)")
    connection.close()


def foreign_with_log(path: Path) -> None:
    """A foreign file whose owner was killed: everything is still in its log."""
    script = (
        "import apsw, os, sys\n"
        "c = apsw.Connection(sys.argv[1])\n"
        "list(c.execute('PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a)'))\n"
        "c.execute('INSERT INTO t VALUES (zeroblob(100000))')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)]).returncode == -9
    os.unlink(f"{path}-shm")  # made again by whoever looks, and no one's data


WRONG: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("Dear diary, " * 1000),
    "short text": lambda path: path.write_text("hello"),
    "foreign": foreign,
    "foreign in WAL mode": lambda path: foreign(path, "wal"),
    "foreign with an application id": lambda path: foreign(path, "delete", 42),
    "foreign with a log": foreign_with_log,
    "half a header": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\x10\x00" * 20),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_not_a_store(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd.db"
    WRONG[kind](path)
    before = contents(tmp_path)
    with pytest.raises(Corrupt) as caught:
        await dgent.open(f"sqlite:///{path}").open()
    assert str(path) in str(caught.value)
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) <= {"odd.db-shm"}, "something was left beside the file"


@pytest.mark.parametrize("cut", [50, 512, 4096, 4096 * 3, 0.5, 0.9])
async def test_a_truncated_store_is_never_written_over(tmp_path: Path, cut: float) -> None:
    path = tmp_path / "cut.db"
    await store(path)
    size = path.stat().st_size
    os.truncate(path, cut if isinstance(cut, int) else int(size * cut) // 4096 * 4096)
    before = contents(tmp_path)
    with pytest.raises(Corrupt):
        async with dgent.open(f"sqlite:///{path}") as u:
            for i in range(300):
                await u.get(f"{i}")
            await u.query(dgent.Query(limit=None))
    assert contents(tmp_path)["cut.db"] == before["cut.db"]


async def test_a_log_without_its_file(tmp_path: Path) -> None:
    """SQLite would throw the log away and start an empty store in its place."""
    path = tmp_path / "lost.db"
    foreign_with_log(path)
    for damage in (lambda: os.truncate(path, 0), lambda: os.unlink(path)):
        damage()
        before = contents(tmp_path)
        with pytest.raises(Corrupt, match="log"):
            await dgent.open(f"sqlite:///{path}").open()
        assert contents(tmp_path) == before


@pytest.mark.parametrize("state", ["closed", "with a log", "in another mode"])
async def test_a_newer_format(tmp_path: Path, state: str) -> None:
    path = tmp_path / "newer.db"
    await store(path)
    script = (
        "import apsw, os, sys\n"
        "c = apsw.Connection(sys.argv[1])\n"
        "c.execute(\"UPDATE meta SET value = 99 WHERE name = 'format'\")\n"
        "if sys.argv[2] == 'with a log': os.kill(os.getpid(), 9)\n"
        "if sys.argv[2] == 'in another mode': list(c.execute('PRAGMA journal_mode = delete'))\n"
        "c.close()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path), state])
    before = contents(tmp_path)
    with pytest.raises(FormatTooNew, match="99"):
        await dgent.open(f"sqlite:///{path}").open()
    after = contents(tmp_path)
    after.pop("newer.db-shm", None), before.pop("newer.db-shm", None)
    assert after == before


async def test_an_older_format_without_steps(tmp_path: Path) -> None:
    path = tmp_path / "older.db"
    await store(path)
    connection = apsw.Connection(str(path))
    oldest = storage.STEPS[0].number - 1
    connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (oldest - 1,))
    connection.close()
    before = contents(tmp_path)
    with pytest.raises(Corrupt, match="format"):
        await dgent.open(f"sqlite:///{path}").open()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("damage", ["DROP TABLE meta", "DELETE FROM meta", "UPDATE meta SET value = 'x'"])
async def test_a_store_without_its_meta(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "damaged.db"
    await store(path)
    connection = apsw.Connection(str(path))
    connection.execute(damage)
    connection.close()
    before = contents(tmp_path)
    with pytest.raises(Corrupt):
        await dgent.open(f"sqlite:///{path}").open()
    assert contents(tmp_path) == before


async def test_places_that_are_no_file(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "no" / "such" / "folder.db", Path("/proc/version/x.db")):
        with pytest.raises(NoBackendAvailable):
            await dgent.open(f"sqlite:///{place}").open()
    (tmp_path / "file").write_text("x")
    with pytest.raises(NoBackendAvailable):
        await dgent.open(f"sqlite:///{tmp_path / 'file' / 'below.db'}").open()
    assert os.listdir(tmp_path) == ["file"]


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    await store(path, 1)
    assert path.stat().st_size > 0


@pytest.mark.parametrize(
    "name", ["a b.db", "per%20cent.db", "quest?ion.db", "hash#.db", "quote'\".db", "é\U0001f600.db"]
)
async def test_odd_file_names(tmp_path: Path, name: str) -> None:
    await store(tmp_path / name, 3)
    await store(tmp_path / name, 5)
    assert os.listdir(tmp_path) == [name]
    (tmp_path / name).unlink()
    foreign(tmp_path / name)
    with pytest.raises(Corrupt):
        await dgent.open(f"sqlite:///{tmp_path / name}").open()


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_without_permission(tmp_path: Path, what: str) -> None:
    """As a user who may read the file and not write it; root may always, so another user looks."""
    if os.getuid() != 0:
        skip("setuid")
    path = tmp_path / "mine.db"
    await store(path)
    os.chmod(path, 0o444 if what == "file" else 0o666)
    for folder in [tmp_path, *tmp_path.parents][:-2]:
        os.chmod(folder, 0o755 if what == "folder" or folder != tmp_path else 0o777)
    script = (
        "import asyncio, os, sys\n"
        "import dgent.universe.universe, dgent.store.sqlite.backend\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "async def main():\n"
        "    try:\n"
        "        async with dgent.universe.universe.open('sqlite:///' + sys.argv[1]) as u:\n"
        "            await u.get('1'); await u.put(dgent.Datum(id='new'))\n"
        "    except dgent.DgentError as error:\n"
        "        print(type(error).__name__)\n"
        "asyncio.run(main())\n"
    )
    before = contents(tmp_path)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run([sys.executable, "-c", script, str(path)], env=env, capture_output=True, text=True)
    assert ran.stdout.strip() in ("NoBackendAvailable", "Unavailable"), ran.stderr
    assert contents(tmp_path) == before


async def test_errors_are_ours_alone(tmp_path: Path) -> None:
    """Whatever bytes lie there, opening and reading raise our errors or work."""
    good = tmp_path / "good.db"
    await store(good, 50)
    whole = good.read_bytes()
    bad = tmp_path / "bad.db"
    for place in range(0, len(whole), 977):
        bad.write_bytes(
            whole[:place] + bytes(255 - byte for byte in whole[place : place + 40]) + whole[place + 40 :]
        )
        try:
            async with dgent.open(f"sqlite:///{bad}") as u:
                for i in range(0, 50, 7):
                    try:
                        await u.get(f"{i}")
                    except DgentError:
                        continue
                await u.query(dgent.Query(limit=None))
                await u.put(dgent.Datum(id="new"))
        except DgentError:
            pass
        for name in ("bad.db-wal", "bad.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
