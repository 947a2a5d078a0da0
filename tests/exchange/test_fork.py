"""Forks: what is in them, where they say they come from, and what is left when they fail."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

import dgent
from dgent.blocks import Library
from dgent.blocks.errors import BlockNotFound, PermissionDenied
from dgent.cupboard import Cupboard
from dgent.errors import Conflict, InputError, NotFound
from dgent.exchange.fork import create, fork, merge, origin, status
from dgent.exchange.fork.origin import ORIGIN_ID
from tests.exchange.forks import fill, opened, pairs, state


@pytest.mark.parametrize(("source", "target"), pairs(0, 1))  # test_fork_pull.py has the others
async def test_there_and_back_on_any_pair_of_engines(tmp_path: Path, source: str, target: str) -> None:
    async with opened(tmp_path, source, target) as pair:
        await fill(pair.source)
        before = await state(pair.source)
        made = await fork(pair.source, pair.target, name="home")
        assert (made.scope, made.blocks, made.seq) == ("all", 3, await pair.source.seq())
        assert await state(pair.target) == before == await state(pair.source)
        told = await origin(pair.target)
        assert told is not None and (told.fork, told.seq, told.name) == (made.fork, made.seq, "home")
        assert await origin(pair.source) is None
        assert [each.rev for each in await pair.target.history("a")] == [1]

        theirs = await pair.there.get("persona")
        await theirs.append(" In the fork.", by="scribe", message="tried it")
        ours = await pair.here.get("persona")
        await ours.append(" At home.")
        await pair.there.archive("it is blue now")
        await pair.target.put(dgent.Datum("a", data={"n": 2}))
        await pair.target.delete("b")
        done = await merge(pair.target, pair.source)
        assert (done.added, done.changed, done.deleted, done.entries) == (1, 1, 1, 1)
        assert [(each.label, each.how, each.versions) for each in done.blocks] == [("persona", "versions", 1)]
        text = await ours.text()
        assert text.startswith("I like short answers. And tea.")
        assert " In the fork." in text and " At home." in text
        newest, *_ = await ours.history()
        origin_of_it, *_ = await theirs.history()
        assert (newest.by, newest.op, newest.message) == ("scribe", "append", "tried it")
        assert newest.at == origin_of_it.at
        assert await pair.source.get("b") is None and (await pair.source.get("a")).data == {"n": 2}

        after, seq = await state(pair.source), await pair.source.seq()
        again = await merge(pair.target, pair.source)
        assert again.empty and await pair.source.seq() == seq and await state(pair.source) == after


async def test_core_has_core_blocks_with_their_history_and_the_roster(tmp_path: Path) -> None:
    async with opened(tmp_path, "sqlite") as pair:
        await fill(pair.source)
        await pair.here.groups.create("crew")
        await pair.here.groups.join("crew", "scribe", role="observer")
        made = await fork(pair.source, pair.target, scope="core")
        assert made.blocks == 1
        persona = await pair.there.get("persona")
        assert [each.message for each in await persona.history()] == ["a taste", ""]
        assert await persona.checkpoints() == {"first": 2}
        assert [each.name for each in await pair.there.agents.list()] == ["scout", "scribe"]
        assert [each.agent for each in (await pair.there.groups.get("crew")).members] == ["scribe"]
        assert (await Library(pair.target, "scribe").get("persona")).permission == "read_write"
        with pytest.raises(BlockNotFound):
            await pair.there.get("tasks")
        assert await pair.target.get("a") is None
        assert await pair.there.search("sky") == []
        await persona.append(" Still.")
        assert (await merge(pair.target, pair.source)).blocks[0].versions == 1
        assert {each.label for each in await pair.here.list()} == {"persona", "tasks"}


@pytest.mark.parametrize("by_time", [False, True])
async def test_since_has_what_was_written_since(tmp_path: Path, by_time: bool) -> None:
    async with opened(tmp_path, "memory", "sqlite") as pair:
        await fill(pair.source)
        await asyncio.sleep(0.01)
        since = datetime.now(UTC) if by_time else await pair.source.seq()
        await asyncio.sleep(0.01)
        tasks = await pair.here.get("tasks")
        await tasks.insert_item("stay up")
        await pair.source.put(dgent.Datum("c", data={"n": 2}))
        await pair.here.archive("late")
        made = await fork(pair.source, pair.target, scope="since", since=since)
        assert made.blocks == 1
        copy = await pair.there.get("tasks")
        assert (await copy.value())["items"] == ["wake up", "stay up"]
        assert len(await copy.history()) == 2
        assert (await pair.target.get("c")).data == {"n": 2} and await pair.target.get("a") is None
        assert len(await pair.there.search("late")) == 1 and not await pair.there.search("sky")
        await pair.target.delete("c")
        done = await merge(pair.target, pair.source)
        assert (done.deleted, done.added, done.blocks) == (1, 0, [])
        assert await pair.source.get("a") is not None and len(await pair.here.search("sky")) == 1


async def test_since_leaves_other_rooms_whole_where_they_are(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await Cupboard(pair.source).add("look")
        made = await fork(pair.source, pair.target, scope="since", since=0)
        assert made.left_out > 0
        assert not [each for each in await pair.target.schemas() if each.owner == "cupboard" and each.records]


async def test_nothing_is_written_to_the_source(tmp_path: Path) -> None:
    async with opened(tmp_path, "sqlite", "sqlite") as pair:
        await fill(pair.source)
        schemas = {each.name for each in await pair.source.schemas()}
        seq, before = await pair.source.seq(), await state(pair.source)
        await fork(pair.source, pair.target)
        await (await pair.there.get("persona")).append(" More.")
        await status(pair.target, pair.source)
        await merge(pair.target, pair.source, dry_run=True)
        assert (await pair.source.seq(), await state(pair.source)) == (seq, before)
        assert {each.name for each in await pair.source.schemas()} == schemas


async def test_what_cannot_be_forked(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await fill(pair.source)
        with pytest.raises(PermissionDenied):
            await fork(pair.source, pair.target, trust="friend")
        for given in (
            {"scope": "some"},
            {"scope": "since"},
            {"since": 1},
            {"scope": "since", "since": "now"},
        ):
            with pytest.raises(InputError):
                await fork(pair.source, pair.target, **given)
        await pair.target.put(dgent.Datum("own"))
        for scope in ("all", "core"):
            with pytest.raises(Conflict):
                await fork(pair.source, pair.target, scope=scope)
        with pytest.raises(NotFound):
            await merge(pair.target, pair.source)
        assert await origin(pair.target) is None


@pytest.mark.parametrize("scope", ["all", "core"])
async def test_a_fork_that_was_cut_short_is_refused(
    tmp_path: Path, scope: create.Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, "sqlite", "sqlite") as pair:
        await fill(pair.source)

        async def stop(*_: object) -> None:
            raise asyncio.CancelledError

        with monkeypatch.context() as cut, pytest.raises(asyncio.CancelledError):
            cut.setattr(create.baseline, "save", stop)
            await fork(pair.source, pair.target, scope=scope)
        with pytest.raises((NotFound, Conflict)):
            await merge(pair.target, pair.source)
        with pytest.raises((NotFound, Conflict)):
            await status(pair.target, pair.source)
        if scope == "core":
            with pytest.raises(Conflict):
                await fork(pair.source, pair.target, scope=scope)
        else:  # the log is replayed from where that was stopped
            assert (await fork(pair.source, pair.target)).blocks == 3
            assert (await merge(pair.target, pair.source)).empty


async def test_a_fork_goes_back_only_to_its_source(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair, dgent.open("memory:") as other:
        await fill(pair.source)
        await fork(pair.source, pair.target, name="home")
        for wrong in (other, pair.target):
            with pytest.raises(Conflict, match="home"):
                await merge(pair.target, wrong)
        with pytest.raises(PermissionDenied):
            await merge(pair.target, pair.source, trust="friend")
        with pytest.raises(NotFound):
            await merge(pair.source, pair.target)


async def test_a_fork_of_a_fork_goes_back_step_by_step(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair, dgent.open("memory:") as inner:
        await fill(pair.source)
        await fork(pair.source, pair.target)
        await (await pair.there.get("persona")).append(" Outer.")
        await fork(pair.target, inner)
        await (await Library(inner, "scout").get("persona")).append(" Inner.")
        with pytest.raises(Conflict):
            await merge(inner, pair.source)
        assert (await merge(inner, pair.target)).blocks[0].versions == 1
        assert (await merge(pair.target, pair.source)).blocks[0].versions == 2
        assert (await (await pair.here.get("persona")).text()).endswith(" Outer. Inner.")


@pytest.mark.parametrize("scope", ["all", "core", "since"])
async def test_others_write_while_a_fork_is_made(tmp_path: Path, scope: create.Scope) -> None:
    async with opened(tmp_path, "sqlite", "sqlite") as pair:
        await fill(pair.source)
        ended = asyncio.Event()

        async def write(label: str) -> int:
            block, n = await pair.here.create(label, kind="core", limit=10**6), 0
            while not ended.is_set() or n < 200:
                n += 1
                await block.append(f"{n} ")
            return n

        writers = [asyncio.create_task(write(label)) for label in ("left", "right")]
        await asyncio.sleep(0.3)
        since = 0 if scope == "since" else None
        made = await fork(pair.source, pair.target, scope=scope, since=since)
        ended.set()
        counts = dict(zip(("left", "right"), await asyncio.gather(*writers), strict=True))
        for label, count in counts.items():
            copy = await pair.there.get(label)
            words = (await copy.text()).split()
            assert words == [str(n) for n in range(1, len(words) + 1)] and 0 < len(words) <= count
            assert len(await copy.history()) == len(words) + 1
            await copy.append("fork ")
        assert made.seq <= await pair.source.seq()
        done = await merge(pair.target, pair.source)
        assert [each.versions for each in done.blocks] == [1, 1]
        for label, count in counts.items():
            words = (await (await pair.here.get(label)).text()).split()
            assert sorted(words) == sorted([*(str(n) for n in range(1, count + 1)), "fork"])


async def test_status_says_how_far_apart_they_are(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await fill(pair.source)
        made = await fork(pair.source, pair.target, name="home")
        near = await status(pair.target, pair.source)
        assert (near.source_commits, near.merge.empty, near.name) == (0, True, "home")
        await pair.source.put(dgent.Datum("a", data={"n": 3}))
        await pair.target.put(dgent.Datum("a", data={"n": 4}))
        far = await status(pair.target, pair.source)
        assert (far.source_commits, far.fork_point) == (1, made.seq)
        assert [each.what for each in far.merge.conflicts] == ["changed on both sides"]
        assert far.merge.dry_run and (await pair.source.get("a")).data == {"n": 3}


async def test_an_origin_that_is_no_origin_is_corrupt(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await fork(pair.source, pair.target)
        found = await pair.target.get(ORIGIN_ID, raw=True)
        await pair.target.put(replace_data(found, {"fork": 3}))
        with pytest.raises(dgent.errors.Corrupt):
            await merge(pair.target, pair.source)


def replace_data(datum: dgent.Datum, data: dict[str, object]) -> dgent.Datum:
    return datum.replace(data=data, rev=None, seq=None, updated_at=None)
