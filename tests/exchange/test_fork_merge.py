"""Merging a fork back: nothing is lost, nothing comes twice, and what clashes is kept on both sides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dgent
from dgent.blocks import Library
from dgent.blocks.document.document import Document
from dgent.blocks.errors import LimitExceeded
from dgent.blocks.history.log import VersionLog
from dgent.cupboard import Cupboard
from dgent.exchange.fork import ForkMerged, baseline, fork, merge, run
from tests.exchange.forks import Pair, fill, opened, state
from tests.soak import examples, times


async def forked(pair: Pair) -> Pair:
    await fill(pair.source)
    await fork(pair.source, pair.target)
    return pair


async def merged(pair: Pair) -> ForkMerged:
    """Merge: what was told before is what is done, and once more changes nothing."""
    told = await merge(pair.target, pair.source, dry_run=True)
    done = await merge(pair.target, pair.source)
    assert (told.added, told.changed, told.deleted, told.entries) == (
        done.added,
        done.changed,
        done.deleted,
        done.entries,
    )
    assert told.blocks == done.blocks and told.conflicts == done.conflicts
    seq = await pair.source.seq()
    again = await merge(pair.target, pair.source)
    assert again.empty and await pair.source.seq() == seq
    return done


def clashes(done: ForkMerged) -> list[tuple[str, str]]:
    return [(each.id, each.what) for each in done.conflicts]


# -- records ------------------------------------------------------------------------------------


async def test_records_three_ways(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        here, there = pair.source, pair.target
        await there.put(dgent.Datum("a", data={"n": 2}))  # only there
        await here.put(dgent.Datum("b", data={"n": 2}))  # only here
        for u, n in ((here, 2), (there, 3)):  # both
            await u.put(dgent.Datum("c", data={"n": n}, tags={"new"}))
        for u in (here, there):  # both the same
            await u.put(dgent.Datum("d", data={"n": 9}))
        await there.put(dgent.Datum("new", data={"n": 1}, author="zoe", content=b"bytes"))
        for u, n in ((here, 1), (there, 2)):
            await u.put(dgent.Datum("twin", data={"n": n}))
        done = await merged(pair)
        assert (done.added, done.changed, done.deleted) == (1, 1, 0)
        assert clashes(done) == [("c", "changed on both sides"), ("twin", "made on both sides")]
        assert [(await here.get(name)).data["n"] for name in ("a", "b", "c", "d", "twin")] == [2, 2, 2, 9, 1]
        kept = [await here.get(each.kept) for each in done.conflicts]
        assert [each.data["n"] for each in kept] == [3, 2] and kept[0].tags == {"new"}
        brought = await here.get("new")
        assert (brought.author, brought.content) == ("zoe", b"bytes")
        assert brought.created_at == (await there.get("new")).created_at


async def test_deletes_three_ways(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        here, there = pair.source, pair.target
        await there.delete("a")
        await there.delete("b")
        await here.put(dgent.Datum("b", data={"n": 2}))
        await here.delete("c")
        await there.put(dgent.Datum("c", data={"n": 3}))
        for u in (here, there):
            await u.delete("d")
        done = await merged(pair)
        assert done.deleted == 1
        assert clashes(done) == [
            ("b", "deleted in the fork, changed here"),
            ("c", "deleted here, changed in the fork"),
        ]
        found = [await here.get(name) for name in "abcd"]
        assert [each and each.data["n"] for each in found] == [None, 2, 3, None]


async def test_what_was_forgotten_stays_forgotten(tmp_path: Path) -> None:
    async with opened(tmp_path, "sqlite", "sqlite") as pair:
        await forked(pair)
        entry = (await pair.here.search("sky"))[0].id
        card = (await pair.here.get("tasks")).id
        await pair.source.forget("a")
        await pair.here.unarchive(entry, forget=True)
        await pair.source.for_room("blocks").forget(card)
        await pair.target.put(dgent.Datum("a", data={"n": 5}))
        await (await pair.there.get("tasks")).insert_item("more")
        done = await merge(pair.target, pair.source)
        assert done.empty and {each.schema for each in done.not_merged} == {"", "block.block"}
        assert [await pair.source.get(id) for id in ("a", entry, card)] == [None] * 3


async def test_what_cannot_be_read_is_not_taken_for_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        records = baseline.iterate_records

        async def damaged(u: dgent.Universe, seq: int) -> AsyncIterator[dgent.Datum]:
            async for each in records(u, seq):
                yield each.replace(problem="it is damaged") if each.id == "a" else each

        monkeypatch.setattr(baseline, "iterate_records", damaged)
        for _ in range(2):
            done = await merge(pair.target, pair.source)
            assert done.empty and [(each.records, each.why) for each in done.not_merged] == [
                (1, "it cannot be read in the fork")
            ]
        assert (await pair.source.get("a")).data == {"n": 1}


async def test_archival_entries_by_union(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        old = (await pair.there.search("sky"))[0].id
        await pair.there.archive("there alone")
        await pair.here.archive("here alone")
        await pair.there.unarchive(old)
        done = await merged(pair)
        assert (done.entries, done.deleted, done.conflicts) == (1, 0, [])
        assert [(each.schema, each.records) for each in done.not_merged] == [("block.entry", 1)]
        assert len(await pair.here.search("alone")) == 2 and len(await pair.here.search("sky")) == 1


async def test_cupboards_are_left_alone_and_told_of(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await Cupboard(pair.source).add("before")
        await forked(pair)
        await Cupboard(pair.target).add("after")
        seq = await pair.source.seq()
        for _ in range(2):  # it is told each time, because it is still to be done
            done = await merge(pair.target, pair.source)
            assert await pair.source.seq() == seq
            assert any(each.schema == "cupboard.crumb" and each.why for each in done.not_merged)
        assert [each.name for each in await Cupboard(pair.source).crumbs.fetch()] == ["before"]


async def test_shares_and_the_roster(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        await pair.there.agents.create("newcomer")
        await pair.there.share("tasks", with_agent="newcomer", permission="append")
        await pair.there.share("persona", with_agent="scribe", permission="admin")
        await pair.here.share("persona", with_agent="scribe", permission="read_only")
        done = await merged(pair)
        assert done.added == 2
        assert [each.theirs["permission"] for each in done.conflicts if each.theirs] == ["admin"]
        assert (await Library(pair.source, "scribe").get("persona")).permission == "read_only"
        assert (await Library(pair.source, "newcomer").get("tasks")).permission == "append"
        assert len(await pair.here.list_shares()) == 2


# -- blocks -------------------------------------------------------------------------------------


async def test_cards_field_by_field(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        await pair.there.describe("persona", description="theirs", limit=900)
        await pair.here.describe("persona", description="ours")
        await pair.there.pin("tasks", False)
        done = await merged(pair)
        persona = await pair.here.get("persona")
        assert (persona.description, persona.limit) == ("ours", 900)
        assert not (await pair.here.get("tasks")).pinned
        assert [(each.label, each.how) for each in done.blocks] == [("persona", "card"), ("tasks", "card")]
        assert [each.theirs for each in done.conflicts] == [{"description": "theirs"}]


async def test_labels_that_two_blocks_want(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        for lib, text in ((pair.here, "ours"), (pair.there, "theirs")):
            await lib.create("mood", text=text)
        await pair.there.rename("tasks", "todo")
        await pair.here.create("todo", text="another")
        done = await merged(pair)
        labels = {each.label: each for each in await pair.here.list()}
        assert set(labels) == {"persona", "mood", "mood-fork", "todo", "todo-fork"}
        assert [await labels[name].text() for name in ("mood", "mood-fork", "todo")] == [
            "ours",
            "theirs",
            "another",
        ]
        assert {each.kept for each in done.conflicts} == {"mood-fork", "todo-fork"}


async def test_deleted_blocks(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        for label in ("gone", "worked", "lost"):
            await pair.here.create(label, text=label)
        await fork(pair.source, pair.target)
        await pair.there.delete("gone")
        await pair.there.delete("worked")
        await (await pair.here.get("worked")).append(" on")
        await pair.here.delete("lost")
        await (await pair.there.get("lost")).append(" and found")
        done = await merged(pair)
        assert [each.what for each in done.conflicts] == [
            "deleted in the fork, changed here",
            "deleted here, changed in the fork",
        ]
        assert {each.label for each in await pair.here.list()} == {"worked", "lost"}
        assert await (await pair.here.get("lost")).text() == "lost and found"


async def test_more_than_the_limit_is_kept_and_flagged(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await pair.here.create("small", text="1234567890", limit=30)
        await fork(pair.source, pair.target)
        for lib in (pair.here, pair.there):
            await (await lib.get("small")).append(" fifteen letters")
        done = await merged(pair)
        assert [(each.size, each.limit, each.over_limit) for each in done.blocks] == [(42, 30, True)]
        small = await pair.here.get("small")
        assert small.over_limit and [each.over_limit for each in await pair.here.list()] == [True]
        with pytest.raises(LimitExceeded):
            await small.append("!")
        await small.replace("1234567890", "")
        assert small.over_limit and len(await small.text()) == 32
        await small.replace(" fifteen", "")
        assert not small.over_limit and not (await pair.here.get("small")).over_limit
        await small.append("!!")
        assert (await small.text()).count("letters") == 2


async def test_a_higher_limit_ends_it_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await pair.here.create("small", text="1234567890", limit=12)
        await fork(pair.source, pair.target)
        for lib in (pair.here, pair.there):
            await (await lib.get("small")).append("ab")
        await merged(pair)
        assert (await pair.here.get("small")).over_limit
        assert not (await pair.here.describe("small", limit=100)).over_limit


async def test_checkpoints_go_with_their_versions(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        theirs, ours = await pair.there.get("persona"), await pair.here.get("persona")
        for n in range(3):
            await theirs.append(f" there {n}")
            await ours.append(f" here {n}")
        await theirs.checkpoint("end")
        await merged(pair)
        assert await ours.checkpoints() == {"first": 2, "end": 8}
        await ours.append(" later")
        await theirs.append(" once more")
        await theirs.checkpoint("later")
        await merged(pair)
        assert await ours.checkpoints() == {"first": 2, "end": 8, "later": 10}
        assert "there 2" in str(await ours.at(8)) and "once more" not in str(await ours.at(8))


async def test_merged_versions_can_be_undone_and_looked_at(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        theirs, ours = await pair.there.get("persona"), await pair.here.get("persona")
        await theirs.replace("tea", "coffee")
        between = (await theirs.history())[0].at
        await ours.append(" Really.")
        await merged(pair)
        assert await ours.text() == "I like short answers. And coffee. Really."
        assert "tea" in str(await ours.at(time=between)), "it was not here at that time"
        await ours.undo()
        assert await ours.text() == "I like short answers. And tea. Really."
        await ours.redo()
        assert await ours.text() == "I like short answers. And coffee. Really."


async def test_long_histories_come_version_by_version(tmp_path: Path) -> None:
    async with opened(tmp_path, "memory", "sqlite") as pair:
        await forked(pair)
        theirs, ours = await pair.there.get("persona"), await pair.here.get("persona")
        for n in range(180):
            await theirs.append(f" {n}", message=f"step {n}")
        await ours.append(" here")
        done = await merged(pair)
        assert [each.versions for each in done.blocks] == [180]
        history = await ours.history()
        assert [each.message for each in history[:180]] == [f"step {n}" for n in reversed(range(180))]
        assert [each.number for each in history] == list(range(183, 0, -1))
        words = (await ours.text()).split()
        assert set(map(str, range(180))) <= set(words) and "here" in words
        await ours.append(" on")
        assert (await ours.history())[0].number == 184


async def test_every_kind_of_document(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        for kind in ("map", "list", "log", "tree", "counter"):
            await pair.here.create(kind, document=kind)
        await fork(pair.source, pair.target)
        for lib, name in ((pair.here, "here"), (pair.there, "there")):
            await (await lib.get("map")).set_field(name, 1)
            await (await lib.get("list")).insert_item(name)
            await (await lib.get("log")).append({"text": name})
            await (await lib.get("tree")).add_node({"name": name})
            await (await lib.get("counter")).increment(None, 2)
        await merged(pair)
        values = {block.label: await block.value() for block in await pair.here.list()}
        assert values["map"] == {"here": 1, "there": 1}
        assert sorted(values["list"]["items"]) == ["here", "there"]
        assert sorted(each["text"] for each in values["log"]["entries"]) == ["here", "there"]
        assert sorted(each["data"]["name"] for each in values["tree"]["nodes"]) == ["here", "there"]
        assert values["counter"] == {"count": 4}


# -- histories that were cut short --------------------------------------------------------------


async def cut_short(u: dgent.Universe, block: str) -> None:
    """Let go of a block's history but for its newest version: older ones, and how it came to be."""
    room = u.for_room("blocks")
    chain = VersionLog(room, block)
    await chain.refresh()
    async with chain.lock:
        await chain.pack_versions(keep=1)
    for page in await chain._packs.records():
        await room.delete(page.id)
    snapshot = await room.get(f"{block}/s")
    shallow = Document.load(snapshot.datum.content).state()
    await room.put(snapshot.datum.replace(content=shallow, rev=None, seq=None))


@pytest.mark.parametrize("kind", ["text", "list"])
@pytest.mark.parametrize("side", ["here", "there", "both"])
async def test_histories_that_were_cut_short(tmp_path: Path, side: str, kind: str) -> None:
    async with opened(tmp_path) as pair:
        first = {"text": "one\ntwo\nthree\n"} if kind == "text" else {"value": ["one", "two", "three"]}
        block = await pair.here.create("notes", document=kind, **first)
        await fork(pair.source, pair.target)
        for lib, name in ((pair.here, "here"), (pair.there, "there")):
            mine = await lib.get("notes")
            for n in range(3):
                if kind == "text":
                    await mine.append(f"{name} {n}\n")
                else:
                    await mine.insert_item(f"{name} {n}")
        for u, name in ((pair.source, "here"), (pair.target, "there")):
            if side in (name, "both"):
                await cut_short(u, block.id)
        done = await merged(pair)
        assert [each.how for each in done.blocks] != ["versions"] or side == "here"
        found = "\n".join([await each.text() for each in await pair.here.list()])
        for word in [f"{name} {n}" for name in ("here", "there") for n in range(3)]:
            assert word in found
        for each in await pair.here.list():
            await (each.append("on") if kind == "text" else each.insert_item("on"))
            assert "on" in await (await pair.here.get(each.label)).text()


async def test_what_was_redacted_here_does_not_come_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        ours = await pair.here.create("notes", text="before. ")
        await ours.append("the key is hunter2. ")
        await fork(pair.source, pair.target)
        await (await pair.there.get("notes")).append("in the fork. ")
        await ours.append("here. ")
        await ours.redact(2)
        done = await merged(pair)
        assert [(each.how, each.versions) for each in done.blocks] == [("versions", 1)]
        text = await ours.text()
        assert "hunter2" not in text and "in the fork. " in text and "here. " in text
        assert not await pair.here.search("hunter2")
        await ours.compact(keep=1)
        await (await pair.there.get("notes")).append("later. ")
        done = await merge(pair.target, pair.source)
        found = [await each.text() for each in await pair.here.list()]
        assert "hunter2" not in "".join(found)
        assert "later. " in "".join(found) or any("redacted" in each.why for each in done.not_merged)


async def test_what_was_redacted_in_the_fork_is_told_of(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        ours = await pair.here.create("notes", text="before. ")
        await ours.append("the key is hunter2. ")
        await fork(pair.source, pair.target)
        theirs = await pair.there.get("notes")
        await theirs.append("the code is 4711. ")
        await theirs.append("in the fork. ")
        await theirs.redact(2, 3)
        done = await merge(pair.target, pair.source)
        assert [each.versions for each in done.blocks] == [2]
        assert [each.why for each in done.not_merged] == [
            "what was redacted in the fork is still here: redact it here, too"
        ]
        text = await ours.text()
        assert "hunter2" in text and "4711" not in text and "in the fork" in text
        assert (await merge(pair.target, pair.source)).empty


@pytest.mark.parametrize("side", ["here", "there", "both"])
async def test_compacted_blocks_are_merged(tmp_path: Path, side: str) -> None:
    async with opened(tmp_path) as pair:
        ours = await pair.here.create("notes", text="one\ntwo\nthree\n")
        for n in range(3):
            await ours.append(f"first {n}\n")
        await fork(pair.source, pair.target)
        theirs = await pair.there.get("notes")
        for block, name in ((ours, "here"), (theirs, "there")):
            for n in range(3):
                await block.append(f"{name} {n}\n")
            if side in (name, "both"):
                await block.compact(keep=1)
        done = await merged(pair)
        found = "".join([await each.text() for each in await pair.here.list()])
        assert all(f"{name} {n}\n" in found for name in ("first", "here", "there") for n in range(3))
        assert [each.how for each in done.blocks] == ["beside" if side == "both" else "compared"]
        for each in await pair.here.list():
            await each.append("on")
            await each.undo()
            assert not (await each.text()).endswith("on")


# -- stopped, at once, at random ----------------------------------------------------------------


async def test_a_merge_that_was_stopped_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        await (await pair.there.get("persona")).append(" More.")
        await pair.there.create("mood", text="fine")
        await (await pair.there.get("mood")).checkpoint("start")
        for u, n in ((pair.source, 2), (pair.target, 3)):
            await u.put(dgent.Datum("a", data={"n": n}))
        await pair.there.archive("one")

        async def stop(*_: object) -> None:
            raise asyncio.CancelledError

        for place, name in (
            (run.BlockMerge, "merge"),
            (run, "renumber_checkpoints"),
            (baseline, "save"),
        ):
            with monkeypatch.context() as cut, pytest.raises(asyncio.CancelledError):
                cut.setattr(place, name, stop)
                await merge(pair.target, pair.source)
        before = await state(pair.source)
        done = await merge(pair.target, pair.source)
        assert await state(pair.source) == before
        assert (done.added, done.entries, done.blocks) == (0, 0, [])
        assert [each.id for each in done.conflicts] == ["a"], "both are there, and it is told again"
        assert (await merge(pair.target, pair.source)).empty
        assert (await (await pair.here.get("persona")).text()).count(" More.") == 1


async def test_others_write_while_it_is_merged(tmp_path: Path) -> None:
    async with opened(tmp_path, "sqlite", "sqlite") as pair:
        await forked(pair)
        theirs = await pair.there.get("persona")
        for n in range(300):
            await theirs.append(f" fork{n}")
            await pair.target.put(dgent.Datum(f"r{n}", data={"n": n}))
        ended = asyncio.Event()

        async def write(u: dgent.Universe, name: str) -> int:
            block, n = await Library(u, "scout").get("persona"), 0
            while not ended.is_set() and n < times(200):  # a slow machine would write without end
                n += 1
                await block.append(f" {name}{n}")
                await u.put(dgent.Datum("a", data={"n": n, "by": name}))
            return n

        writers = [
            asyncio.create_task(write(u, name)) for u, name in ((pair.source, "x"), (pair.target, "y"))
        ]
        await asyncio.sleep(0.05)
        for _ in range(2):
            await merge(pair.target, pair.source)
        ended.set()
        x, y = await asyncio.gather(*writers)
        await merge(pair.target, pair.source)
        words = (await (await pair.here.get("persona")).text()).split()
        for name, count in (("fork", 300), ("x", x), ("y", y)):
            first = 0 if name == "fork" else 1
            for n in range(first, first + count):
                assert words.count(f"{name}{n}") == 1
        assert await pair.source.count(dgent.Query(prefix="r", limit=None)) == 300
        assert (await merge(pair.target, pair.source)).empty


SIDES = st.lists(
    st.tuples(
        st.booleans(),  # in the fork
        st.sampled_from(["append", "insert", "put", "delete", "archive", "create", "undo"]),
        st.integers(0, 30),
    ),
    max_size=14,
)


async def act(pair: Pair, in_fork: bool, what: str, place: int, step: int) -> str:
    """Do something on one side; what must be found afterwards."""
    lib, u = (pair.there, pair.target) if in_fork else (pair.here, pair.source)
    word = f"<{'f' if in_fork else 's'}{step}>"
    block = await lib.get("persona")
    if what == "append":
        await block.append(word)
    elif what == "insert":
        before = ("I like", "short", "answers", "tea")[place % 4]
        await block.replace(before, word + before)
    elif what == "put":
        await u.put(dgent.Datum(f"k{place % 4}", data={"word": word}))
        return ""
    elif what == "delete":
        await u.delete(f"k{place % 4}")
        return ""
    elif what == "archive":
        await lib.archive(f"entry {word}")
        return ""
    elif what == "create":
        await lib.create(f"new{step}", text=word)
        return ""
    else:
        return ""
    return word


@settings(max_examples=examples(25), deadline=None)
@given(SIDES, st.sets(st.integers(0, 13), max_size=2))
def test_whatever_both_sides_insert_is_there(edits: list[Any], merges: set[int]) -> None:
    async def run() -> None:
        async with dgent.open("memory:", author="ann") as one, dgent.open("memory:", author="bob") as other:
            pair = Pair(one, other)
            await forked(pair)
            words = []
            for step, (in_fork, what, place) in enumerate(edits):
                words.append(await act(pair, in_fork, what, place, step))
                if step in merges:
                    await merge(other, one)
            await merge(other, one)
            text = await (await pair.here.get("persona")).text()
            for word in filter(None, words):
                assert text.count(word) == 1
            labels = {each.label for each in await pair.here.list()}
            assert {f"new{step}" for step, each in enumerate(edits) if each[1] == "create"} <= labels
            entries = sum(each[1] == "archive" for each in edits)
            assert len(await pair.here.search("entry", limit=50)) == entries
            before = await state(one)
            assert (await merge(other, one)).empty and await state(one) == before

    asyncio.run(run())


async def test_a_permission_that_was_taken_back_stays_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await fill(pair.source)
        await pair.here.groups.create("crew")
        await pair.here.groups.create("staff")
        await fork(pair.source, pair.target)
        await pair.here.unshare("persona", with_agent="scribe")
        await pair.here.groups.delete("crew")
        await pair.there.share("persona", with_agent="scribe", permission="admin")
        await pair.there.share("tasks", with_group="crew")
        await pair.there.share("tasks", with_group="staff")
        await pair.there.create("fresh", text="new")
        await pair.there.share("fresh", with_group="crew")
        await pair.there.groups.join("crew", "scribe")
        done = await merged(pair)
        assert clashes(done)[0][1] == "deleted here, changed in the fork"
        assert {each.schema: each.records for each in done.not_merged} == {
            "block.share": 2,
            "block.member": 1,
        }
        assert [(each.label, each.group) for each in await pair.here.list_shares()] == [("tasks", "staff")]


async def test_a_label_that_the_fork_gave_to_another_block(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        await pair.there.delete("tasks")
        await pair.there.create("tasks", text="another")
        await pair.there.rename("persona", "old")
        await pair.there.create("persona", text="a new one")
        done = await merged(pair)
        assert done.conflicts == []
        found = {each.label: await each.text() for each in await pair.here.list()}
        assert found["tasks"] == "another" and found["persona"] == "a new one"
        assert found["old"].startswith("I like")


async def test_two_merges_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, "sqlite", "sqlite") as pair:
        await forked(pair)
        theirs = await pair.there.get("persona")
        for n in range(20):
            await theirs.append(f" <{n}>")
        await pair.there.create("mood", text="fine")
        await pair.there.archive("one")
        await asyncio.gather(*(merge(pair.target, pair.source) for _ in range(3)))
        text = await (await pair.here.get("persona")).text()
        assert [text.count(f"<{n}>") for n in range(20)] == [1] * 20
        assert sorted(each.label for each in await pair.here.list()) == ["mood", "persona", "tasks"]
        assert len(await pair.here.search("one")) == 1
        assert (await merge(pair.target, pair.source)).empty
