"""Records of a newer version than this program: read raw, or through downgrades; never rewritten."""

from __future__ import annotations

from typing import Any

import pytest

import dgent
from dgent.errors import NewerRecord, QueryError, UnreadableRecord, UpgradeFailed
from tests.universe.conftest import Another
from tests.universe.marks import MARK, Mark, MarkV1, mark, old_mark

MARKS = dgent.Query(schema="witness.mark")


async def test_a_newer_record_is_raw_and_says_why(another: Another, u: dgent.Universe) -> None:
    newer = await u.put(old_mark(4))
    read = await u.get(newer.id)
    assert isinstance(read, dgent.Datum)
    assert read.replace(problem=None) == newer
    assert "version 4" in (read.problem or "")
    (found,) = await u.query(MARKS)
    assert found == read
    with pytest.warns(UnreadableRecord, match="version 4"):
        found = await u.recall(MARKS)
    assert found == [] and found.problems == [read]
    with pytest.raises(QueryError, match="mood"):
        await u.query(MARKS.replace(where={"mood": "glad"}))
    assert await (await another()).query(MARKS.replace(where={"mood": "glad"})) == [newer]


async def test_it_is_never_rewritten(u: dgent.Universe) -> None:
    newer = await u.put(old_mark(4, id="x"))
    seq = await u.seq()

    async def in_transaction() -> None:
        async with u.transaction() as tx:
            await tx.put(old_mark(3, id="x"))

    for work in (
        u.remember(mark(), id="x"),
        u.put(old_mark(3, id="x")),
        u.put_many([old_mark(3, id="y"), old_mark(2, id="x")]),
        in_transaction(),
    ):
        with pytest.raises(NewerRecord):
            await work
    report = await u.upgrade_all(Mark)
    assert (report.newer, report.upgraded, report.failed) == (1, 0, {})
    assert await u.seq() == seq
    assert await u.get("x", raw=True) == newer
    assert not await u.exists("y")


async def test_it_may_be_deleted_and_replaced_by_its_own_kind(u: dgent.Universe) -> None:
    newer = await u.put(old_mark(4, id="x"))
    tagged = await u.put(newer.with_tags("seen"))
    assert tagged.schema_version == 4
    assert await u.delete("x")
    await u.undo(await u.seq())
    assert (await u.get("x", raw=True)).data == newer.data
    assert (await u.remember(mark())).schema_version == 3


class TestDowngrades:
    """Older code that was given steps back keeps reading what newer code writes."""

    @pytest.fixture
    async def old(self, another: Another) -> dgent.Universe:
        def no_tags(data: dict[str, Any]) -> dict[str, Any]:
            if data["action"] == "stuck":
                raise ValueError("no way back")
            return {key: item for key, item in data.items() if key != "tags"}

        def no_principles(data: dict[str, Any]) -> dict[str, Any]:
            return {key: item for key, item in data.items() if key != "principles"}

        return await another(
            dgent.Schema(
                "witness.mark",
                version=1,
                contract=MarkV1,
                downgrades={2: no_tags, 3: no_principles},
                indexes=("author",),
            )
        )

    async def test_readable(self, u: dgent.Universe, old: dgent.Universe) -> None:
        kept = await u.remember(mark(), tags={"t"})
        read = await old.get(kept.id)
        assert (read.value, read.schema_version) == (MarkV1("ship", "tests pass", "scout"), 1)
        assert (read.meta.stored_version, read.meta.crystallized_from) == (3, None)
        assert await old.recall(MARKS.replace(where={"author": "scout"}, tags={"t"})) == [read]
        with pytest.raises(QueryError, match="tags"):
            await old.count(MARKS.replace(where={"tags": {"$exists": True}}))

    async def test_not_rewritable(self, u: dgent.Universe, old: dgent.Universe) -> None:
        kept = await u.remember(mark())
        read = await old.get(kept.id)
        with pytest.raises(NewerRecord):
            await old.store(read.replace(value=MarkV1("else", "r", "a")))
        with pytest.raises(NewerRecord):
            await old.remember(MarkV1("else", "r", "a"), id=kept.id)
        assert await u.get(kept.id) == kept

    async def test_a_step_back_that_fails(self, u: dgent.Universe, old: dgent.Universe) -> None:
        kept = await u.remember(mark("stuck"))
        with pytest.raises(UpgradeFailed, match="2 -> 1"):
            await old.get(kept.id)
        (found,) = await old.query(MARKS)
        assert "no way back" in found.problem

    async def test_one_version_too_far(self, u: dgent.Universe, old: dgent.Universe) -> None:
        kept = await u.put(old_mark(4))
        assert "version 4" in (await old.get(kept.id)).problem


async def test_an_older_program_still_finds_what_the_newer_one_wrote(
    u: dgent.Universe, another: Another
) -> None:
    kept = await u.remember(mark(author="ann"))
    old = await another(dgent.Schema("witness.mark", contract=MarkV1, indexes=("author",)))
    (found,) = await old.query(MARKS.replace(where={"author": "ann"}))
    assert isinstance(found, dgent.Datum)
    assert found.id == kept.id
    assert MARK.version == 3
