"""Opening and closing: at the place that was asked for, or not at all."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Closed, Corrupt, NoBackendAvailable
from dgent.store.backend import Backend
from dgent.store.registry import ENGINES
from tests.universe.marks import MARK, mark


async def test_with_and_await(url: str) -> None:
    async with dgent.open(url) as u:
        assert isinstance(u, dgent.Universe)
        assert isinstance(u.backend, Backend)
        assert u.author == "system"
    other = await dgent.open(url, author="ann")
    assert (await other.put(dgent.Datum())).author == "ann"
    assert await other.open() is other
    await other.close()


async def test_what_was_written_is_there_again(shared_url: str) -> None:
    async with dgent.open(shared_url) as u:
        u.register(MARK)
        kept = await u.remember(mark(), tags={"t"})
    async with dgent.open(shared_url) as u:
        assert (await u.get(kept.id)).data == kept.datum.data, "raw until the schema is registered"
        u.register(MARK)
        assert await u.get(kept.id) == kept
        assert await u.recall(dgent.Query(tags={"t"}, where={"author": "scout"})) == [kept]
        assert await u.seq() == 1


async def test_two_handles_on_one_file(shared_url: str) -> None:
    async with dgent.open(shared_url) as one, dgent.open(shared_url, durability="relaxed") as two:
        await one.put(dgent.Datum(id="a"))
        await two.put(dgent.Datum(id="b"))
        assert await two.exists("a")
        assert await one.exists("b")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "nosuch:place",
        "sqlite",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite:x.db",
    ],
)
def test_a_url_that_means_nothing(url: str) -> None:
    with pytest.raises(dgent.InputError) as refused:
        dgent.open(url)
    assert refused.value.hint


def test_other_wrong_arguments(tmp_path: Path) -> None:
    for wrong in (
        lambda: dgent.open(7),  # type: ignore[arg-type]
        lambda: dgent.open("memory:", author=""),
        lambda: dgent.open(f"sqlite:///{tmp_path}/x", durability="hopeful"),
        lambda: dgent.open(f"sqlite:///{tmp_path}/a\0b"),
    ):
        with pytest.raises(dgent.InputError):
            wrong()
    assert list(tmp_path.iterdir()) == []


async def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(NoBackendAvailable) as refused:
        await dgent.open(f"sqlite:///{tmp_path / 'missing' / 'store'}")
    assert "folder" in refused.value.hint
    assert isinstance(refused.value, dgent.StorageError)
    assert list(tmp_path.iterdir()) == [], "no other store was made"


async def test_a_place_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be read as one\n" * 100)
    before = (tmp_path / "text").read_bytes()
    with pytest.raises(dgent.StorageError):
        await dgent.open(f"sqlite:///{tmp_path / 'text'}")
    assert (tmp_path / "text").read_bytes() == before
    (tmp_path / "folder").mkdir()
    with pytest.raises(dgent.StorageError):
        await dgent.open(f"sqlite:///{tmp_path / 'folder'}")


async def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NoBackendAvailable):
        await dgent.open(f"sqlite:///{tmp_path / 'file' / 'store'}")


async def test_relative_and_absolute_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with dgent.open("sqlite:///here.db") as u:
        await u.put(dgent.Datum(id="x"))
    async with dgent.open(f"sqlite:///{tmp_path}/here.db") as u:
        assert await u.exists("x")


async def test_the_default_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    u = await dgent.open()
    await u.put(dgent.Datum(id="x"))
    await u.close()
    place = tmp_path / "data" / "dgent" / "constellations" / "default" / "membrane.db"
    assert place.exists()
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    async with dgent.open() as u:
        assert await u.exists("x")
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    async with dgent.open() as u:
        assert await u.count() == 0
    assert (tmp_path / "home/.local/share/dgent/constellations/default/membrane.db").exists()


async def test_repr(url: str) -> None:
    u = dgent.open(url)
    name = u.backend.name
    assert repr(u) == f"<Universe {name} new>"
    async with u:
        assert repr(u) == f"<Universe {name} open>"
    assert repr(u) == f"<Universe {name} closed>"


async def test_before_opening_and_after_closing(url: str) -> None:
    u = dgent.open(url)
    with pytest.raises(Closed):
        await u.get("x")
    async with u:
        await u.put(dgent.Datum(id="x"))
    await u.close()
    for work in (u.get("x"), u.put(dgent.Datum()), u.query(dgent.Query()), u.seq(), u.open()):
        with pytest.raises(Closed) as refused:
            await work
        assert refused.value.hint
    with pytest.raises(Closed):
        u.transaction()


async def test_another_loop(u: dgent.Universe) -> None:
    def elsewhere() -> None:
        async def use() -> None:
            await u.get("x")

        asyncio.run(use())

    with pytest.raises(Closed, match="loop"):
        await asyncio.to_thread(elsewhere)


async def test_a_backend_of_ones_own() -> None:
    backend = ENGINES[0].make("", {})
    async with dgent.open(backend=backend) as u:
        assert u.backend is backend


async def test_closing_while_old_records_are_being_indexed(shared_url: str) -> None:
    async with dgent.open(shared_url) as u:
        await u.put_many(
            dgent.Datum(
                data={"action": f"a{n}", "reasoning": "r", "author": "a"},
                schema="witness.mark",
                schema_version=1,
            )
            for n in range(5_000)
        )
    query = dgent.Query(schema="witness.mark", where={"principles.0": "a4321"})
    async with dgent.open(shared_url) as u:
        u.register(MARK)
        assert len(await u.query(query)) == 1
    async with dgent.open(shared_url) as u:
        u.register(MARK)
        assert len(await u.query(query)) == 1
        waiting = asyncio.create_task(u.indexed())
        await asyncio.sleep(0)
        waiting.cancel()
        await u.indexed()
        (marks,) = [stats for stats in await u.schemas() if stats.name == "witness.mark"]
        assert marks.building == ()
        assert len(await u.query(query)) == 1


@pytest.mark.parametrize("url", ["sqlite://u:hunter2@h/x", "memory://u:hunter2@h"])
def test_an_error_shows_no_password(url: str) -> None:
    with pytest.raises(dgent.InputError) as caught:
        dgent.open(url)
    assert "hunter2" not in str(caught.value) and "***" in str(caught.value)


async def test_only_postgres_has_replicas(tmp_path: Path) -> None:
    with pytest.raises(dgent.InputError, match="no replicas"):
        dgent.open(f"sqlite:///{tmp_path / 'store'}", read_url="postgresql://me@there/db")


async def test_the_first_place_that_answers_is_opened_when_that_is_wanted(tmp_path: Path) -> None:
    gone = f"sqlite:///{tmp_path}/missing/a.db"
    there = f"sqlite:///{tmp_path}/b.db"
    async with dgent.open([gone, there, "memory:"], choose="priority") as u:
        await u.put(dgent.Datum("a"))
        assert u.backend.name == "sqlite"
    async with dgent.open(there) as u:
        assert await u.exists("a")
    async with dgent.open(["memory:", there], choose="priority") as u:
        assert (u.backend.name, await u.exists("a")) == ("memory", False)
    with pytest.raises(NoBackendAvailable, match="none of 2 places"):
        await dgent.open([gone, gone], choose="priority")
    (tmp_path / "c.db").write_text("this is not a store, and not an empty file either")
    with pytest.raises(Corrupt):
        await dgent.open([f"sqlite:///{tmp_path}/c.db", there], choose="priority")


@pytest.mark.parametrize(
    "given",
    [
        {"url": "memory:"},
        {"url": []},
        {"url": None},
        {"url": ["memory:"], "choose": "random"},
        {"url": ["memory:"], "degrade": True},
    ],
)
def test_a_choice_needs_places(given: dict[str, Any]) -> None:
    with pytest.raises(dgent.InputError):
        dgent.open(**{"choose": "priority", **given})
