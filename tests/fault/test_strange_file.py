"""A SQLite file from a stranger: what it does on its own is refused before anything of it is asked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import apsw
import pytest

import dgent
from dgent.errors import Corrupt, InputError, StorageFull, Unavailable, Unsupported
from dgent.exchange import backup
from dgent.store.registry import backend_for
from dgent.store.sqlite import connection as connections
from tests.fault.nursery import ROOT

ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    " SELECT 'format' AS name, i AS value FROM n"
)
FORGED = {
    "a trigger that drops what is put": "CREATE TRIGGER t AFTER INSERT ON datum BEGIN DELETE FROM datum; END",
    "a trigger on a table that a comment hides": "CREATE TRIGGER t AFTER INSERT /* begin */ ON/**/datum BEGIN"
    " DELETE FROM datum; END",
    "a trigger of our name on a table of theirs": "CREATE TABLE mine (a); CREATE TRIGGER meta AFTER INSERT ON"
    " mine BEGIN SELECT 1; END",
    "an endless view": f"ALTER TABLE meta RENAME TO old; CREATE VIEW meta AS {ENDLESS}",
    "a view of records": "ALTER TABLE datum RENAME TO old; CREATE VIEW datum AS SELECT * FROM old",
    "no index of ids": "DROP INDEX datum_id",
    "no index of keys": "DROP INDEX commits_key",
    "another index of ids": "DROP INDEX datum_id; CREATE INDEX datum_id ON datum (id)",
    "an index more": "CREATE UNIQUE INDEX more ON datum (author)",
    "an index more, quoted": 'CREATE UNIQUE INDEX "x on y" ON [datum] (author)',
    "a check more": "DROP TABLE lag; CREATE TABLE lag (schema INT, dk INT CHECK (dk < 5))",
    "a table less": "DROP TABLE forgotten",
    "a column that computes": "ALTER TABLE trail ADD COLUMN more AS (trail + 1)",
}


async def store(path: Path) -> None:
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(dgent.Datum(id="a", data={"n": 1}))


def alter(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


@pytest.mark.parametrize("kind", FORGED)
async def test_a_store_that_was_altered_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store.db"
    await store(path)
    alter(path, FORGED[kind])
    before = path.read_bytes()
    with pytest.raises(Corrupt, match=r"of somebody else|lacks"):
        await dgent.open(f"sqlite:///{path}").open()
    assert path.read_bytes() == before


async def test_statistics_and_tables_beside_are_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await store(path)
    alter(path, "ANALYZE; CREATE TABLE notes (a INTEGER PRIMARY KEY, b UNIQUE); CREATE INDEX n ON notes (b)")
    async with dgent.open(f"sqlite:///{path}") as u:
        assert await u.get("a") is not None


async def test_a_backup_that_was_altered_is_not_restored(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    await store(folder / "membrane.db")
    alter(folder / "membrane.db", FORGED["a trigger that drops what is put"])
    with pytest.raises(Corrupt):
        async with dgent.open(f"sqlite:///{folder / 'membrane.db'}") as u:
            await backup.backup(u, folder, tmp_path / "kept")
    await store(tmp_path / "fine.db")
    async with dgent.open(f"sqlite:///{tmp_path / 'fine.db'}") as u:
        await backup.backup(u, None, tmp_path / "kept")
    with pytest.raises(Corrupt):  # what is there cannot be asked what it has forgotten
        await backup.restore(tmp_path / "kept", folder, replace=True)


# -- the library ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.50.4", "3.51.2", "3.51.0", "2.8.17"])
async def test_an_older_sqlite_is_refused(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    with pytest.raises(Unsupported, match=re.escape(version)) as caught:
        await dgent.open(f"sqlite:///{tmp_path / 'store.db'}").open()
    assert "apsw>=3.51.3" in caught.value.hint
    assert not (tmp_path / "store.db").exists()
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.3")
    await store(tmp_path / "store.db")


def test_the_floor_is_the_one_that_is_installed() -> None:
    wanted = tomllib.loads((Path(ROOT) / "pyproject.toml").read_text())["project"]["dependencies"]
    floor = ".".join(map(str, connections.FLOOR))
    assert f"apsw>={floor}" in wanted


# -- the disk -------------------------------------------------------------------------------


class Failing(apsw.VFS):
    """A disk that fails to write when it is told to."""

    def __init__(self) -> None:
        super().__init__("failing", "")
        self.broken = False

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(self, disk: Failing, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self.disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.disk.broken:
            error = apsw.IOError("the disk is broken")
            error.extendedresult = apsw.SQLITE_IOERR_WRITE
            raise error
        super().xWrite(data, offset)


def test_a_broken_disk_is_not_called_a_full_one(tmp_path: Path) -> None:
    disk, path = Failing(), str(tmp_path / "x.db")
    connection = apsw.Connection(path, vfs="failing")
    connection.execute("CREATE TABLE t (a)")
    disk.broken = True
    with pytest.raises(Unavailable, match="disk failed") as caught, connections.translate_errors(path):
        connection.execute("INSERT INTO t VALUES (1)")
    assert not isinstance(caught.value, StorageFull)
    disk.broken = False
    connection.close()
    disk.unregister()


# -- addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        *("postgresql://[::1", "postgresql://]", "postgresql://h:port/db", "postgresql://h:99999/db"),
        *("postgresql://u:p@[::1", "postgresql://h/db?read_url=postgresql://[::1", "sqlite:///s.db?x=1"),
        *(
            "sqlite:////abs/s.db?mode=ro",
            "sqlite:///s.db?durability=relaxed&x=1",
            "sqlite:///a/b.db?cache=/x",
        ),
    ],
)
def test_an_address_that_is_not_valid_is_an_input_error(url: str) -> None:
    with pytest.raises(InputError):
        backend_for(url)


def test_addresses_that_are_valid() -> None:
    for url in ("postgresql://[::1]:5432/db", "postgresql://a:1,b:2/db", "postgresql:///db?host=/tmp"):
        backend_for(url)
    assert backend_for("sqlite:///a?/b?.db").path.endswith("a?/b?.db")  # type: ignore[attr-defined]
