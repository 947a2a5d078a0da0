"""The provider: all stores of one place, opened from the settings or in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import dgent
from dgent.errors import Denied, NoBackendAvailable, Unsupported
from dgent.storage import (
    IBlobStore,
    IRelationalStore,
    ITelemetryStore,
    IVectorStore,
    StorageProvider,
    TelemetryEvent,
)
from dgent.sync.storage import StorageProvider as BlockingProvider
from dgent.universe.gate import Principal


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of this test's own, without settings."""
    for name in ("DATA", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def use(storage: StorageProvider) -> None:
    """Use each store once."""
    assert isinstance(storage.relational, IRelationalStore)
    assert isinstance(storage.vector, IVectorStore)
    assert isinstance(storage.blob, IBlobStore)
    assert isinstance(storage.telemetry, ITelemetryStore)
    await storage.relational.execute("CREATE TABLE IF NOT EXISTS mine (n BIGINT)")
    await storage.relational.execute("INSERT INTO mine VALUES (1)")
    await storage.vector.add("v", [1.0, 0.0], {"who": "ann"})
    await storage.blob.put("backups/today.bak", b"bytes")
    await storage.telemetry.append([TelemetryEvent(kind="start")])


async def test_from_config_keeps_everything(home: Path) -> None:
    storage = await StorageProvider.from_config()
    assert await storage.run_migrations() == []
    await use(storage)
    await storage.close()
    with pytest.raises(dgent.StorageError, match="closed"):
        await storage.universe.count()
    async with await StorageProvider.from_config() as storage:
        assert await storage.relational.fetch_all("SELECT n FROM mine") == [{"n": 1}]
        assert [hit.id for hit in await storage.vector.search([1.0, 0.1])] == ["v"]
        assert await storage.blob.get("backups/today.bak") == b"bytes"
        assert [event.kind for event in await storage.telemetry.query()] == ["start"]


async def test_from_config_reads_the_file_that_is_named(home: Path) -> None:
    (home / "other.toml").write_text(f'url = "sqlite:///{home}/other.db"')
    async with await StorageProvider.from_config(home / "other.toml") as storage:
        await storage.relational.execute("CREATE TABLE mine (n BIGINT)")
    assert (home / "other.db").exists()


async def test_a_store_that_cannot_be_opened_is_never_replaced(home: Path) -> None:
    (home / "other.toml").write_text('url = "sqlite:////nowhere/at/all.db"')
    with pytest.raises(NoBackendAvailable):
        await StorageProvider.from_config(home / "other.toml")


async def test_a_mistake_in_the_settings_is_a_warning_and_the_default_is_used(home: Path) -> None:
    (home / "config" / "dgent").mkdir(parents=True)
    (home / "config" / "dgent" / "config.toml").write_text("url = [")
    with pytest.warns(UserWarning, match=r"config\.toml"):
        storage = await StorageProvider.from_config()
    assert str(home / "data") in (await storage.universe.stats()).place
    await storage.close()


async def test_the_minimal_one_works_and_says_that_nothing_lasts() -> None:
    with pytest.warns(UserWarning, match="nothing is stored on disk"):
        storage = await StorageProvider.create_minimal()
    await use(storage)
    assert await storage.relational.fetch_one("SELECT n FROM mine") == {"n": 1}
    await storage.close()


def test_the_blocking_one_does_the_same(home: Path) -> None:
    with BlockingProvider.from_config() as storage:
        storage.relational.execute("CREATE TABLE mine (n BIGINT)")
        with storage.relational.transaction() as tx:
            tx.execute("INSERT INTO mine VALUES (:n)", {"n": 3})
        storage.vector.add("v", [1.0, 0.0])
        assert storage.vector.count() == 1
    with BlockingProvider.from_config() as storage:
        assert storage.relational.fetch_all("SELECT n FROM mine") == [{"n": 3}]


async def test_an_engine_without_tables_says_which_have_some(tmp_path: Path) -> None:
    async with dgent.open(f"jsonl:{tmp_path / 'lines'}") as u:
        with pytest.raises(Unsupported, match="jsonl engine has no tables"):
            await u.storage.relational.fetch_all("SELECT 1")


async def test_vectors_are_found_by_nearness_and_filter(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with dgent.open(url) as u:
        vectors = u.storage.vector
        assert await vectors.search([1.0, 0.0]) == []
        assert (await vectors.count(), await vectors.delete("a")) == (0, False)
        await vectors.add("a", [1.0, 0.0], {"who": "ann", "year": 2025})
        await vectors.add("b", [0.0, 1.0], {"who": "bob", "year": 2025})
        await vectors.add("a", [1.0, 1.0], {"who": "ann", "year": 2026})
    async with dgent.open(url) as u:
        vectors = u.storage.vector
        found = await vectors.search([1.0, 0.0], k=5)
        assert [(hit.id, hit.metadata["year"]) for hit in found] == [("a", 2026), ("b", 2025)]
        assert found[0].distance == pytest.approx(1 - found[0].score)
        only = await vectors.search([1.0, 0.0], filter={"who": "bob", "year": 2025})
        assert [hit.id for hit in only] == ["b"]
        with pytest.raises(dgent.InputError):
            await vectors.add("c", [1.0, 0.0, 0.0])
        assert await vectors.delete("a")
        assert await vectors.count() == 1


async def test_only_partners_migrate_and_end_a_recovery() -> None:
    async with dgent.open("memory:") as u:
        limited = u.acting(Principal("guest", "friend")).storage
        with pytest.raises(Denied, match="may not migrate"):
            await limited.run_migrations()
        with pytest.raises(Denied, match="may not end a recovery"):
            await limited.recover()
        assert await u.acting(Principal("ann", "partner")).storage.run_migrations() == []
