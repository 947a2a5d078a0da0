"""A document with a long history: its state is loaded first, and its history when it is needed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from dgent.blocks import Block, Library
from dgent.blocks.document import stored
from dgent.blocks.document.document import Document, _strip_ids
from dgent.blocks.errors import DocumentCorrupt
from dgent.blocks.history import log
from dgent.blocks.inspect import inspect
from dgent.blocks.record import VersionRecord, snapshot_id
from dgent.model.query import Query
from dgent.store.backend import Put
from tests.blocks.conftest import Rival

LINE = "A line of some length that is replaced by another one, again and again.\n"


def edit(document: Document, choose: random.Random) -> None:
    """Change something of any kind."""
    place = choose.randrange(document.length() + 1)
    nodes = document.nodes()
    changes: list[Callable[[], object]] = [
        lambda: document.splice(place, min(3, document.length() - place), choose.choice("abc") * 4),
        lambda: document.set_field(choose.choice("xyz"), choose.random()),
        lambda: document.insert_item(0, choose.random()),
        lambda: document.count_items() > 2 and document.move_item(0, 1),
        lambda: document.count_items() > 3 and document.delete_item(0),
        lambda: document.append_entry({"n": choose.random()}),
        lambda: document.count_entries() > 5 and document.trim_entries(2),
        lambda: document.add_node(choose.choice([None, *(each["id"] for each in nodes)]), {"n": place}),
        lambda: len(nodes) > 1 and document.delete_node(nodes[0]["id"]),
        lambda: document.increment(2),
    ]
    choose.choice(changes)()


def grow(choose: random.Random, count: int) -> tuple[Document, list[bytes], list[str]]:
    """Make a document by many edits; returns their updates and the states in between."""
    made, updates, states = Document(), [], []
    for _ in range(count):
        edit(made, choose)
        updates.append(made.take_update())
        states.append(made.frontiers)
        made.mark_saved()
    return made, updates, states


def content(document: Document) -> object:
    """Return everything it holds, without the ids of nodes: one that is brought back has a new id."""
    nodes = [_strip_ids(each) for each in document.nodes()]
    return nodes, {name: each for name, each in document.value().items() if name != "nodes"}


@pytest.mark.parametrize("number", range(12))
def test_a_state_with_updates_is_the_same_document(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "WORTH", 0)
    choose = random.Random(number)
    made, updates, states = grow(choose, 60)
    packed = Document.load(b"", updates[:40]).snapshot_with_state()
    assert packed.startswith(stored.MARK)
    light = Document.load(packed, updates[40:])
    assert light._history and light.value() == made.value() and light.frontiers == made.frontiers

    # An edit of it, and one of another that knew only what came before the state.
    edit(light, choose)
    own = light.take_update()
    other = made.fork_at(states[choose.randrange(39)])
    other.mark_saved()
    edit(other, choose)
    for each in (light, made):
        each.merge(other.take_update())
    made.merge(own)
    assert light.value() == made.value() and light.frontiers == made.frontiers
    assert light.trimmed_entries() == made.trimmed_entries()
    assert sorted(light.iterate_texts()) == sorted(made.iterate_texts())


@pytest.mark.parametrize("number", range(8))
def test_the_history_is_loaded_when_it_is_needed(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "WORTH", 0)
    made, updates, states = grow(random.Random(number), 40)
    packed = Document.load(b"", updates[:30]).snapshot_with_state()

    def light() -> Document:
        return Document.load(packed, updates[30:])

    assert light().knows(states[35]) and light().knows(states[3])
    assert light().is_before(states[3], states[35]) and not light().is_before(states[35], states[3])
    assert light().fork_at(states[3]).value() == made.fork_at(states[3]).value()
    assert light().fork().fork_at(states[3]).value() == made.fork_at(states[3]).value()
    reverted = light()
    edit(reverted, random.Random(number))
    kept = reverted.take_update()  # an edit that was not stored yet
    reverted.revert_to(states[10])
    assert content(reverted) == content(made.fork_at(states[10]))
    made.merge(kept)
    made.merge(reverted.take_update())
    assert reverted.value() == made.value()
    empty = Document()
    empty.merge(light().updates_since(Document()))
    assert empty.value() == light().value()
    assert Document.load(light().snapshot()).knows(states[3])


@pytest.fixture
async def long(lib: Library, monkeypatch: pytest.MonkeyPatch) -> Block:
    """A block that is short, with a long history."""
    for name, value in (("PACK_SIZE", 8), ("KEEP", 2)):
        monkeypatch.setattr(log, name, value)
    monkeypatch.setattr(stored, "WORTH", 0)
    block = await lib.create("notes", kind="core")
    for number in range(40):
        await block.write(f"{number} {LINE}" * 3)
    return block


async def test_a_reader_loads_the_state_alone(lib: Library, long: Block) -> None:
    fresh = await lib.get("notes")
    assert await fresh.text() == f"39 {LINE}" * 3
    assert fresh._version_log.document._history
    await fresh.append("more")
    assert fresh._version_log.document._history
    assert await long.text() == f"39 {LINE}" * 3 + "more"
    await fresh.undo()
    await fresh.undo()
    assert await long.text() == f"38 {LINE}" * 3
    await fresh.rollback(5)
    assert await long.text() == await fresh.text() == f"3 {LINE}" * 3


async def test_an_edit_beside_the_state_is_merged(lib: Library, long: Block, rival: Rival) -> None:
    """One who had not seen the packed versions stores an edit after them."""
    late = await (await rival()).get("notes")
    await late.text()
    update = late._version_log.document.fork()
    update.mark_saved()
    update.splice(0, 0, "late ")
    for number in range(20):
        await long.append(f"{number}\n")
    await late._version_log.refresh()
    here, state = late.version, late._version_log.document.frontiers
    record = VersionRecord("append", here + 1, here, 1, 1, 0, state)
    assert await late._version_log.write(record, update.take_update(), "scout") is not None
    fresh = await lib.get("notes")
    assert (await fresh.text()).startswith("late 39 ") and (await fresh.text()).endswith("19\n")
    assert await long.text() == await fresh.text()


async def test_a_damaged_history_leaves_the_text(lib: Library, long: Block) -> None:
    text = await long.text()
    found = await lib._universe.get(snapshot_id(long.id), raw=True)
    state, history = stored.split_state(found.content)
    broken = stored.MARK + len(state).to_bytes(4, "big") + state + history[:-9] + bytes(9)
    await lib._universe.commit([Put(found.replace(content=broken), None, None, True)])
    fresh = await lib.get("notes")
    with pytest.raises(DocumentCorrupt):
        await fresh.rollback(3)
    assert await fresh.text() == text
    await fresh.append("more")
    assert await (await lib.get("notes")).text() == text + "more"
    [finding] = await inspect(lib._universe)
    assert finding.level == "problem" and "notes" in finding.message


async def test_a_state_that_differs_from_its_history_is_found(lib: Library, long: Block) -> None:
    found = await lib._universe.get(snapshot_id(long.id), raw=True)
    _, history = stored.split_state(found.content)
    other = Document()
    other.write("forged")
    state = other.state()
    forged = stored.MARK + len(state).to_bytes(4, "big") + state + history
    await lib._universe.commit([Put(found.replace(content=forged), None, None, True)])
    [finding] = await inspect(lib._universe)
    assert finding.level == "problem"


@pytest.mark.parametrize("length", [0, 10**6, 2**32 - 1])
def test_a_state_of_a_wrong_length_is_refused(length: int) -> None:
    with pytest.raises(DocumentCorrupt):
        Document.load(stored.MARK + length.to_bytes(4, "big") + b"loro")
    with pytest.raises(DocumentCorrupt):
        Document.load(stored.MARK)


async def test_redacting_leaves_nothing_in_the_state(lib: Library, long: Block) -> None:
    await long.append("the code is XYZZY-4711\n")
    number = long.version
    for each in range(20):
        await long.append(f"{each}\n")
    found = await lib._universe.get(snapshot_id(long.id), raw=True)
    assert b"XYZZY-4711" in stored.split_state(found.content)[0]
    await long.redact(number)
    fresh = await lib.get("notes")
    assert "XYZZY" not in await fresh.text() and (await fresh.text()).endswith("19\n")
    everything = Query(prefix=long.id, limit=None)
    contents = [each.content async for each in lib._universe.iterate(everything, raw=True)]
    assert any(each.startswith(stored.MARK) for each in contents)
    assert not any(b"XYZZY" in each for each in contents)
