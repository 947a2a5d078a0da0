"""Kills at each step, eight processes, and forgetting: nothing is lost, nothing is twice, nothing is left."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import dgent
from dgent import Schema
from dgent.store.engine import prune
from dgent.store.upkeep import upkeep_of
from tests.embedding.embedders import Watched
from tests.fault.nursery import Nursery
from tests.universe.conftest import shared_url

__all__ = ["shared_url"]

NOTE = Schema("note", text=("body",), embed=("body",))
COUNT = 70


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.embedding.jobs") as running:
        yield running


def embed_until_killed(nursery: Nursery, url: str, step: str, at: int, model: str) -> None:
    (killed,) = nursery.wait(nursery.start("embed", url=url, kill_at=at, step=step, model=model))
    assert killed.code == -signal.SIGKILL, killed.said


async def write(url: str) -> None:
    async with dgent.open(url) as u:
        u.register(NOTE)
        for number in range(COUNT):
            await u.remember({"body": f"text {number}"}, schema="note", id=f"n{number}")


async def check(url: str, model: str, count: int) -> None:
    """Finish the work, and see that every record has its one vector."""
    embedder = Watched(32, model)
    async with dgent.open(url, embedder=embedder) as u:
        u.register(NOTE)
        await u.embedded()
        report = await u.embedding()
        assert report.complete and [each.vectors for each in report.schemas] == [count]
        assert report.schemas[0].spec.model == model
        hits = await u.search("text 7", k=1_000, mode="meaning")
        assert len(hits) == len({hit.id for hit in hits}) == count
        found = await upkeep_of(u.backend).inspect(deep=True)
        assert all(each.level in ("ok", "note") for each in found), found


@pytest.mark.parametrize(("step", "at"), [("embed", 40), ("before", 2), ("after", 1)])
async def test_killed_while_embedding(shared_url: str, step: str, at: int, nursery: Nursery) -> None:
    await write(shared_url)
    embed_until_killed(nursery, shared_url, step, at, "first")
    await check(shared_url, "first", COUNT)


@pytest.mark.parametrize(("step", "at"), [("after", 1)])
async def test_killed_while_another_model_embeds_all_again(
    shared_url: str, step: str, at: int, nursery: Nursery
) -> None:
    await write(shared_url)
    await check(shared_url, "first", COUNT)
    embed_until_killed(nursery, shared_url, step, at, "second")
    await check(shared_url, "second", COUNT)


async def test_a_model_comes_back_while_its_vectors_are_dropped(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index is dropped in steps; what is left of it is not taken for that of the model that is back."""
    monkeypatch.setattr(prune, "STALE_BATCH", 9)
    await write(shared_url)
    for model in ("first", "second", "first", "second", "first"):
        await check(shared_url, model, COUNT)
        async with dgent.open(shared_url) as u:
            u.register(NOTE)
            for _ in range(3):
                await u.backend.fill("note", u.contracts)
    await check(shared_url, "first", COUNT)


async def test_eight_processes_write_embed_and_search(shared_url: str, nursery: Nursery) -> None:
    each = 3
    started = [nursery.start("crowd", url=shared_url, name=f"p{number}", count=each) for number in range(8)]
    nursery.finish(*started, timeout_s=120)
    assert [child.said for child in started] == [["done"]] * 8
    async with dgent.open(shared_url, embedder=Watched(32, "hashed-32")) as u:
        u.register(NOTE)
        report = await u.embedding()
        assert report.complete and report.schemas[0].vectors == 8 * each
        found = await upkeep_of(u.backend).inspect(deep=True)
        assert all(each.level in ("ok", "note") for each in found), found


SECRET = "xyzzyplugh"


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_forgotten_record_leaves_no_vector(tmp_path: Path, waiting: bool) -> None:
    for url in (f"sqlite:///{tmp_path}/a.db", f"jsonl:{tmp_path}/b"):
        embedder = Watched(32)
        async with dgent.open(url, embedder=embedder) as u:
            u.register(NOTE)
            for number in range(20):
                await u.remember({"body": f"text {number}"}, schema="note", id=f"n{number}")
            await u.remember({"body": f"the word is {SECRET}"}, schema="note", id="secret")
            await u.embedded()
            if waiting:
                await u.remember({"body": f"now it is {SECRET}{SECRET}"}, schema="note", id="secret")
            (row,) = await vector_rows(u, "secret")
            assert sum(row in raw for raw in files(tmp_path)) >= 1
            assert (await u.forget("secret")).erased
            assert await vector_rows(u, "secret") == []
            for raw in files(tmp_path):
                assert SECRET.encode() not in raw and row not in raw
            assert SECRET not in repr(await u.search(SECRET, mode="meaning"))
            assert (await u.embedding()).schemas[0].vectors == 20
        for raw in files(tmp_path):
            assert SECRET.encode() not in raw and row not in raw


def files(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def vector_rows(u: dgent.Universe, id: str) -> list[bytes]:
    """Return the stored vectors of a record, as bytes in the file."""
    from dgent.store.engine.kernel import Reading
    from dgent.store.engine.vector import open_vectors

    (rank,) = await u.backend.ranks([id])

    def work(reading: Reading) -> list[bytes]:
        reading.refresh()  # another thread's connection may have been opened before the declaration
        index = open_vectors(reading, reading.state("note"))
        assert index is not None
        key = -1 if rank is None else rank.record_key
        docs = reading.vector_docs(index.index, [key])
        return list(index.bodies([doc.slot for doc in docs.values()]).values())

    found: list[bytes] = await u.backend._read(work)  # type: ignore[attr-defined]
    return found
