"""Notices and activity: what others did, told to those who may see it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import dgent
from dgent.blocks import Library
from dgent.errors import InputError
from dgent.store.backend import Put
from tests.blocks.agents import Counting, Open, library, scout, scribe, u

__all__ = ["library", "scout", "scribe", "u"]


async def test_a_notice_has_who_and_what_since_one_last_looked(scout: Library, scribe: Library) -> None:
    await scout.share("persona", with_agent="scribe", permission="read_write")
    assert await scout.notices() == []
    theirs = await scribe.get("persona")
    await theirs.replace("short", "long", message="more room")
    [notice] = await scout.notices()
    assert (notice.owner, notice.label, notice.by) == ("scout", "persona", ("scribe",))
    assert (notice.since, notice.version, notice.changes[0].message) == (1, 2, "more room")
    assert "-I like short answers." in str(notice) and "+I like long answers." in str(notice)
    assert await scout.notices() == [notice]  # not marked: it is told again
    assert await scout.notices(mark=True) == [notice]
    assert await scout.notices() == []
    await theirs.append(" One.")
    await (await scout.get("persona")).append(" Two.")
    await theirs.append(" Three.")
    [notice] = await scout.notices(mark=True)
    assert (notice.since, notice.version) == (2, 5)
    assert [change.number for change in notice.changes] == [3, 5]


async def test_a_hundred_changed_blocks_need_no_more_reads_than_one(
    u: dgent.Universe, scout: Library, scribe: Library
) -> None:
    counting = Counting(u.backend)
    async with dgent.open(backend=counting, author="scout") as universe:
        reads = []
        for count in (1, 60):
            for n in range(count):
                await scout.create(f"{count}-{n}", owner="_constellation_", kind="core", text="x")
            lib = Library(universe, agent="scout")
            await lib.notices(mark=True)
            for n in range(count):
                await (await scribe.get(f"{count}-{n}")).append(" y")
            counting.asked = 0
            assert len(await lib.notices()) == count
            plain, counting.asked = counting.asked, 0
            assert (await lib.render()).count("is 2 now, by scribe") == count
            reads.append((plain, counting.asked))
            await lib.notices(mark=True)
        assert reads[0] == reads[1] and max(reads[1]) < 15


async def test_a_notice_survives_that_what_was_seen_is_compacted(scout: Library, scribe: Library) -> None:
    block = await scout.create("plan", owner="_constellation_", text="one")
    await scribe.notices(mark=True)
    for n in range(10):
        await block.append(f" {n}")
    await block.compact(keep=2)
    [notice] = [each for each in await scribe.notices() if each.label == "plan"]
    assert (notice.since, notice.diff.before) == (1, 0)
    assert "+one 0 1 2" in str(notice)


async def test_what_somebody_was_given_is_all_new_once(scout: Library, scribe: Library) -> None:
    await scout.share("persona", with_agent="scribe", permission="read_only")
    [notice] = await scribe.notices(mark=True)
    assert (notice.since, notice.version, notice.by) == (0, 1, ("scout",))
    assert "+I like short answers." in notice.diff.text
    assert await scribe.notices() == []
    await scout.unshare("persona", with_agent="scribe")
    await (await scout.get("persona")).append("!")
    assert await scribe.notices() == []


async def test_a_notice_reaches_over_folded_versions(scout: Library, scribe: Library) -> None:
    await scout.share("persona", with_agent="scribe", permission="append")
    theirs = await scribe.get("persona")
    assert [each.label for each in await scribe.notices(mark=True)] == ["persona"]
    for step in range(20):
        await theirs.append(f" {step}")
    await theirs._version_log.pack_versions(keep=3)
    [notice] = await scout.notices(mark=True)
    assert (notice.since, notice.version, len(notice.changes)) == (1, 21, 20)
    assert await scout.notices() == []
    await theirs._version_log.pack_versions(keep=1)
    await theirs.append(" end")
    assert [each.since for each in await scout.notices()] == [21]


async def test_a_structured_block_tells_by_path(library: Open, scribe: Library) -> None:
    scout = library("scout")
    todo = await scout.create("todo", document="list", owner="_constellation_")
    await todo.append("plan")
    assert len(await scribe.notices(mark=True)) == 1
    await todo.append("write")
    [notice] = await scribe.notices()
    assert [change.after for change in notice.diff.changes] == ["write"]


# -- activity -------------------------------------------------------------------------------------------


async def told(lib: Library, **options: object) -> list[tuple[str, str, str]]:
    found = await lib.activity(**options)  # type: ignore[arg-type]
    return [(each.by, each.what, each.label) for each in found]


async def test_activity_is_newest_first_and_only_what_one_may_see(scout: Library, scribe: Library) -> None:
    await scout.create("secret")
    assert await told(scribe) == []
    await scout.share("persona", with_agent="scribe", permission="append")
    theirs = await scribe.get("persona")
    await theirs.append("!")
    await theirs.checkpoint("first")
    await scribe.archive("a thing")
    await scout.pin("persona", False)
    seen = [
        ("scout", "unpin", "persona"),
        ("scribe", "checkpoint", "persona"),
        ("scribe", "append", "persona"),
        ("scout", "share", "persona"),
        ("scout", "create", "persona"),
    ]
    assert await told(scout) == [*seen[:-1], ("scout", "create", "secret"), seen[-1]]
    assert await told(scribe) == [seen[0], ("scribe", "archive", ""), *seen[1:]]
    assert await told(scout, limit=2) == seen[:2]
    await scout.unshare("persona", with_agent="scribe")
    assert await told(scribe) == [("scribe", "archive", "")]
    await scout.delete("persona")
    assert (await told(scout))[:2] == [("scout", "delete", "persona"), ("scout", "unshare", "persona")]


async def test_what_was_done_to_a_header_is_read_from_it(u: dgent.Universe, scout: Library) -> None:
    start = await u.seq()
    await scout.pin("persona", False)
    await scout.pin("persona")
    await scout.view("persona", 1, 2)
    await scout.retain("persona", 100)
    await scout.describe("persona", description="who I am")
    await scout.rename("persona", "self")
    await scout.delete("self")
    await scout.restore("self", to="me")
    owned = u.for_room("blocks")
    header = await owned.get((await scout.get("me")).id, raw=True)
    assert header is not None
    await owned.commit([Put(header.replace(data={**header.data, "pinned": False}))], note="rename it all")
    whats = [each.what for each in await scout.activity(start)]
    done = ["unpin", "pin", "view", "retain", "describe", "rename", "delete", "restore", "unpin"]
    assert whats == done[::-1]
    await u.compact(keep=0)
    assert {each.what for each in await scout.activity(start)} <= {*done, "change"}


async def test_activity_since_a_commit_or_a_time(u: dgent.Universe, scout: Library) -> None:
    block = await scout.get("persona")
    start, now = await u.seq(), datetime.now(UTC)
    await block.append("!")
    for since in (start, now):
        assert await told(scout, since=since) == [("scout", "append", "persona")]
    assert await told(scout, since=now + timedelta(hours=1)) == []
    for wrong in (
        {"since": "x"},
        {"since": datetime(2026, 1, 1)},
        {"since": -1},
        {"limit": 0},
        {"limit": 10**6},
    ):
        with pytest.raises(InputError):
            await told(scout, **wrong)


async def test_activity_knows_versions_that_were_folded(scout: Library) -> None:
    block = await scout.get("persona")
    for step in range(12):
        await block.append("x", by=f"writer{step}", message=f"step {step}")
    await block._version_log.pack_versions(keep=2)
    found = await scout.activity()
    assert [each.by for each in found[:12]] == [f"writer{step}" for step in range(11, -1, -1)]
    assert [each.message for each in found[:12]] == [f"step {step}" for step in range(11, -1, -1)]
    assert [each.version for each in found] == list(range(13, 0, -1))


async def test_activity_goes_back_as_far_as_history_is_kept(u: dgent.Universe, scout: Library) -> None:
    block = await scout.get("persona")
    await block.append("old")
    await u.compact(keep=datetime.now(UTC))
    await block.append("new")
    assert (await told(scout))[0] == ("scout", "append", "persona")
    assert len(await told(scout)) <= 2
