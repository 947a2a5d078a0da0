"""What a store says about itself."""

from __future__ import annotations

import dgent
from dgent.config.secret import mask
from tests.universe.conftest import Another
from tests.universe.marks import MARK_V1, MarkV1, mark


async def test_stats(u: dgent.Universe, url: str) -> None:
    await u.remember(mark())
    await u.remember(mark("two"))
    await u.put(dgent.Datum())
    stats = await u.stats()
    assert (stats.engine, stats.records, stats.seq, stats.first_seq) == (u.backend.name, 3, 3, 1)
    if url != "memory:":
        assert stats.size_bytes > 0
        place = url.removeprefix("sqlite:///").removeprefix("jsonl:")
        assert stats.place == (mask(url) if url.startswith("postgresql:") else place)
        assert stats.details["durability"] == "full"


async def test_schemas(u: dgent.Universe, another: Another) -> None:
    old = await another(MARK_V1)
    await old.remember(MarkV1("a", "b", "c"))
    await u.remember(mark())
    await u.indexed()
    by_name = {stats.name: stats for stats in await u.schemas()}
    marks = by_name["witness.mark"]
    assert (marks.records, marks.index_version, marks.versions) == (2, 3, (1, 3))
    assert marks.indexes == ("author", "principles.0")
    assert (marks.building, marks.lagging, marks.owner) == ((), 0, None)


async def test_an_empty_store(u: dgent.Universe) -> None:
    stats = await u.stats()
    assert (stats.records, stats.seq) == (0, 0)
    assert await u.count() == 0
    assert await u.query(dgent.Query()) == []
    assert await u.changes(0) == []
