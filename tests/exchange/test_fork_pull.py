"""Pulling: a fork catches up with its home or with another fork, and what clashes is decided."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import dgent
from dgent.blocks import Library
from dgent.cupboard import Cupboard
from dgent.errors import Conflict, InputError, NotFound
from dgent.exchange.fork import ForkClash, ForkMerged, baseline, fork, merge, pull, run
from dgent.exchange.fork.resolve import Choice
from dgent.universe.gate import Principal
from tests.exchange.forks import Pair, fill, opened, pairs, state


async def forked(pair: Pair, **how: object) -> Pair:
    await fill(pair.source)
    await fork(pair.source, pair.target, **how)  # type: ignore[arg-type]
    return pair


async def pulled(pair: Pair, **how: object) -> ForkMerged:
    """Pull: the dry run says the same, home is only read, and once more changes nothing."""
    before, seq = await state(pair.source), await pair.source.seq()
    told = await pull(pair.target, pair.source, dry_run=True, **how)  # type: ignore[arg-type]
    done = await pull(pair.target, pair.source, **how)  # type: ignore[arg-type]
    assert (told.added, told.changed, told.deleted) == (done.added, done.changed, done.deleted)
    assert told.blocks == done.blocks and told.conflicts == done.conflicts
    assert await state(pair.source) == before and await pair.source.seq() == seq
    again = await pull(pair.target, pair.source, **how)  # type: ignore[arg-type]
    assert again.empty, again
    return done


async def text(lib: Library, label: str) -> str:
    return await (await lib.get(label)).text()


async def numbers(u: dgent.Universe, names: str) -> list[int | None]:
    found = [await u.get(name) for name in names]
    return [each and each.data["n"] for each in found]


# -- from home ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), pairs(2, 3))  # test_fork.py has the others
async def test_a_fork_catches_up_on_any_pair_of_engines(tmp_path: Path, source: str, target: str) -> None:
    async with opened(tmp_path, source, target) as pair:
        await forked(pair)
        await (await pair.here.get("persona")).append(" At home.", by="scribe", message="seen")
        await (await pair.there.get("persona")).append(" In the fork.")
        await (await pair.here.get("tasks")).insert_item("go")
        await pair.here.create("mood", text="fine")
        await pair.here.archive("it is blue now")
        await pair.source.put(dgent.Datum("a", data={"n": 2}))
        await pair.source.delete("b")
        await pair.target.put(dgent.Datum("c", data={"n": 3}))
        done = await pulled(pair)
        assert (done.added, done.changed, done.deleted, done.entries) == (1, 1, 1, 1)
        assert {each.label: (each.how, each.versions) for each in done.blocks} == {
            "mood": ("new", 1),
            "persona": ("versions", 1),
            "tasks": ("versions", 1),
        }
        assert not done.conflicts
        assert await numbers(pair.target, "abcd") == [2, None, 3, 1]
        said = await text(pair.there, "persona")
        assert " At home." in said and " In the fork." in said and await text(pair.there, "mood") == "fine"
        newest, *_ = await (await pair.there.get("persona")).history()
        assert (newest.by, newest.message) == ("scribe", "seen")
        assert len(await pair.there.search("blue")) == 1

        back = await merge(pair.target, pair.source)  # what came from home does not go back
        assert [(each.label, each.versions) for each in back.blocks] == [("persona", 1)]
        assert (back.added, back.changed, back.deleted, back.conflicts) == (0, 1, 0, [])
        assert await text(pair.here, "persona") == said
        assert (await pulled(pair)).empty, "and does not come again"


async def test_to_and_fro_many_times(tmp_path: Path) -> None:
    """No false conflict, nothing twice: each side changes in turn, over pulls and merges."""
    async with opened(tmp_path) as pair:
        await forked(pair)
        for step in range(4):
            await pair.source.put(dgent.Datum("a", data={"n": 10 + step}))
            await (await pair.here.get("persona")).append(f" home{step}")
            done = await pulled(pair)
            assert done.changed == 1 and not done.conflicts
            await pair.target.put(dgent.Datum("a", data={"n": 20 + step}))
            await (await pair.there.get("persona")).append(f" fork{step}")
            if step % 2:
                back = await merge(pair.target, pair.source)
                assert back.changed == 1 and not back.conflicts
            else:  # changed here and not merged: home's next change clashes, and was decided
                await pair.source.put(dgent.Datum("a", data={"n": 30 + step}))
                decided = await pulled(pair, conflicts="mine")
                assert [each.id for each in decided.conflicts] == ["a"]
                back = await merge(pair.target, pair.source)
                assert back.changed == 1 and not back.conflicts, "it stays decided"
            assert await numbers(pair.source, "a") == [20 + step]
        said = await text(pair.here, "persona")
        assert said == await text(pair.there, "persona")
        assert all(said.count(f" {side}{step}") == 1 for side in ("home", "fork") for step in range(4))


@pytest.mark.parametrize(
    ("choice", "here"),
    [("both", [3, 3, 5, None]), ("theirs", [2, None, 5, None]), ("mine", [3, 3, None, None])],
)
async def test_records_by_choice(tmp_path: Path, choice: Choice, here: list[int | None]) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        home, away = pair.source, pair.target
        for u, n in ((home, 2), (away, 3)):
            await u.put(dgent.Datum("a", data={"n": n}))
        await home.delete("b")
        await away.put(dgent.Datum("b", data={"n": 3}))
        await home.put(dgent.Datum("c", data={"n": 5}))
        for u in (home, away):
            await u.delete("d")
        await away.delete("c")
        done = await pulled(pair, conflicts=choice)
        assert [(each.id, each.what, each.choice) for each in done.conflicts] == [
            ("a", "changed on both sides", choice),
            ("b", "deleted at home, changed here", choice),
            ("c", "deleted here, changed at home", choice),
        ]
        assert await numbers(away, "abcd") == here
        kept = done.conflicts[0].kept
        assert ((await away.get(kept)).data if kept else None) == (None if choice == "mine" else {"n": 2})
        back = await merge(away, home)
        assert not back.conflicts, "the fork decided"
        assert await numbers(home, "abcd") == here, "and home agrees"


@pytest.mark.parametrize("choice", ["both", "theirs", "mine"])
async def test_blocks_by_choice(tmp_path: Path, choice: Choice) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        await (await pair.here.get("persona")).append(" Home.")
        await (await pair.there.get("persona")).append(" Fork.")
        await pair.here.describe("persona", description="theirs")
        await pair.there.describe("persona", description="mine")
        await (await pair.here.get("tasks")).insert_item("only home edits this")
        done = await pulled(pair, conflicts=choice)
        persona = await pair.there.get("persona")
        start = "I like short answers. And tea."
        said = await persona.text()
        if choice == "both":
            assert sorted(said.removeprefix(start).split()) == ["Fork.", "Home."]
        else:
            assert said == start + (" Home." if choice == "theirs" else " Fork.")
            assert ("edited on both sides", choice) in [(each.what, each.choice) for each in done.conflicts]
        assert persona.description == ("theirs" if choice == "theirs" else "mine")
        assert "only home edits this" in await text(pair.there, "tasks"), "no conflict, no choice"
        messages = [each.op for each in await persona.history()]
        assert messages.count("append") == 3, "the versions of both sides stay"
        await merge(pair.target, pair.source)
        assert await text(pair.here, "persona") == said


async def test_mine_is_about_what_changed_since_the_last_pull(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        for lib, said in ((pair.here, " Home."), (pair.there, " Fork.")):
            await (await lib.get("persona")).append(said)
        await pulled(pair)
        await (await pair.here.get("persona")).append(" Later.")
        done = await pulled(pair, conflicts="mine")
        assert not done.conflicts, "the fork did not edit it since"
        said = await text(pair.there, "persona")
        assert all(word in said for word in (" Home.", " Fork.", " Later."))


async def test_asked_one_by_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        for u, n in ((pair.source, 2), (pair.target, 3)):
            for name in "abc":
                await u.put(dgent.Datum(name, data={"n": n}))
        for lib, said in ((pair.here, " Home."), (pair.there, " Fork.")):
            await (await lib.get("persona")).append(said)
        asked: list[str] = []

        async def ask(clash: ForkClash) -> str:
            asked.append(clash.id)
            return {"a": "theirs", "b": "mine"}.get(clash.id, "open")

        done = await pull(pair.target, pair.source, conflicts="ask", ask=ask)
        assert sorted(asked)[-3:] == ["a", "b", "c"] and len(asked) == 4
        assert await numbers(pair.target, "abc") == [2, 3, 3]
        assert sum(each.records for each in done.not_merged) == 2
        assert (await text(pair.there, "persona")).endswith("tea. Fork."), "left as it is"
        again = await pull(pair.target, pair.source, conflicts="ask")  # nobody to ask: open, and told again
        assert [each.choice for each in again.conflicts] == ["open"] * 2
        final = await pull(pair.target, pair.source, conflicts="theirs")
        assert len(final.conflicts) == 2 and await numbers(pair.target, "c") == [2]
        assert (await text(pair.there, "persona")).endswith("tea. Home.")

        async def shrug(_: ForkClash) -> str:
            return "dunno"

        for u, n in ((pair.source, 7), (pair.target, 8)):
            await u.put(dgent.Datum("a", data={"n": n}))
        with pytest.raises(InputError, match="'dunno' is not a valid answer"):
            await pull(pair.target, pair.source, conflicts="ask", ask=shrug)
        with pytest.raises(InputError, match="valid choice"):
            await pull(pair.target, pair.source, conflicts="yours")  # type: ignore[arg-type]


async def test_deleted_blocks_by_choice(tmp_path: Path) -> None:
    for number, (choice, kept) in enumerate({"both": True, "theirs": False, "mine": True}.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with opened(folder) as pair:
            await forked(pair)
            await pair.here.delete("tasks")
            await (await pair.there.get("tasks")).insert_item("changed here")
            done = await pulled(pair, conflicts=choice)
            assert [each.what for each in done.conflicts] == ["deleted at home, changed here"]
            assert ("tasks" in [each.label for each in await pair.there.list()]) is kept


# -- a part -------------------------------------------------------------------------------------


async def test_by_labels_and_agents(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await pair.here.create("projects/x/notes", text="n")
        await forked(pair)
        scribe = Library(pair.source, "scribe")
        for lib, label in ((pair.here, "persona"), (pair.here, "projects/x/notes"), (scribe, "notes")):
            await (await lib.get(label)).append(" more")
        await pair.here.create("projects/x/plan", text="p")
        await pair.here.archive("scout says blue")
        await scribe.archive("scribe says blue")
        await pair.source.put(dgent.Datum("a", data={"n": 2}))
        await (await pair.here.get("persona")).checkpoint("home")

        done = await pulled(pair, labels=["projects/"])
        assert [each.label for each in done.blocks] == ["projects/x/notes", "projects/x/plan"]
        assert (done.added, done.changed) == (0, 0)
        done = await pulled(pair, agents=["scribe"])
        assert [each.label for each in done.blocks] == ["notes"] and (done.entries, done.changed) == (1, 0)
        assert not (await text(pair.there, "persona")).endswith("more")
        with pytest.raises(NotFound, match="'nothing'"):
            await pull(pair.target, pair.source, labels=["nothing"])
        with pytest.raises(InputError, match="expected a list for 'labels'"):
            await pull(pair.target, pair.source, labels="persona")

        done = await pulled(pair)  # the rest is still to come, all of it
        assert [each.label for each in done.blocks] == ["persona"]
        assert (done.entries, done.changed, done.added) == (1, 1, 2)
        assert await numbers(pair.target, "a") == [2]


async def test_a_part_is_merged_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        for label in ("persona", "tasks"):
            block = await pair.there.get(label)
            await (block.append(" more") if label == "persona" else block.insert_item("more"))
        await pair.target.put(dgent.Datum("a", data={"n": 2}))
        done = await merge(pair.target, pair.source, labels=["persona"])
        assert [each.label for each in done.blocks] == ["persona"] and done.changed == 0
        done = await merge(pair.target, pair.source)
        assert [each.label for each in done.blocks] == ["tasks"] and done.changed == 1


@pytest.mark.parametrize("scope", ["core", "since"])
async def test_a_fork_of_a_part_stays_one(tmp_path: Path, scope: str) -> None:
    async with opened(tmp_path) as pair:
        await fill(pair.source)
        since = None if scope == "core" else await pair.source.seq()
        await (await pair.here.get("persona")).append(" Since.")
        await fork(pair.source, pair.target, scope=scope, since=since)  # type: ignore[arg-type]
        await (await pair.here.get("persona")).append(" More.")
        await pair.here.create("heart", text="core", kind="core")
        await pair.source.put(dgent.Datum("new", data={"n": 1}))
        done = await pulled(pair)
        assert [each.label for each in done.blocks] == ["heart", "persona"]
        assert (await pair.target.get("new") is not None) is (scope == "since")
        assert await pair.target.get("a") is None, "it was not in the fork, and did not change"


# -- from another fork --------------------------------------------------------------------------


async def test_between_forks_of_one_home(tmp_path: Path) -> None:
    async with opened(tmp_path, "sqlite", "memory") as pair, dgent.open("memory:", author="cy") as other:
        await forked(pair)
        await pair.source.put(dgent.Datum("d", data={"n": 4}))  # between the two forks
        await (await pair.here.get("persona")).append(" Between.")
        await fork(pair.source, other)
        sibling = Pair(other, pair.target)  # from the later one into the earlier one
        await other.put(dgent.Datum("a", data={"n": 2}))
        await other.delete("b")
        for u, n in ((other, 5), (pair.target, 6)):
            await u.put(dgent.Datum("c", data={"n": n}))
        await (await sibling.here.get("persona")).append(" Other.")
        await (await sibling.there.get("persona")).append(" Own.")
        await sibling.here.create("mood", text="fine")
        done = await pulled(sibling)
        assert [(each.id, each.what) for each in done.conflicts] == [("c", "changed on both sides")]
        assert await numbers(pair.target, "abcd") == [2, None, 6, 4]
        said = await text(sibling.there, "persona")
        assert all(said.count(word) == 1 for word in (" Between.", " Other.", " Own."))

        back = await pulled(Pair(pair.target, other))  # and the other way round
        assert [each.id for each in back.conflicts] == ["c"]
        assert await text(sibling.here, "persona") == said
        assert await numbers(other, "abcd") == [2, None, 5, 4]

        await merge(pair.target, pair.source)
        await merge(other, pair.source)
        final = await text(pair.here, "persona")
        assert final == said and await text(pair.here, "mood") == "fine"
        assert await numbers(pair.source, "abd") == [2, None, 4]


async def test_an_older_fork_does_not_bring_old_things_back(tmp_path: Path) -> None:
    async with opened(tmp_path, "sqlite") as pair, dgent.open("memory:") as newer:
        await forked(pair)
        await pair.source.put(dgent.Datum("a", data={"n": 2}))
        await pair.source.delete("b")
        await fork(pair.source, newer)
        assert (await pulled(Pair(pair.target, newer))).empty
        assert await numbers(newer, "ab") == [2, None]


async def test_a_fork_of_a_part_deletes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, "sqlite") as pair, dgent.open("memory:") as core:
        await forked(pair)
        await fork(pair.source, core, scope="core")
        await (await Library(core, "scout").get("persona")).append(" Core.")
        done = await pulled(Pair(core, pair.target))
        assert [each.label for each in done.blocks] == ["persona"] and done.deleted == 0
        assert await numbers(pair.target, "abcd") == [1, 1, 1, 1]


async def test_who_may_pull_from_whom(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair, dgent.open("memory:") as stranger, dgent.open("memory:") as inner:
        await forked(pair)
        with pytest.raises(Conflict, match="neither the home of this fork nor a fork of it"):
            await pull(pair.target, stranger)
        with pytest.raises(Conflict, match="from itself"):
            await pull(pair.target, pair.target)
        with pytest.raises(NotFound, match="not a fork"):
            await pull(pair.source, pair.target)
        with pytest.raises(dgent.Denied):
            await pull(pair.target, pair.source, trust="friend")
        await fork(pair.target, inner)
        with pytest.raises(Conflict):
            await pull(inner, pair.source)  # step by step, as merges go
        await (await pair.there.get("persona")).append(" Outer.")
        assert [each.label for each in (await pull(inner, pair.target)).blocks] == ["persona"]


async def test_permissions_do_not_come_back(tmp_path: Path) -> None:
    """A share that the fork took back stays so, unless theirs is asked for."""
    async with opened(tmp_path) as pair:
        await forked(pair)
        await pair.there.unshare("persona", with_agent="scribe")
        await pair.here.share("persona", with_agent="scribe", permission="admin")
        done = await pulled(pair)
        assert [each.what for each in done.conflicts] == ["deleted here, changed at home"]
        assert not await pair.there.list_shares()


async def test_a_base_is_for_nobody_else(tmp_path: Path) -> None:
    """It has the headers of everybody's blocks."""
    async with opened(tmp_path) as pair:
        await forked(pair)
        await pull(pair.target, pair.source)
        assert await pair.target.count(schema="dgent.fork.pulled") == 1
        friend = pair.target.acting(Principal("scribe", "friend"))
        assert await friend.count(schema="dgent.fork.pulled") == 0


async def test_what_the_cupboard_has_is_told_of(tmp_path: Path) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        await Cupboard(pair.source).add("a crumb")
        done = await pull(pair.target, pair.source)
        assert done.empty and "cupboard.crumb" in {each.schema for each in done.not_merged}


async def test_home_was_restored_since(tmp_path: Path) -> None:
    """A base that home does not have any more is not believed: the histories are compared."""
    async with opened(tmp_path, "sqlite", "memory") as pair:
        await forked(pair)
        base, _ = await baseline.load(pair.target)
        await baseline.save(pair.target, base, "00:999999:")
        await pair.source.put(dgent.Datum("a", data={"n": 2}))
        await (await pair.here.get("persona")).append(" Home.")
        done = await pull(pair.target, pair.source)
        assert done.changed == 1 and [each.label for each in done.blocks] == ["persona"]
        assert (await pull(pair.target, pair.source)).empty


async def test_stopped_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as pair:
        await forked(pair)
        await (await pair.here.get("persona")).append(" More.")
        for u, n in ((pair.source, 2), (pair.target, 3)):
            await u.put(dgent.Datum("a", data={"n": n}))

        async def stop(*_: object) -> None:
            raise asyncio.CancelledError

        for place, name in (
            (run.BlockMerge, "merge"),
            (run, "renumber_checkpoints"),
            (baseline, "save_pulled"),
            (baseline, "save"),
        ):
            with monkeypatch.context() as cut, pytest.raises(asyncio.CancelledError):
                cut.setattr(place, name, stop)
                await pull(pair.target, pair.source)
        before = await state(pair.target)
        done = await pull(pair.target, pair.source)
        assert await state(pair.target) == before and [each.id for each in done.conflicts] == ["a"]
        assert (await text(pair.there, "persona")).count(" More.") == 1
        assert (await pull(pair.target, pair.source)).empty
