"""Redacting: what a version brought is gone from every version and from the disk, and the history says so."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dgent.blocks import Block, Library, errors
from dgent.blocks.context import texts
from dgent.blocks.document.document import Document
from dgent.blocks.history import log
from dgent.blocks.history.pack import decode_pack
from dgent.blocks.record import TEXT
from dgent.errors import InputError
from dgent.model.query import Query
from dgent.store.engine import fold

SECRET = "hunter2-very-secret"


async def test_what_a_version_brought_is_gone_from_all_of_them(lib: Library, tmp_path: Path) -> None:
    block = await lib.create("notes", text="before. ")
    await block.append(f"the key is {SECRET}. ")
    await block.append("after.")
    await block.replace(SECRET, "gone")
    done = await block.redact(2, message="a key slipped in")
    assert (done.versions, done.elsewhere, done.erased) == ((2,), (), True)
    assert await block.text() == "before. " + "\N{REPLACEMENT CHARACTER}" * 11 + "gone" + (
        "\N{REPLACEMENT CHARACTER}" * 2 + "after."
    )
    for version in (2, 3):
        assert SECRET not in (await block.at(version)).text
    assert (await block.at(1)).text == "before. "
    newest, *_, second, first = await block.history()
    assert (newest.op, newest.message, newest.number) == ("redact", "a key slipped in", 5)
    assert (second.redacted, second.by, second.op, first.redacted) == (True, "scout", "append", False)
    await block.append(" And on.")
    assert (await block.text()).endswith("after. And on.")
    assert not _on_disk(tmp_path)


async def test_the_present_version_can_be_redacted_and_others_go_on(lib: Library, rival) -> None:
    block = await lib.create("notes", text="start. ")
    other = await (await rival()).get("notes")
    await other.append(f"{SECRET} ")
    await block.append("mine. ")
    done = await block.redact(2)
    assert done.version == 4
    await other.append("theirs.")
    assert SECRET not in await other.text()
    assert await other.text() == await block.text()
    text = await other.text()
    assert all(each in text for each in ("start. ", "mine. ", "theirs."))
    assert other.version == block.version == 5


@pytest.mark.parametrize("count", range(1, 6))
async def test_a_young_block_is_still_shown_found_and_told_of(quick: Library, count: int) -> None:
    block = await quick.create("notes", text=f"start {SECRET}\n")
    for n in range(1, count):
        await block.append(f"grows{n}\n")
    await block.redact(1)
    await quick.agents.create("scribe")
    await quick.share("notes", with_agent="scribe", permission="read_only")
    scribe = Library(quick._universe, agent="scribe")
    for library in (quick, scribe):
        text = await library.render(referenced="notes")
        assert SECRET not in text and "cannot be read" not in text
        assert all(f"grows{n}\n" in text for n in range(1, count))
        if count > 1:
            assert [hit.label for hit in await library.search("grows1")] == ["notes"]
    assert [each.label for each in await scribe.notices(mark=True)] == ["notes"]
    await block.append("further\n")
    (notice,) = await scribe.notices()
    assert "+further" in str(notice)


async def test_lines_are_not_joined(quick: Library) -> None:
    block = await quick.create("notes", text="one\n")
    await block.append(f"{SECRET}\r\nits second line\n\n")
    await block.append("three\n")
    await block.redact(2)
    first, second, third, fourth, last = (await block.text()).splitlines()
    assert (first, fourth, last) == ("one", "", "three")
    assert set(second) == set(third) == {"\N{REPLACEMENT CHARACTER}"}
    await block.redact(2)
    assert len((await block.text()).splitlines()) == 5


@pytest.mark.parametrize("folded", [False, True])
async def test_messages_and_notes_can_be_cleared(
    lib: Library, tmp_path: Path, folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PACK_SIZE", 4)
    monkeypatch.setattr(log, "KEEP", 1)
    block = await lib.create("notes", text="one\n")
    await block.append("the key\n", message=f"keep {SECRET}")
    await block.append("two\n", message="as always")
    for n in range(8 if folded else 0):
        await block.append(f"{n}\n")
    done = await block.redact(2, 3)
    assert done.messages == (2, 3)
    assert [(await block.history())[-2].message] == [f"keep {SECRET}"]
    assert (await block.redact(2, clear_messages=True)).messages == ()
    history = await (await lib.get("notes")).history()
    assert [each.message for each in history[-3:-1]] == ["as always", ""]
    assert history[-2].redacted
    assert not [each for each in await lib._universe.changes() if SECRET in (each.note or "")]
    assert not _on_disk(tmp_path)


async def test_an_edit_that_was_on_its_way_is_kept(quick: Library) -> None:
    block = await quick.create("notes", text="start. ")
    await block.append(f"{SECRET} ")
    slow = await quick.get("notes")
    await slow.text()  # it holds the document with the secret now
    await block.redact(2)
    await slow.append("late.")
    assert SECRET not in await slow.text()
    assert (await block.text()).endswith("late.")


async def test_folded_versions_pages_states_and_snapshots(
    quick: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PACK_SIZE", 8), ("KEEP", 4), ("STATE_EVERY", 2)):
        monkeypatch.setattr(log, name, value)
    block = await quick.create("notes", limit=100_000)
    for number in range(60):
        await block.append(f"{SECRET}\n" if number == 30 else f"line {number}\n")
    before = {n: (await block.at(n)).text for n in range(1, 32)}
    await block.redact(32)
    fresh = await quick.get("notes")
    for n, text in before.items():
        assert (await fresh.at(n)).text == text
    for n in (32, 33, 50, 61, 62):
        text = (await fresh.at(n)).text
        assert SECRET not in text and "line 29\n" in text
    assert [v.number for v in await fresh.history() if v.redacted] == [32]
    assert [v.number for v in await fresh.history()] == list(range(62, 0, -1))
    await fresh.rollback(20)
    assert await fresh.text() == before[20]
    await fresh.redact(10, 12)
    assert "line 9\n" not in await fresh.text()
    again = await quick.get("notes")
    assert await again.text() == await fresh.text()
    for _ in range(20):
        await again.append("more\n")
    assert await (await quick.get("notes")).text() == await again.text()
    assert not _on_disk(tmp_path)
    assert not await _in_records(quick, block.id)


async def test_a_page_that_only_tells_of_a_redaction_does_not_keep_the_text(quick: Library) -> None:
    """Such a page has a state and no updates, like one that the history begins with after compacting."""
    block = await quick.create("notes", text="start\n")
    await block.append(f"{SECRET}\n")
    await block.append("other\n")
    for number in (3, 3, 3):  # the next page has the state
        await block.redact(number)
        await block._version_log.refresh()
        await block._version_log.pack_versions(keep=1)
    await block.append("last\n")
    await block._version_log.pack_versions(keep=1)
    await block.redact(2)
    for each in await block.history():
        assert SECRET not in (await block.at(each.number)).text, each
    assert (await block.text()).splitlines()[0] == "start"
    assert (await block.text()).splitlines()[-1] == "last"


async def test_it_tells_where_else_it_is(quick: Library) -> None:
    block = await quick.create("notes")
    await block.append(SECRET)  # 2
    await block.write("nothing")  # 3
    await block.rollback(2)  # 4
    await block.write("nothing")  # 5
    assert (await block.redact(2)).elsewhere == (4,)
    assert SECRET in (await block.at(4)).text
    assert (await block.redact(4)).elsewhere == ()
    assert SECRET not in (await block.at(4)).text


@pytest.mark.parametrize(
    "options, edit",
    [
        ({"document": "map"}, lambda block: block.set_field("key", SECRET)),
        ({"document": "list"}, lambda block: block.insert_item(SECRET)),
        ({"template": "task_list"}, lambda block: block.insert_item({"title": SECRET})),
        ({"document": "log"}, lambda block: block.log(SECRET)),
        ({"document": "tree"}, lambda block: block.add_node({"title": SECRET})),
        ({"document": "counter"}, lambda block: block.increment(amount=7)),
        (
            {"template": "partner_profile", "value": {"name": "Ann"}},
            lambda block: block.set_field("name", SECRET),
        ),
    ],
)
async def test_any_document(quick: Library, tmp_path: Path, options: dict, edit) -> None:
    block = await quick.create("it", limit=10_000, **options)
    await edit(block)
    await block.redact(2)
    assert SECRET not in await block.text() and SECRET not in str(await block.value())
    assert SECRET not in (await block.at(2)).text
    await block.diff(1, 2)
    assert "it" in await quick.render(referenced="it")
    await quick.search(SECRET)
    assert not await quick.search(SECRET)
    if options.get("document") == "log":
        assert (await block.entries())[0] == {"redacted": True}
        assert await block.entries(SECRET) == []
    await block.undo()
    assert not _on_disk(tmp_path)


async def test_only_the_partner_may(quick: Library) -> None:
    block = await quick.create("notes", text="a")
    await block.checkpoint("first")
    friend = Library(quick._universe, agent="scout", trust="friend")
    theirs = await friend.get("notes")
    for refused in (theirs.redact(1), theirs.compact(1), theirs.drop_checkpoint("first")):
        with pytest.raises(errors.PermissionDenied):
            await refused
    assert len(await friend.refusals()) == 3
    assert await block.drop_checkpoint("first") == 1
    assert await block.checkpoints() == {}
    with pytest.raises(errors.VersionNotFound):
        await block.drop_checkpoint("first")


async def test_a_range_far_beyond_the_newest_is_refused_at_once(quick: Library) -> None:
    """Whoever asks for all numbers there are takes no memory for them."""
    block = await quick.create("notes", text="one")
    for last in (2**62, 2**80):
        with pytest.raises(errors.VersionNotFound, match="version 2 does not exist"):
            await block.redact(1, last)
    assert await block.text() == "one"


async def test_what_cannot_be_redacted(quick: Library) -> None:
    block = await quick.create("notes", text="a")
    for wrong in ((2,), (1, 2)):
        with pytest.raises(errors.VersionNotFound):
            await block.redact(*wrong)
    for wrong in ((0,), (1, 0), ("1",), (True,)):
        with pytest.raises(InputError):
            await block.redact(*wrong)
    assert block.version == 1


async def test_an_erasing_that_was_cut_off_is_made_up_for(quick: Library, tmp_path: Path) -> None:
    block = await quick.create("notes", text=SECRET)
    await block.append("x")

    async def cut_off(*_: str, **__: bool) -> None:
        raise InterruptedError

    real = quick._universe.forget
    quick._universe.forget = cut_off  # type: ignore[method-assign]
    with pytest.raises(InterruptedError):
        await block.redact(1)
    quick._universe.forget = real  # type: ignore[method-assign]
    assert SECRET not in await block.text()
    assert (await block.redact(2)).erased
    assert not _on_disk(tmp_path)


async def test_while_others_write(quick: Library) -> None:
    block = await quick.create("notes", limit=100_000, text=f"{SECRET} ")
    others = [await quick.get("notes") for _ in range(3)]

    async def write(place: int, each: Block) -> None:
        for step in range(15):
            await each.append(f"<{place}.{step}>")

    async def redact() -> None:
        await asyncio.sleep(0.01)
        await block.redact(1)

    await asyncio.gather(redact(), *(write(place, each) for place, each in enumerate(others)))
    text = await (await quick.get("notes")).text()
    assert all(text.count(f"<{place}.{step}>") == 1 for place in range(3) for step in range(15))
    assert SECRET not in text
    for each in others:
        assert await each.text() == text
    for number in range(1, 48):
        assert SECRET not in (await block.at(number)).text


async def _in_records(library: Library, block: str) -> list[str]:
    """The records of a block that hold the secret, however it is packed."""
    found = []
    async for each in library._universe.iterate(Query(prefix=f"{block}/", limit=None), raw=True):
        some = [each.content]
        if each.schema == "block.page":
            page = decode_pack(block, each.data["first"], each.data["last"], each.content)
            some = [page.state, *page.updates, *page.kept.values()]
        elif each.schema == "block.snapshot":
            some += [text.encode() for _, _, text in Document.load(each.content).iterate_texts()]
        found += [each.id] if any(SECRET.encode() in part for part in some) else []
    return found


def _on_disk(folder: Path, secret: str = SECRET) -> list[str]:
    found = subprocess.run(["grep", "-rlaF", secret, str(folder)], capture_output=True, text=True)
    return found.stdout.split()


@pytest.mark.parametrize("folded", [False, True])
async def test_words_that_searches_have_indexed_are_gone_from_the_disk(
    lib: Library, tmp_path: Path, folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RUN_LEAST", "RUN_RECORDS", "MERGE_RUNS"):
        monkeypatch.setattr(fold, name, 1)
    block = await lib.create("notes", text="before. ")
    await block.append("the key is zanzibarium. ")
    await block.append("after.")
    assert [hit.label for hit in await lib.search("zanzibarium")] == ["notes"]
    if folded:
        while await lib._universe.backend.fill(TEXT.name, lib._universe.contracts):
            pass
        assert [hit.label for hit in await lib.search("zanzibarium")] == ["notes"]
    done = await block.redact(2)
    assert done.erased
    assert not _on_disk(tmp_path, "zanzibarium")
    assert await lib.search("zanzibarium") == []
    assert [hit.label for hit in await lib.search("after")] == ["notes"]
    assert not _on_disk(tmp_path, "zanzibarium")


async def test_a_search_does_not_bring_back_what_is_redacted_meanwhile(
    quick: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the block, and stores its text when the redaction is done."""
    block = await quick.create("notes", text="the key is zanzibarium. ")
    await block.append("after.")
    make = texts._make_texts

    async def make_and_redact(*given: Any) -> Any:
        made = await make(*given)
        monkeypatch.setattr(texts, "_make_texts", make)
        assert (await block.redact(1)).erased
        return made

    monkeypatch.setattr(texts, "_make_texts", make_and_redact)
    await quick.search("after")
    assert not _on_disk(tmp_path, "zanzibarium")
    assert await quick.search("zanzibarium") == []
    assert [hit.label for hit in await quick.search("after")] == ["notes"]
    assert not _on_disk(tmp_path, "zanzibarium")
