"""Texts of records become vectors behind the commit: each once, none lost, whatever the embedder does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

import dgent
from dgent import Schema
from dgent.embedder import HashedEmbedder
from dgent.embedder.embedder import Embedder
from dgent.errors import EmbedderFailed, InputError, SchemaError, Unsupported
from dgent.store.upkeep import upkeep_of
from dgent.universe import embedding
from tests.embedding.embedders import Watched
from tests.universe.conftest import engine, url

__all__ = ["engine", "url"]

NOTE = Schema("note", text=("body",), embed=("title", "body"))
Open = Callable[[Embedder | None], AbstractAsyncContextManager[dgent.Universe]]


@pytest.fixture
async def open_with(url: str) -> AsyncIterator[Open]:
    """Opens the same store again and again; one in memory stays until the end."""
    stay = dgent.open(url)
    await stay.open()

    @asynccontextmanager
    async def opening(embedder: Embedder | None) -> AsyncIterator[dgent.Universe]:
        if url == "memory:":
            made = dgent.Universe(stay.backend, embedder=embedder)
            made._life.loop = asyncio.get_running_loop()
            try:
                made.register(NOTE)
                yield made
            finally:
                if made._embedding is not None:
                    await made._embedding.cancel()
                await made._builds.cancel()
        else:
            async with dgent.open(url, embedder=embedder) as made:
                made.register(NOTE)
                yield made

    yield opening
    await stay.close()


async def remember(u: dgent.Universe, id: str, body: str, title: str = "") -> None:
    await u.remember({"title": title, "body": body}, schema="note", id=id)


async def settle(u: dgent.Universe, wanted: Callable[[embedding.EmbeddingReport], bool]) -> None:
    """Wait for the background to get somewhere."""
    until = time.monotonic() + 20
    while not wanted(await u.embedding()):
        assert time.monotonic() < until, await u.embedding()
        await asyncio.sleep(0.02)


def done(report: embedding.EmbeddingReport) -> bool:
    return bool(report.schemas) and report.complete


async def test_texts_are_embedded_in_the_background_once(open_with: Open) -> None:
    embedder = Watched()
    async with open_with(embedder) as u:
        await remember(u, "a", "ten miles", "Running")
        await remember(u, "b", "onions")
        await remember(u, "c", "")
        await settle(u, done)
        assert sorted(embedder.texts) == ["Running\nten miles", "onions"]
        await u.remember({"title": "", "body": "onions", "other": 1}, schema="note", id="b")
        await remember(u, "c", "soup")
        await settle(u, done)
        assert sorted(embedder.texts) == ["Running\nten miles", "onions", "soup"], (
            "the same text counts as done"
        )
        report = await u.embedding()
        assert [(each.name, each.vectors) for each in report.schemas] == [("note", 3)]
        await remember(u, "a", "", "")
        await u.delete("b")
        await u.embedded()
        assert [(each.vectors, each.waiting) for each in (await u.embedding()).schemas] == [(1, 0)]
        if u.backend.name != "memory":
            assert all(each.level == "ok" for each in await upkeep_of(u.backend).inspect(deep=True))


async def test_nothing_is_embedded_again_when_the_store_is_opened_again(open_with: Open) -> None:
    for number in range(3):
        embedder = Watched()
        async with open_with(embedder) as u:
            await remember(u, f"n{number}", f"text {number}")
            await settle(u, done)
        assert embedder.texts == [f"text {number}"]


async def test_old_records_are_embedded_too(open_with: Open) -> None:
    async with open_with(None) as u:
        for number in range(100):
            await remember(u, f"n{number:03}", f"text {number}")
        assert (await u.embedding()).schemas == [] and (await u.embedding()).model is None
        with pytest.raises(Unsupported, match="no embedder"):
            await u.embedded()
    embedder = Watched()
    seen: list[tuple[int, int | None]] = []
    async with open_with(embedder) as u:
        await u.embedded(progress=lambda done, total: seen.append((done, total)))
        await settle(u, done)
    assert sorted(embedder.texts) == sorted(f"text {number}" for number in range(100))
    assert seen and seen[-1][0] == seen[-1][1]


async def test_a_program_without_an_embedder_leaves_texts_waiting(open_with: Open) -> None:
    async with open_with(Watched()) as u:
        await remember(u, "a", "one")
        await settle(u, done)
    async with open_with(None) as u:
        await remember(u, "b", "two")
        report = await u.embedding()
        assert (report.waiting, report.schemas[0].spec.model) == (1, "watched")
        assert [hit.id for hit in await u.search("two")] == ["b"]
    embedder = Watched()
    async with open_with(embedder) as u:
        await settle(u, done)
    assert embedder.texts == ["two"]


@pytest.mark.parametrize("other", [Watched(64, "another"), Watched(96)])
async def test_another_model_embeds_all_again_and_they_never_mix(open_with: Open, other: Watched) -> None:
    other.texts.clear()
    first = Watched()
    async with open_with(first) as u:
        for number in range(5):
            await remember(u, f"n{number}", f"text {number}")
        await settle(u, done)
        async with open_with(other) as changed:
            await settle(changed, lambda report: done(report) and report.replaced == [])
            assert sorted(other.texts) == [f"text {number}" for number in range(5)]
            (schema,) = (await changed.embedding()).schemas
            assert (schema.spec.model, schema.spec.dim, schema.vectors) == (other.name, other.dim, 5)
            hits = await changed.search("text 3", mode="meaning")
            assert hits[0].id == "n3"
        # The first program sees that its vectors were replaced, and compares nothing with others.
        assert (await u.embedding()).replaced == ["note"]
        hits = await u.search("text 3")
        assert hits.legs == ("text",) and f"those of {other.name}" in hits.note
        await remember(u, "late", "text late")
        await asyncio.sleep(0.2)
        assert "text late" not in first.texts
        with pytest.raises(Unsupported, match=other.name):
            await u.search("text", mode="meaning")


async def test_an_embedder_that_fails_loses_nothing_and_blocks_nothing(
    open_with: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "FIRST_PAUSE_S", 0.05)
    embedder = Watched()
    embedder.error = RuntimeError("out of memory")
    async with open_with(embedder) as u:
        for number in range(3):
            await remember(u, f"n{number}", f"text {number}")
        await settle(u, lambda report: "out of memory" in report.failing)
        assert (await u.stats()).details["embedding"].failing
        with pytest.raises(EmbedderFailed, match="out of memory"):
            await u.embedded()
        hits = await u.search("text 2")
        assert hits[0].id == "n2" and hits.legs == ("text",) and "out of memory" in hits.note
        embedder.error = None
        await settle(u, lambda report: done(report) and not report.failing)
        assert sorted(embedder.texts) == [f"text {number}" for number in range(3)]
        assert (await u.search("text 2")).legs == ("text", "meaning")


@pytest.mark.parametrize("nonsense", [[], [[1.0]], [[float("nan")] * 64], "vectors", [[1.0] * 63]])
async def test_an_embedder_that_answers_nonsense_stores_nothing(open_with: Open, nonsense: object) -> None:
    embedder = Watched()
    embedder.answer = nonsense
    async with open_with(embedder) as u:
        await remember(u, "a", "one")
        await settle(u, lambda report: "watched" in report.failing)
        report = await u.embedding()
        assert (report.waiting, report.schemas[0].vectors) == (1, 0)


async def test_a_text_that_is_refused_holds_up_no_other(open_with: Open) -> None:
    embedder = Watched()
    embedder.refused = {"text 3", "text 40"}
    async with open_with(embedder) as u:
        for number in range(50):
            await remember(u, f"n{number}", f"text {number}")
        await settle(u, lambda report: bool(report.schemas) and report.schemas[0].vectors == 48)
        report = await u.embedding()
        assert (report.waiting, report.refused) == (2, 2)
        embedder.refused = set()
        await remember(u, "n3", "text three")
        await u.embedded()
        assert done(await u.embedding()) and (await u.embedding()).schemas[0].vectors == 50


async def test_an_embedder_that_hangs_delays_neither_writes_nor_closing(
    open_with: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "QUERY_S", 0.2)
    embedder = Watched()
    async with open_with(embedder) as u:
        await remember(u, "a", "one")
        await settle(u, done)
        embedder.go.clear()
        embedder.entered.clear()
        began = time.monotonic()
        await remember(u, "b", "two")
        while not embedder.entered.is_set():
            await asyncio.sleep(0.01)
        hits = await u.search("two")
        assert [hit.id for hit in hits] == ["b"] and "did not answer" in hits.note
        await remember(u, "c", "three")
    assert time.monotonic() - began < 20
    embedder.go.set()
    again = Watched()
    async with open_with(again) as u:
        await settle(u, done)
    assert sorted(again.texts) == ["three", "two"]


async def test_an_embedder_whose_dimension_an_answer_tells(open_with: Open) -> None:
    embedder = Watched(32)
    embedder.dim = 0
    async with open_with(embedder) as u:
        await remember(u, "a", "one")
        await settle(u, done)
        assert (await u.embedding()).schemas[0].spec.dim == 32
        assert (await u.search("one", mode="meaning"))[0].id == "a"


async def test_an_embedder_that_changes_in_the_middle(
    open_with: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same name with other vectors: those of another dimension are refused."""
    monkeypatch.setattr(embedding, "FIRST_PAUSE_S", 0.05)
    embedder = Watched(64)
    async with open_with(embedder) as u:
        await remember(u, "a", "one")
        await settle(u, done)
        embedder._inner = HashedEmbedder(96)
        await remember(u, "b", "two")
        await settle(u, lambda report: "96 numbers, not 64" in report.failing)
        assert (await u.embedding()).schemas[0].vectors == 1
        hits = await u.search("two")
        assert [hit.id for hit in hits] == ["b"] and "96 numbers" in hits.note


async def test_versions_that_are_replaced_meanwhile(open_with: Open) -> None:
    embedder = Watched()
    async with open_with(embedder) as u:
        await remember(u, "a", "one")
        await settle(u, done)
        embedder.go.clear()
        embedder.entered.clear()
        await remember(u, "b", "two")
        while not embedder.entered.is_set():
            await asyncio.sleep(0.01)
        await remember(u, "b", "three")
        embedder.go.set()
        await settle(u, done)
        assert embedder.texts[-1] == "three"
        assert (await u.search("three", mode="meaning"))[0].score == 1.0
        assert (await u.embedding()).schemas[0].vectors == 2


async def test_a_newer_version_of_the_schema_embeds_nothing_again(open_with: Open) -> None:
    first = Watched()
    async with open_with(first) as u:
        for number in range(10):
            await remember(u, f"n{number}", f"text {number}")
        await settle(u, done)
    again = Watched()
    async with open_with(None) as plain:
        u = dgent.Universe(plain.backend, embedder=again)
        u._life.loop = asyncio.get_running_loop()
        u.register(
            Schema(
                "note",
                2,
                text=("body",),
                embed=("title", "body"),
                migrations={1: lambda data: data | {"new": True}},
            )
        )
        await u.remember({"title": "", "body": "text 10"}, schema="note", id="n10")
        await settle(u, lambda report: done(report) and report.schemas[0].vectors == 11)
        assert again.texts == ["text 10"]
        await u._embedding.cancel()  # type: ignore[union-attr]


async def test_undo_and_old_versions(open_with: Open) -> None:
    async with open_with(Watched()) as u:
        await remember(u, "a", "onion soup")
        await remember(u, "b", "running shoes")
        await remember(u, "a", "bicycle")
        seq = await u.seq()
        await u.embedded()
        assert (await u.search("bicycle", mode="meaning"))[0].id == "a"
        await u.undo(seq)
        await u.embedded()
        assert (await u.search("onion soup", mode="meaning"))[0].id == "a"
        hits = await u.search("bicycle", as_of=seq)
        assert hits[0].id == "a" and hits.legs == ("text",)
        with pytest.raises(Unsupported, match="look back"):
            await u.search("bicycle", as_of=seq, mode="meaning")


def test_what_may_be_declared() -> None:
    assert Schema("x", embed=["a", "b.c"]).embed == ("a", "b.c")  # type: ignore[arg-type]
    for wrong in ("a", 5, ("a", "a"), ("",)):
        with pytest.raises(SchemaError) as raised:
            Schema("x", embed=wrong)  # type: ignore[arg-type]
        assert raised.value.details["field"] == "embed"


async def test_what_may_be_an_embedder() -> None:
    for wrong in ("openai", 5, object()):
        with pytest.raises(InputError) as raised:
            dgent.open("memory:", embedder=wrong)  # type: ignore[arg-type]
        assert raised.value.details["field"] == "embedder"
    async with dgent.open("memory:", embedder="hashed") as u:
        assert (await u.embedding()).model == "hashed-1024"
    async with dgent.open("memory:") as u:
        assert (await u.embedding()).model is None
