"""Copying a universe to another: history and all, resumable, proven."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import clock
from dgent.blocks import Library
from dgent.exchange import copy as copying
from dgent.exchange.copy import MARK, copy, mirror
from tests.contract.columns import SETTINGS
from tests.soak import first


@dataclass(frozen=True)
class Note:
    text: str
    n: int = 0


NOTE = dgent.Schema("note", contract=Note, indexes=("n",))


@dataclass(frozen=True)
class Beat:
    n: int = 0


BEAT = dgent.Schema("beat", contract=Beat, history="none", feed=False)
PAIRS = [("memory", "sqlite"), ("sqlite", "memory"), ("sqlite", "postgres"), ("postgres", "jsonl")]
PAIRS += first([("sqlite", "sqlite"), ("memory", "memory")], 0)


@pytest.fixture(params=PAIRS, ids="-".join)
async def pair(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[dgent.Universe, dgent.Universe]]:
    monkeypatch.setattr(copying, "BATCH", 100)  # so that few records take several
    folders = [tmp_path / name for name in ("source", "target")]
    for folder in folders:
        folder.mkdir()
    places = [SETTINGS[kind][0].url(folder) for kind, folder in zip(request.param, folders, strict=True)]
    async with AsyncExitStack() as stack:
        source, target = [
            await stack.enter_async_context(dgent.open(place, author="ann")) for place in places
        ]
        source.register(NOTE, BEAT)
        yield source, target


async def fill(u: dgent.Universe) -> None:
    first = await u.remember(Note("one", 1), id="a", tags={"t"}, content=b"bytes", note="the first")
    await u.remember(Note("one more", 2), id="a", tags={"t"})
    await u.remember(Note("caused", 3), id="b", parent=first, source="mail", author="bob")
    await u.remember(Beat(7), id="beat")
    await u.put_many([dgent.Datum(id=f"m{n}", data={"n": n, "deep": [{"x": None}]}) for n in range(250)])
    await u.delete("m3")
    await u.undo(2)


async def state(u: dgent.Universe) -> dict[str, tuple[object, ...]]:
    found = {}
    async for datum in u.iterate(dgent.Query(limit=None), raw=True):
        if datum.schema != MARK.name:
            found[datum.id] = (
                datum.data,
                datum.tags,
                datum.author,
                datum.content,
                datum.created_at,
                datum.parent_id,
            )
    return found


async def test_everything_is_there(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    await fill(source)
    done = await copy(source, target)
    assert done.seq == await source.seq() and done.records == 252
    assert await state(target) == await state(source)
    ours, theirs = await source.history("a"), await target.history("a")
    assert [(v.rev, v.op, v.author, v.note, v.datum.data) for v in theirs if v.datum] == [
        (v.rev, v.op, v.author, v.note, v.datum.data) for v in ours if v.datum
    ]
    assert await target.get("m3", raw=True) is None and len(await target.history("m3")) == 2


async def test_commits_keep_their_time(pair: tuple[dgent.Universe, dgent.Universe], monkeypatch: Any) -> None:
    source, target = pair
    now = clock.now_us() - 10**12  # days ago
    monkeypatch.setattr(clock, "now_us", lambda: now)
    await fill(source)
    now += 10**9
    await source.remember(Note("later"), id="later")
    times = [(change.at, change.author, change.note) for change in await source.changes(0)]
    moment = times[0][0]
    now += 10**11
    await copy(source, target)
    copied = [each for each in await target.changes(0) if each.author != "system"]
    assert [(change.at, change.author, change.note) for change in copied] == times
    own = [each for each in await target.changes(0) if each.author == "system"]
    assert all(each.note and each.note.startswith("copied") for each in own), "what the copy adds says so"
    assert [v.at for v in await target.history("a")] == [v.at for v in await source.history("a")]
    then = [await u.get("a", as_of=moment, raw=True) for u in pair]
    assert then[0].data == then[1].data


async def test_commits_keep_their_time_where_history_begins_late(
    pair: tuple[dgent.Universe, dgent.Universe], monkeypatch: Any
) -> None:
    source, target = pair
    now = clock.now_us() - 10**12
    monkeypatch.setattr(clock, "now_us", lambda: now)
    for n in range(5):
        now += 10**9
        await source.remember(Note("same", n), id="a")
    await source.compact(2)
    kept = [(v.at, v.datum.data) for v in await source.history("a")]
    now += 10**11
    await copy(source, target)
    assert [(v.at, v.datum.data) for v in await target.history("a")][: len(kept) - 1] == kept[:-1]


async def test_a_record_that_went_back_to_an_older_version(
    pair: tuple[dgent.Universe, dgent.Universe],
) -> None:
    """Undo may put a record back to an older schema version; a copy of that is no downgrade by mistake."""
    source, target = pair
    await source.put(dgent.Datum(id="x", schema="thing", schema_version=1, data={"n": 1}))
    await source.put(dgent.Datum(id="x", schema="thing", schema_version=2, data={"n": 2}))
    await source.undo(await source.seq())
    await copy(source, target)
    assert await state(target) == await state(source)
    assert [v.datum.schema_version for v in await target.history("x")] == [1, 2, 1]


async def test_only_what_is_new_the_second_time(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    await fill(source)
    first = await copy(source, target)
    before = await target.seq()
    assert (await copy(source, target)).commits == 0
    assert await target.seq() == before, "nothing to do writes nothing"
    await source.remember(Note("later", 9), id="late")
    await source.delete("b")
    await source.remember(Beat(8), id="beat")
    await source.delete("beat")
    second = await copy(source, target)
    assert (second.commits, second.records) == (2, first.records - 1)
    assert await state(target) == await state(source)


async def test_stopped_anywhere_it_goes_on(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    for n in range(60):
        await source.remember(Note(f"n{n}", n), id=f"x{n % 7}")
    for stop in (1, 5, 23):
        seen = 0

        def halt(done: int, _total: int | None, stop: int = stop) -> None:
            nonlocal seen
            seen = done
            if done >= stop:
                raise KeyboardInterrupt

        copying.ProgressReporter.at, kept = (lambda self, done: halt(done, None)), copying.ProgressReporter.at  # type: ignore[method-assign]
        try:
            with pytest.raises(KeyboardInterrupt):
                await copy(source, target)
        finally:
            copying.ProgressReporter.at = kept  # type: ignore[method-assign]
        assert seen == stop
    await copy(source, target)
    assert await state(target) == await state(source)
    assert [v.rev for v in await target.history("x0")] == [v.rev for v in await source.history("x0")]


async def test_blocks_from_where_history_begins(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    block = await Library(source, "scout").create("persona", limit=10**6)
    for half in range(2):
        for n in range(100 + 100 * half):
            await block.append(f"{n} ")
        if not half:
            await source.compact(datetime.now(UTC))  # what is folded after this has no older version
    await copy(source, target)
    assert await state(target) == await state(source)
    assert await (await Library(target, "scout").get("persona")).text() == await block.text()


async def test_from_where_history_begins(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    await fill(source)
    await source.compact(0)
    await source.remember(Note("after", 5), id="c")
    await copy(source, target)
    assert await state(target) == await state(source)


async def test_a_target_of_its_own_is_refused(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    await fill(source)
    await target.put(dgent.Datum(id="mine"))
    with pytest.raises(dgent.Conflict):
        await copy(source, target)
    assert await target.count() == 1
    with pytest.raises(dgent.InputError):
        await copy(source, source)


async def test_the_copy_of_another_is_refused(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    await fill(source)
    await copy(source, target)
    async with dgent.open("memory:") as other:
        await other.put(dgent.Datum(id="x"))
        with pytest.raises(dgent.Conflict):
            await copy(other, target)
    assert await state(target) == await state(source)


async def test_a_copy_that_somebody_wrote_to_is_left_alone(
    pair: tuple[dgent.Universe, dgent.Universe],
) -> None:
    source, target = pair
    await fill(source)
    await copy(source, target)
    await target.forget("m7")
    await source.forget("m7")
    await copy(source, target)
    await target.put(dgent.Datum(id="mine", data={"n": 1}))
    with pytest.raises(dgent.Conflict, match="ann wrote to the copy"):
        await copy(source, target)
    assert (await target.get("mine", raw=True)).data == {"n": 1}


async def test_two_copies_at_once_do_nothing_twice(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    for n in range(40):
        await source.remember(Note(f"n{n}", n), id="one")
    ended = await asyncio.gather(copy(source, target), copy(source, target), return_exceptions=True)
    assert all(isinstance(each, copying.Copied | dgent.Conflict) for each in ended), ended
    await copy(source, target)
    assert [v.rev for v in await target.history("one")] == list(range(40, 0, -1))


async def test_a_mirror_follows(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    await source.remember(Note("first"), id="a")
    following = mirror(source, target)
    assert await anext(following) == 1
    await source.remember(Note("second"), id="a")
    await source.put(dgent.Datum(id="odd", schema="note", schema_version=1, data={"text": 3}))  # no Note
    assert [await asyncio.wait_for(anext(following), 10) for _ in range(2)] == [2, 3]
    assert await state(target) == await state(source)
    assert {each.id for each in await target.query(dgent.Query(), raw=True)} >= {"a", "odd"}
    await source.delete("a")
    await source.delete("odd")
    assert [await asyncio.wait_for(anext(following), 10) for _ in range(2)] == [4, 5]
    assert await target.get("a", raw=True) is None
    await following.aclose()  # type: ignore[attr-defined]
    await source.remember(Note("third"), id="b")
    await copy(source, target)
    assert await state(target) == await state(source)


async def test_what_a_room_owns_is_copied(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair

    @dataclass(frozen=True)
    class Crumb:
        name: str

    owned = dgent.Schema("cupboard.crumb", contract=Crumb, owner="cupboard")
    room = source.for_room("cupboard")
    room.register(owned)
    await room.remember(Crumb("x"), id="crumb")
    target.for_room("cupboard").register(owned)
    await target.schemas()
    await copy(source, target)
    await room.delete("crumb")
    await copy(source, target)
    assert await target.get("crumb", raw=True) is None and len(await target.history("crumb")) == 2


async def test_killed_while_copying(tmp_path: Path) -> None:
    source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    async with dgent.open(source, durability="relaxed") as u:
        for n in range(800):
            await u.put(dgent.Datum(id=f"x{n % 50}", data={"n": n}))
    program = "import sys; from dgent.doors.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "--url", source, "store", "copy", target]
    killed = 0
    for wait_s in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await asyncio.sleep(wait_s)
        killed += process.poll() is None
        process.kill()
        process.wait()
    print(f"\nkilled while copying: {killed} of 6 were still at work")
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    assert b"both hold 50 records" in done.stdout
    async with dgent.open(source) as old, dgent.open(target) as new:
        assert await state(new) == await state(old)
        for n in range(50):
            assert [v.rev for v in await new.history(f"x{n}")] == list(range(16, 0, -1))


async def test_a_record_without_history_that_changes_meanwhile(tmp_path: Path) -> None:
    """Its version of the moment of reading is gone, so that the copy looks again."""
    async with (
        dgent.open(f"sqlite:///{tmp_path}/a.db", durability="relaxed") as source,
        dgent.open("memory:") as target,
    ):
        source.register(BEAT)
        await source.put_many([dgent.Datum(id=f"m{n}") for n in range(1500)])
        await source.remember(Beat(0), id="beat")
        beats = 0
        real = target.backend.get_many

        async def meanwhile(*args: Any, **rest: Any) -> Any:
            nonlocal beats
            if beats < 3:
                beats += 1
                await source.remember(Beat(beats), id="beat")
            return await real(*args, **rest)

        target.backend.get_many = meanwhile  # type: ignore[method-assign]
        done = await copy(source, target)
        assert beats == 3 and done.records == 1501
        assert (await target.get("beat", raw=True)).data == {"n": 3}
