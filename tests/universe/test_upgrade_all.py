"""Rewriting every old record: a dry run, in batches, stopped and gone on with, never the same one twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import dgent
from dgent.errors import NotFound, UnreadableRecord
from dgent.universe.upgrade import BATCH
from tests.universe.marks import Mark, mark, old_mark

MARKS = dgent.Query(schema="witness.mark", limit=None)


@pytest.fixture
async def old(u: dgent.Universe) -> list[dgent.Datum]:
    """Some of everything."""
    batch = [old_mark(1, f"a{n}", id=f"r{n}") for n in range(6)]
    batch += [old_mark(2), old_mark(3), old_mark(4), old_mark(1, "unlucky", id="unlucky")]
    return await u.put_many(batch)


async def test_a_dry_run_changes_nothing(u: dgent.Universe, old: list[dgent.Datum]) -> None:
    seq = await u.seq()
    report = await u.upgrade_all(Mark, dry_run=True)
    assert (report.seen, report.upgraded, report.current, report.newer) == (10, 7, 1, 1)
    assert list(report.failed) == ["unlucky"]
    assert await u.seq() == seq
    assert await u.versions(Mark) == {1: 7, 2: 1, 3: 1, 4: 1}


async def test_everything_that_can_be_is_rewritten(u: dgent.Universe, old: list[dgent.Datum]) -> None:
    with pytest.warns(UnreadableRecord):
        before = {c.id: c.value for c in await u.recall(MARKS)}
    report = await u.upgrade_all("witness.mark")
    assert (report.schema, report.version) == ("witness.mark", 3)
    assert (report.seen, report.upgraded, report.current, report.newer) == (10, 7, 1, 1)
    assert "no tags for the unlucky" in report.failed["unlucky"]
    assert await u.versions(Mark) == {1: 1, 3: 8, 4: 1}
    after = await u.recall(MARKS)
    assert {c.id: c.value for c in after} == before
    assert all(c.meta.crystallized_from is None for c in after)
    assert await u.get("unlucky", raw=True) == old[-1]
    assert (await u.history("r0"))[1].datum == old[0], "the old version is in the history"
    assert (await u.changes(old[0].seq))[0].kind == "upgrade"

    again = await u.upgrade_all(Mark)
    assert (again.upgraded, again.current, len(again.failed)) == (0, 8, 1)


async def test_progress_and_batches(u: dgent.Universe) -> None:
    await u.put_many([old_mark(1) for _ in range(2 * BATCH + 7)])
    seq = await u.seq()
    seen: list[tuple[int, int]] = []
    report = await u.upgrade_all(Mark, progress=lambda done, total: seen.append((done, total)))
    total = 2 * BATCH + 7
    assert seen == [(BATCH, total), (2 * BATCH, total), (total, total)]
    assert report.upgraded == total
    assert await u.seq() == seq + 3, "one commit a batch"


async def test_stopped_in_the_middle_and_gone_on_with(u: dgent.Universe) -> None:
    total = 2 * BATCH + 7
    await u.put_many([old_mark(1) for _ in range(total)])

    def stop(done: int, _total: int) -> None:
        asyncio.current_task().cancel()

    task = asyncio.create_task(u.upgrade_all(Mark, progress=stop))
    with pytest.raises(asyncio.CancelledError):
        await task
    stopped = await u.versions(Mark)
    assert stopped == {1: BATCH + 7, 3: BATCH}
    report = await u.upgrade_all(Mark)
    assert (report.upgraded, report.current) == (BATCH + 7, BATCH)
    assert await u.versions(Mark) == {3: total}
    assert {len(await u.history(c.id)) for c in (await u.recall(MARKS))[::100]} == {2}


async def test_a_record_changed_meanwhile_is_left_to_its_writer(u: dgent.Universe) -> None:
    stored = await u.put_many([old_mark(1, id=f"r{n}") for n in range(4)])
    plain_commit = u.backend.commit

    async def faster(commit: Any, view: Any) -> Any:
        u.backend.commit = plain_commit
        await u.put(stored[1].with_tags("faster"))
        await u.delete("r2")
        return await plain_commit(commit, view)

    u.backend.commit = faster
    report = await u.upgrade_all(Mark)
    assert (report.upgraded, report.changed_meanwhile) == (2, 2)
    assert (await u.get("r1")).tags == {"faster"}
    assert await u.get("r2") is None
    assert (await u.upgrade_all(Mark)).upgraded == 1


async def test_a_step_that_makes_what_cannot_be_stored(u: dgent.Universe) -> None:
    @dataclass(frozen=True)
    class Odd:
        a: str

    def odd(data: dict[str, Any]) -> dict[str, Any]:
        return {"a": "\ud800" if data["a"] == "bad" else data["a"]}

    u.register(dgent.Schema("test.odd", version=2, contract=Odd, migrations={1: odd}))
    await u.put_many(
        dgent.Datum(id=a, data={"a": a}, schema="test.odd", schema_version=1) for a in ("fine", "bad", "good")
    )
    report = await u.upgrade_all(Odd)
    assert report.upgraded == 2
    assert list(report.failed) == ["bad"]


async def test_an_unknown_schema(u: dgent.Universe) -> None:
    with pytest.raises(NotFound):
        await u.upgrade_all("no.such")
    assert (await u.upgrade_all(Mark)).seen == 0
    await u.remember(mark())
    assert (await u.upgrade_all(Mark)).current == 1
