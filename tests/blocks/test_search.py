"""The archive and search: any text can be asked for, and only what one may see is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgent
from dgent.blocks import Library, SectionShape, Shape, Template
from dgent.blocks.context.search import _snippet, words
from dgent.blocks.errors import EntryNotFound, PermissionDenied
from dgent.errors import InputError
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
        assert reads[0] == reads[1] and max(reads[1]) < 10


async def test_more_words_then_rarer_words_then_shorter_texts_come_first(library: Open) -> None:
    lib = library()
    for label, text in {
        "both": "green tea " + "filler " * 50,
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


@given(st.text(), st.text())
def test_snippets_mark_what_was_asked_for(text: str, query: str) -> None:
    terms = frozenset(words(query) + words(text)[:2])
    snippet, marks = _snippet(text, terms)
    assert len(snippet) <= 242
    for start, end in marks:
        assert words(snippet[start:end]) and frozenset(words(snippet[start:end])) <= terms
