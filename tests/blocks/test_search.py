"""The archive and search: any text can be asked for, and only what one may see is found."""

from __future__ import annotations

import asyncio

import pytest

import dgent
from dgent.blocks import Library, SectionShape, Shape, Template
from dgent.blocks.context.texts import LOOK_BACK
from dgent.blocks.errors import EntryNotFound, PermissionDenied
from dgent.blocks.record import ENTRY, TEXT, text_id
from dgent.errors import Denied, InputError, StorageError
from dgent.universe.gate import Principal
from dgent.universe.room import Title, find_titles
from dgent.verbs.caller import Caller
from dgent.verbs.path import invoke
from tests.blocks.agents import Counting, Open, library, scout, scribe, u

__all__ = ["library", "scout", "scribe", "u"]


async def labels(lib: Library, query: str, **options: object) -> list[str]:
    return [hit.label or hit.id for hit in await lib.search(query, **options)]  # type: ignore[arg-type]


async def test_entries_are_kept_read_found_and_deleted(
    library: Open, scout: Library, scribe: Library
) -> None:
    entry = await scout.archive("The meeting is on Friday.", tags=["dates"])
    assert await scout.get_archived(entry.id) == entry
    assert (entry.agent, entry.tags) == ("scout", {"dates"})
    [hit] = await scout.search("friday")
    assert (hit.kind, hit.id, hit.owner, hit.score) == ("entry", entry.id, "scout", 1.0)
    assert [hit.snippet[a:b] for a, b in hit.marks] == ["Friday"]
    assert await labels(scout, "dates") == [entry.id]
    assert await labels(scout, "friday", tags=["dates"]) == [entry.id]
    assert await labels(scout, "friday", tags=["others"]) == []
    assert await scribe.search("friday") == []
    for stranger in (scribe.get_archived(entry.id), scribe.unarchive(entry.id)):
        with pytest.raises(EntryNotFound):
            await stranger
    await scout.unarchive(entry.id)
    assert await scout.search("friday") == []
    with pytest.raises(EntryNotFound):
        await scout.get_archived(entry.id)
    assert len(await scout._universe.history(entry.id)) == 2
    other = await scout.archive("Forget about Saturday.")
    with pytest.raises(PermissionDenied):
        await library("scout", trust="friend").unarchive(other.id, forget=True)
    await scout.unarchive(other.id, forget=True)
    assert await scout.search("saturday") == [] and await scout._universe.history(other.id) == []
    for wrong in ("", "  ", 7):
        with pytest.raises(InputError):
            await scout.archive(wrong)  # type: ignore[arg-type]


async def test_a_record_that_is_no_entry_is_not_one(u: dgent.Universe, scout: Library) -> None:
    block = await scout.get("persona")
    with pytest.raises(EntryNotFound):
        await scout.unarchive(block.id)
    assert await block.text()


async def test_search_follows_every_change(scout: Library) -> None:
    block = await scout.get("persona")
    await block.append(" Elephants never forget.")
    assert await labels(scout, "elephants") == ["persona"]
    await block.undo()
    assert await labels(scout, "elephants") == []
    await block.redo()
    assert await labels(scout, "elephants") == ["persona"]
    await block.rollback(1)
    assert await labels(scout, "elephants") == []
    await scout.rename("persona", "elephant")
    assert await labels(scout, "elephant") == ["elephant"]
    await scout.delete("elephant")
    assert await labels(scout, "elephant") == []


async def test_search_is_scoped_to_what_one_may_see(library: Open, scout: Library, scribe: Library) -> None:
    await scribe.create("notes", text="answers of my own")
    assert await labels(scribe, "answers") == ["notes"]
    await scout.share("persona", with_agent="scribe", permission="read_only")
    assert set(await labels(scribe, "answers")) == {"notes", "persona"}
    assert await labels(scribe, "answers", owner="scout") == ["persona"]
    await scout.unshare("persona", with_agent="scribe")
    assert await labels(scribe, "answers") == ["notes"]
    await scout.create("all", owner="_constellation_", text="answers for all")
    assert set(await labels(scribe, "answers")) == {"notes", "all"}


async def test_logs_and_structured_blocks_are_found(scout: Library) -> None:
    log = await scout.create("events", kind="log", document="log")
    await log.log({"message": "the kettle boiled", "cups": 4711})
    todo = await scout.create("todo", document="list")
    await todo.append({"title": "buy a kettle", "done": False})
    assert set(await labels(scout, "kettle")) == {"events", "todo"}
    assert await labels(scout, "kettle", kind="log") == ["events"]
    assert await labels(scout, "4711") == ["events"]


async def test_entries_that_went_by_rule_are_found(scout: Library) -> None:
    few = Shape("log", keep=4)
    log = await scout.create("log", template=Template("few", few))
    diary = Template("diary", Shape("composite", sections=(SectionShape("days", few),)))
    days = (await scout.create("diary", template=diary)).section("days")
    for n in range(20):
        await log.log(f"beat{n} of the drum")
        await days.log(f"day{n}")
    assert len(await log.entries()) <= 5
    for n in range(20):
        assert await labels(scout, f"beat{n}") == ["log"]
        assert await labels(scout, f"day{n}") == ["diary"]
    [hit] = await scout.search("beat0")
    assert "(scout) beat0 of the drum" in hit.snippet


async def test_what_was_taken_back_is_not_found_and_what_went_by_rule_is_told_once(scout: Library) -> None:
    log = await scout.create("log", template=Template("few", Shape("log", keep=4)))
    await log.log("a mistake")
    await log.undo()
    for n in range(6):
        await log.log(f"beat{n}")
    assert [version.op for version in await log.history(1)] == ["trim"]
    assert await labels(scout, "mistake") == []
    await log.undo()  # of the trim: they are back
    assert len(await log.entries()) == 6
    assert [each["message"] for each in await log.entries(trimmed=True)] == [
        f"beat{n}" for n in range(5, -1, -1)
    ]
    await log.redo()
    assert [each["message"] for each in await log.entries(trimmed=True)] == [
        f"beat{n}" for n in range(5, -1, -1)
    ]


async def test_a_hundred_blocks_need_no_more_reads_than_one(u: dgent.Universe, scout: Library) -> None:
    counting = Counting(u.backend)
    async with dgent.open(backend=counting, author="scout") as universe:
        reads = []
        for count in (1, 100):
            for n in range(count):
                await scout.create(f"{count}-{n}", text=f"word{n}")
            lib = Library(universe, agent="scout")
            asked = []
            for _ in range(2):
                counting.asked = 0
                assert len(await lib.search("word0 word1", limit=5)) == (1 if count == 1 else 3)
                asked.append(counting.asked)
            reads.append(asked)
        assert max(reads[1]) <= max(reads[0]) < 16
        assert reads[0][1] == reads[1][1] == 1  # of marks of origin: nothing happened in between


async def test_more_words_rarer_words_and_shorter_texts_come_first(library: Open) -> None:
    lib = library()
    for label, text in {
        "both": "green tea " + "filler " * 5,
        "one": "tea tea tea tea",
        "other": "green",
        "none": "coffee",
    }.items():
        await lib.create(label, text=text)
    hits = await lib.search("green tea")
    assert hits[0].label == "both" and {hit.label for hit in hits} == {"both", "one", "other"}
    scores = [hit.score for hit in hits]
    assert scores[0] == 1.0 and scores == sorted(scores, reverse=True) and min(scores) > 0
    assert len(await lib.search("green tea", limit=1)) == 1
    await lib.create("tea")
    assert (await labels(lib, "tea"))[0] in ("tea", "one")
    await lib.create("long", text="green tea " + "filler " * 50)
    assert (await labels(lib, "green tea"))[0] == "both"


async def test_stems_phrases_and_beginnings_of_words(scout: Library) -> None:
    await scout.create("a", text="She runs ten miles every day")
    await scout.create("b", text="Ten people ran for miles")
    entry = await scout.archive("a runner's diary, miles ten")
    assert set(await labels(scout, "running")) == {"a"}
    assert await labels(scout, '"ten miles"') == ["a"]
    assert set(await labels(scout, "run*")) == {"a", entry.id}
    assert [hit.snippet[a:b] for hit in await scout.search("run*", kind="working") for a, b in hit.marks] == [
        "runs"
    ]


@pytest.mark.parametrize(
    "query, finds",
    [
        ("don't", True),
        ("DON\u2019T", True),
        ("a-b", True),
        ('"unbalanced', True),
        ("AND OR NOT unbalanced*", True),
        ("(((", False),
        ("", False),
        ("\0", False),
        ("NEAR(a, b)", True),
        ("cafe\u0301", True),
        ("CAFÉ", True),
        ("東京", True),
        ("京", True),
        ("label:x", False),
        ("x" * 10_000, False),
        ("unbalanced " * 1000, True),
        (" ".join(map(str, range(3000))), False),
    ],
)
async def test_any_text_can_be_asked_for(library: Open, query: str, finds: bool) -> None:
    lib = library()
    await lib.create("notes", text="We don't say a-b, unbalanced. In the café, 東京都に住む. (near)")
    assert bool(await lib.search(query)) is finds


async def test_wrong_arguments_are_told(scout: Library) -> None:
    for wrong in ({"limit": 0}, {"limit": True}, {"kind": "x"}):
        with pytest.raises(InputError):
            await scout.search("answers", **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        await scout.search(7)  # type: ignore[arg-type]


# -- the texts that searches keep ------------------------------------------------------------------------


async def texts(u: dgent.Universe) -> dict[str, tuple[str, int]]:
    found = await u.query(schema=TEXT.name, limit=None, raw=True)
    return {each.data["label"]: (each.data["text"], each.data["version"]) for each in found}


async def test_a_search_stores_texts_and_an_edit_does_not(u: dgent.Universe, scout: Library) -> None:
    block = await scout.create("notes", text="one")
    assert await texts(u) == {}
    await scout.search("one")
    assert (await texts(u))["notes"] == ("one", 1)
    seq = await u.seq()
    await scout.search("two")
    assert await u.seq() == seq
    await block.append(" two")
    assert (await texts(u))["notes"] == ("one", 1)
    assert await labels(scout, "two") == ["notes"]
    assert (await texts(u))["notes"] == ("one two", 2)
    await scout.delete("notes")
    assert await labels(scout, "two") == []
    assert "notes" not in await texts(u)
    await scout.restore("notes")
    assert await labels(scout, "two") == ["notes"]
    assert not [change for change in await u.changes(0) for item in change.items if item.schema == TEXT.name]


async def test_programs_see_what_others_edit(u: dgent.Universe, scout: Library) -> None:
    """A search proves that its texts are current, however many commits there were."""
    block = await scout.create("notes", text="zero")
    other = Library(u, agent="scout")
    for n in (1, LOOK_BACK + 2):
        assert await labels(other, "zero") == ["notes"]
        for each in range(n):
            await u.remember({"n": each})
        await block.append(f" nine{n}")
        assert await labels(other, f"nine{n}") == ["notes"]


async def test_what_cannot_be_stored_counts_all_the_same(
    u: dgent.Universe, scout: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = await scout.create("notes", text="one")
    await scout.search("one")
    await block.append(" two")

    async def refuse(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(dgent.Universe, "commit", refuse)
        for _ in range(2):
            assert await labels(scout, "two") == ["notes"]
            [hit] = await scout.search("two")
            assert hit.snippet == "one two"
    assert await labels(scout, "two") == ["notes"]
    assert (await texts(u))["notes"] == ("one two", 2)


async def test_two_searches_at_once_store_each_text_once(u: dgent.Universe, scout: Library) -> None:
    for n in range(5):
        await scout.create(f"b{n}", text=f"kettle {n}")
    others = [Library(u, agent="scout") for _ in range(6)]
    found = await asyncio.gather(*(labels(each, "kettle") for each in others))
    assert all(set(each) == {f"b{n}" for n in range(5)} for each in found)
    assert len(await u.query(schema=TEXT.name, raw=True, where={"label": {"$prefix": "b"}})) == 5


async def test_everything_is_in_one_list(u: dgent.Universe, scout: Library, scribe: Library) -> None:
    await scout.create("notes", text="the kettle boils", description="about tea")
    await scout.archive("a kettle of fish", tags=["sayings"])
    await scribe.create("other", text="my own kettle")
    kinds = {(each.kind, each.name, each.detail) for each in await titles(u, "kettle")}
    assert kinds == {("block", "notes", "scout"), ("entry", "", "scout"), ("block", "other", "scribe")}
    assert [each.id for each in await titles(u, "tea")] == [(await scout.get("notes")).id]
    for name, trust, seen in [
        ("scribe", "friend", {"other"}),
        ("scribe", "conversant", {"other"}),
        ("scout", "conversant", {"notes", ""}),
        ("nobody", "friend", set()),
    ]:
        handle = u.acting(Principal(name, trust))  # type: ignore[arg-type]
        assert {each.name for each in await titles(handle, "kettle")} == seen
        for hit in await handle.search("kettle fish boils"):
            assert hit.datum.data.get("owner", hit.datum.data.get("agent")) == name
    with pytest.raises(Denied):
        await u.acting(Principal("scout", "untrusted")).search("kettle")
    await scout.share("notes", with_agent="scribe", permission="read_only")
    handle = u.acting(Principal("scribe", "conversant"))
    assert {each.name for each in await titles(handle, "kettle")} == {"other", "notes"}
    await scout.unshare("notes", with_agent="scribe")
    assert {each.name for each in await titles(handle, "kettle")} == {"other"}


async def titles(u: dgent.Universe, words: str) -> list[Title]:
    return await find_titles(u, [hit.datum for hit in await u.search(words)])


@pytest.mark.parametrize("commits", [0, 1, 500])
async def test_blocks_are_found_as_they_were(
    u: dgent.Universe, scout: Library, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """Whether the feed says what changed since, or only the times of versions do."""
    monkeypatch.setattr("dgent.blocks.context.texts.LOOK_BACK", commits)
    block = await scout.create("notes", text="kettle")
    other = await scout.create("other", text="an unchanged kettle")
    gone = await scout.create("gone", text="a kettle that leaks")
    await u.remember({"kept": True}, id="kept")
    before = await u.seq()
    if commits:
        await scout.search("kettle")
    await block.append(" boils")
    await scout.delete("gone")
    middle = await u.seq()
    await block.replace("kettle", "pot")
    await scout.create("late", text="a late kettle")
    await scout.rename("other", "another")
    await scout.search("boils")

    async def find(words: str, as_of: int) -> set[str]:
        hits = await u.search(words, as_of=as_of)
        assert len(hits) == len({hit.id for hit in hits})
        return {hit.id for hit in hits}

    assert await find("kettle", before) == {text_id(each.id) for each in (block, other, gone)}
    assert await find("boils", before) == set()
    assert await find("kettle", middle) == {text_id(each.id) for each in (block, other)}
    assert await find("boils", middle) == {text_id(block.id)}
    assert await find("other", middle) == {text_id(other.id)}
    assert await find("another", middle) == await find("kettle", 0) == set()
    assert await find("boils", await u.seq()) == {text_id(block.id)}
    assert text_id(block.id) not in await find("kettle", await u.seq())
    assert "kept" in [each.id for each in await u.query(dgent.Query(limit=None), as_of=before, raw=True)]
    hits = await u.search("kettle", as_of=middle)
    assert {hit.datum.data["text"] for hit in hits} == {"kettle boils", "an unchanged kettle"}


async def test_what_was_redacted_is_not_found_as_it_was(u: dgent.Universe, scout: Library) -> None:
    block = await scout.create("notes", text="the kettle")
    await block.append(" is secret")
    then = await u.seq()
    await block.replace(" is secret", " boils")
    assert [hit.id for hit in await u.search("secret", as_of=then)] == [text_id(block.id)]
    await block.redact(2)
    for as_of in (then - 1, then, then + 1, await u.seq()):
        hits = await u.search("secret kettle", as_of=as_of)
        assert all("secret" not in hit.datum.data["text"] for hit in hits)


async def test_others_blocks_are_not_found_as_they_were(u: dgent.Universe, scout: Library) -> None:
    block = await scout.create("notes", text="kettle")
    before = await u.seq()
    await block.append(" boils")
    for name, seen in (("scribe", set()), ("scout", {text_id(block.id)})):
        handle = u.acting(Principal(name, "friend"))
        assert {hit.id for hit in await handle.search("kettle", as_of=before)} == seen


async def test_a_transaction_finds_blocks_as_they_are(u: dgent.Universe, scout: Library) -> None:
    block = await scout.create("notes", text="kettle")
    async with u.transaction() as tx:
        assert [hit.id for hit in await tx.search("kettle")] == [text_id(block.id)]
        await tx.remember({"found": True})
    await block.append(" boils")
    async with u.transaction() as tx:
        assert [hit.snippet for hit in await tx.search("boils")] == ["kettle boils"]
        await tx.remember({"found": True})


async def test_nobody_writes_texts_from_outside(u: dgent.Universe, scout: Library) -> None:
    block = await scout.create("notes", text="kettle")
    await scout.search("kettle")
    with pytest.raises(Denied):
        await u.put((await u.get(text_id(block.id), raw=True)).replace(data={"text": "forged"}))
    with pytest.raises(Denied):
        await u.delete(text_id(block.id))


async def test_entries_of_the_first_version_are_found(u: dgent.Universe, scout: Library) -> None:
    await scout.archive("a new entry")
    old = {"agent": "scout", "text": "Ten runners", "words": ["runners", "sports", "ten"], "extra": {}}
    datum = dgent.Datum("old", data=old, tags={"sports"}, schema=ENTRY.name, schema_version=1)
    await u.for_room("blocks").put(datum)
    for words in ("runner", "sport", "ten runs"):
        assert await labels(scout, words) == ["old"], words
    assert await labels(scout, "ten", tags=["sports"]) == ["old"]
    assert (await scout.get_archived("old")).text == "Ten runners"
    await u.indexed()
    assert await labels(scout, "sport") == ["old"]


@pytest.mark.parametrize("trust", ["friend", "conversant"])
async def test_the_verb_shows_a_caller_nothing_of_others(
    u: dgent.Universe, scout: Library, scribe: Library, trust: str
) -> None:
    await scout.create("plans", text="the secret kettle plans")
    await scout.archive("a secret kettle entry")
    await scribe.create("mine", text="my kettle")
    caller = Caller("scribe", trust=trust, agent="scribe")  # type: ignore[arg-type]
    found = await invoke(u, "self.data.search", caller=caller, words="kettle secret plans", explain=True)
    assert [(hit.kind, hit.name, hit.snippet, hit.parts) for hit in found.items] == [
        ("block", "mine", "my kettle", {"kettl": 1.0})
    ]
    for words in ("secret", '"secret kettle"', "pla*"):
        assert (await invoke(u, "self.data.search", caller=caller, words=words)).items == []
    with pytest.raises(Denied):
        await invoke(u, "self.data.search", caller=Caller("x", trust="untrusted"), words="kettle")


async def test_scores_say_of_hidden_texts_only_how_many_have_a_word() -> None:
    """Two stores that differ in what others wrote, and not in who has which word, and how long it is."""
    answers = []
    for hidden in ("kettle alpha beta", "kettle gamma delta"):
        async with dgent.open("memory:") as u:
            scout, scribe = Library(u, agent="scout"), Library(u, agent="scribe")
            await scout.create("plans", text=hidden)
            for n in range(4):
                await scribe.create(f"b{n}", text="kettle cup " + "saucer " * n)
            handle = u.acting(Principal("scribe", "conversant"))
            found = await handle.search("kettle saucer alpha gamma")
            answers.append([(hit.snippet, hit.score, hit.parts, found.building) for hit in found])
    assert answers[0] == answers[1]
    assert len(answers[0]) == 4
