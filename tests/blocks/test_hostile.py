"""Records that somebody has damaged: a clear error for what needs them, and all else goes on."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgent.blocks import Block, Library
from dgent.blocks.document.document import Document
from dgent.blocks.errors import DocumentCorrupt
from dgent.blocks.history import log
from dgent.blocks.inspect import inspect
from dgent.blocks.record import pack_id, snapshot_id, version_id
from dgent.errors import Corrupt, DgentError
from dgent.model.datum import Datum
from dgent.store.backend import Delete, Put
from tests.blocks.forgery import HEAD, forged, sample, unknown_kind

JUNK = {
    "nothing": b"",
    "junk": b"\x00\xff junk",
    "an empty page": zlib.compress(msgspec.msgpack.encode([[], [], b"", {}])),
    "other types": zlib.compress(msgspec.msgpack.encode({"a": 1})),
    "half": b"half",
}
WHICH: dict[str, Callable[[str], str]] = {
    "version": lambda block: version_id(block, 35),
    "snapshot": snapshot_id,
    "page": lambda block: pack_id(block, 8),
}
DATA: dict[str, dict[str, Any]] = {"no fields": {}, "other types": {"version": "x", "op": 3, "first": None}}


@pytest.fixture
async def folded(quick: Library, monkeypatch: pytest.MonkeyPatch) -> Block:
    """A block with pages, a snapshot and versions after it; and another one that nobody damages."""
    for name, value in (("PACK_SIZE", 8), ("KEEP", 2), ("STATE_EVERY", 2)):
        monkeypatch.setattr(log, name, value)
    await quick.create("other", kind="core", text="the others are well")
    block = await quick.create("notes", kind="core")
    for n in range(40):
        await block.append(f"{n} ")
    assert block._version_log.last_packed == 32
    return block


async def damage(lib: Library, id: str, **fields: Any) -> None:
    found = await lib._universe.get(id, raw=True)
    if fields.get("content") == b"half":
        fields["content"] = found.content[: len(found.content) // 2]
    await lib._universe.commit([Put(found.replace(**fields), None, None, True)])


async def look_at_all(lib: Library, block: Block) -> list[str]:
    """Everything that reads the block, by a fresh handle; what of it goes wrong."""
    fresh = await lib.get(block.label)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "text": fresh.text,
        "history": fresh.history,
        "at": lambda: fresh.at(30),
        "early": lambda: fresh.at(5),
        "diff": lambda: fresh.diff(5, 30),
        "undo": fresh.undo,
        "rollback": lambda: fresh.rollback(5),
        "append": lambda: fresh.append("more "),
    }
    wrong = []
    for name, call in calls.items():
        try:
            await call()
        except DgentError as error:
            assert isinstance(error, DocumentCorrupt), (name, error)
            wrong.append(name)
    return wrong


async def check_the_others(lib: Library, wrong: bool) -> None:
    fresh = Library(lib._universe, agent="scout")
    assert [block.label for block in await fresh.list()] == ["notes", "other"]
    text = await fresh.render()
    assert "the others are well" in text
    assert ("[this block cannot be read: " in text) == wrong
    assert [hit.label for hit in await fresh.search("well others")] == ["other"]
    scribe = Library(lib._universe, agent="scribe")
    await fresh.agents.create("scribe")
    for label in ("notes", "other"):
        await fresh.share(label, with_agent="scribe", permission="append")
    assert "other" in [each.label for each in await scribe.notices(mark=True)]
    await (await scribe.get("other")).append(" still")
    assert [each.label for each in await fresh.notices() if "still" in str(each)] == ["other"]
    assert "still" in await fresh.render()


@pytest.mark.parametrize("kind", JUNK)
@pytest.mark.parametrize("what", WHICH)
async def test_junk_in_the_content(quick: Library, folded: Block, what: str, kind: str) -> None:
    await damage(quick, WHICH[what](folded.id), content=JUNK[kind])
    wrong = await look_at_all(quick, folded)
    if what == "page":
        assert wrong == ["history", "early", "diff", "rollback"]
    else:
        assert {"text", "undo", "append"} <= set(wrong)
    await check_the_others(quick, what != "page")


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("what", WHICH)
async def test_data_of_another_kind(quick: Library, folded: Block, what: str, kind: str) -> None:
    await damage(quick, WHICH[what](folded.id), data=DATA[kind])
    wrong = await look_at_all(quick, folded)
    assert ("text" in wrong) == (what != "page")
    assert {"history", "diff"} <= set(wrong)
    await check_the_others(quick, what == "snapshot")


async def test_a_version_without_a_state_is_gone_back_to_by_what_it_held(
    quick: Library, folded: Block
) -> None:
    found = await quick._universe.get(version_id(folded.id, 35), raw=True)
    await damage(quick, found.id, data={**found.data, "frontiers": ""})
    fresh = await quick.get("notes")
    was = (await fresh.at(35)).text
    await fresh.rollback(35)
    assert await fresh.text() == was


@pytest.mark.parametrize("frontiers", ["?!", "/////w=="])
async def test_a_version_that_names_no_state(quick: Library, folded: Block, frontiers: str) -> None:
    found = await quick._universe.get(version_id(folded.id, 35), raw=True)
    await damage(quick, found.id, data={**found.data, "frontiers": frontiers})
    fresh = await quick.get("notes")
    with pytest.raises(DocumentCorrupt):
        await fresh.rollback(35)
    assert await fresh.text() == "".join(f"{n} " for n in range(40))
    await fresh.append("end")


async def test_a_block_without_any_version(quick: Library) -> None:
    block = await quick.create("notes", text="x")
    await quick._universe.commit([Delete(version_id(block.id, 1))])
    fresh = await quick.get("notes")
    for call in (fresh.text, lambda: fresh.append("y"), lambda: fresh.write("z"), fresh.history):
        with pytest.raises(DocumentCorrupt, match="has no versions"):
            await call()
    assert await quick._universe.get(version_id(block.id, 1)) is None


async def test_a_card_whose_shape_is_none(quick: Library) -> None:
    block = await quick.create("notes", document="map")
    await quick.create("other", kind="core", text="well")
    card = await quick._universe.get(block.id, raw=True)
    await damage(quick, block.id, data={**card.data, "shape": {"fields": "x"}})
    assert [each.label for each in await quick.list()] == ["notes", "other"]
    assert "well" in await quick.render(referenced="notes")
    with pytest.raises(DgentError, match="shape of a block cannot be read"):
        await (await quick.get("notes")).text()


@pytest.mark.filterwarnings("ignore::dgent.errors.UnreadableRecord")
async def test_a_checkpoint_or_share_that_cannot_be_read_is_not_one(quick: Library) -> None:
    block = await quick.create("notes", text="x")
    await block.checkpoint("c")
    await quick.agents.create("scribe")
    await quick.share("notes", with_agent="scribe")
    for schema in ("block.checkpoint", "block.share"):
        [found] = await quick._universe.query(schema=schema, raw=True)
        await damage(quick, found.id, data={"block": block.id, "to": found.data.get("to"), "version": "x"})
    assert await block.checkpoints() == {}
    assert await Library(quick._universe, agent="scribe").list(shared=True) == []
    assert await quick.list_shares() == []


def test_it_is_an_error_of_dgent() -> None:
    assert issubclass(DocumentCorrupt, Corrupt)
    assert Datum().content == b""


# -- bytes that were made to be taken in -----------------------------------------------------------------

SAMPLE = sample()
UPDATE, SNAPSHOT = SAMPLE.take_update(), SAMPLE.snapshot()
CHANGES = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), min_size=1, max_size=4)


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # the library, at the end of it
@given(CHANGES, st.booleans())
@settings(max_examples=300)
def test_forged_bytes_are_refused_or_can_be_used(changes: list[tuple[int, int]], whole: bool) -> None:
    made = bytearray(SNAPSHOT if whole else UPDATE)
    for place, value in changes:
        made[HEAD + place % (len(made) - HEAD)] = value
    with suppress(DocumentCorrupt):
        document = Document.load(forged(bytes(made)))
        for use in (document.value, document.text, document.nodes, document.snapshot, document.state):
            use()
        document.splice(0, 0, "x")
        document.insert_item(0, 1)
        document.add_node(None, {})
        # Forged operations may contradict each other, and be read one way or another: only errors count.
        assert Document.load(document.snapshot()).value().keys() == document.value().keys()


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # the library, at the end of it
async def test_a_version_that_can_be_merged_and_not_used(quick: Library, folded: Block) -> None:
    """What can be read is read, also by a handle that has the block in memory; no edit is stored on it."""
    before = await folded.text()
    found = await quick._universe.get(version_id(folded.id, folded.version), raw=True)
    last = found.replace(
        id=version_id(folded.id, folded.version + 1), content=unknown_kind(), rev=None, seq=None
    )
    await quick._universe.commit([Put(last, 0, None, True)])
    for call in (lambda: folded.append("more "), lambda: folded.write("other")):
        assert await folded.text() == before
        with pytest.raises(DocumentCorrupt):
            await call()
    assert {"undo", "rollback", "append"} == set(await look_at_all(quick, folded))
    [finding] = await inspect(quick._universe)
    assert finding.level == "problem" and "'notes'" in finding.message
    assert await quick._universe.get(version_id(folded.id, folded.version + 1)) is None
    await check_the_others(quick, False)
    await quick._universe.commit([Delete(last.id)])
    assert await folded.text() == before
