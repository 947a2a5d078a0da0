"""Batches: what they see, how they end, and what adding twice does."""

from __future__ import annotations

import asyncio

import pytest

import dgent
from dgent.errors import Conflict, InputError, NotFound, UndoConflict
from dgent.messages import Entry, Messages, Part

CALL = Part("tool_call", call="c1", name="search")


async def test_a_batch_sees_history_up_to_its_start(messages: Messages) -> None:
    await messages.add("user", "before")
    running = await messages.begin(entries=[Entry("user", "half done")])
    batch = await messages.begin(entries=[Entry("user", "mine")])
    await running.add("assistant", "done since")
    await running.complete()
    later = await messages.add("user", "after")
    await messages.edit(later.id, "after, edited")
    seen = await batch.history()
    assert [each.text for each in seen.messages] == ["before"]
    now = await messages.history()
    assert [each.text for each in now.messages] == ["before", "half done", "done since", "after, edited"]
    assert [len(turn.messages) for turn in now.turns] == [1, 2, 1]
    small = await messages.history(messages=2)
    assert [each.text for each in small.messages] == ["after, edited"] and small.more
    assert (await messages.history(tokens=1)).more  # the newest is there, whatever its size


async def test_a_batch_sees_what_is_left_when_history_was_pruned(messages: Messages) -> None:
    first = await messages.begin()
    assert (await first.history()).messages == []
    await messages.add("user", "before")
    batch = await messages.begin(entries=[Entry("user", "mine")])
    edited = await messages.add("user", "after")
    await messages.edit((await messages.page(3)).items[2].id, "before, edited")
    await messages.edit(edited.id, "after, edited")
    await messages.universe.compact(0)
    assert [each.text for each in (await batch.history()).messages] == ["before, edited"]


async def test_batches_are_in_the_order_of_their_commits(
    messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(100, 0, -1))
    monkeypatch.setattr("dgent.clock.now_us", lambda: next(clock) * 1_000_000)
    for number in range(5):
        await messages.add("user", str(number))
    assert [each.text for each in (await messages.page(5)).items] == ["4", "3", "2", "1", "0"]


async def test_an_interrupted_batch_says_what_it_dropped_and_goes_on(messages: Messages) -> None:
    batch = await messages.begin(entries=[Entry("user", "go")])
    both = [Part("text", "both"), CALL, Part("tool_call", call="c2", name="web")]
    await batch.add("assistant", both)
    await batch.add_result("c2", "a page")
    await batch.add("assistant", [Part("thinking", "hm"), Part("tool_call", call="c3", name="web")])
    with pytest.raises(Conflict, match=r"search \(c1\), web \(c3\)"):
        await batch.complete()
    done = await batch.interrupt("the power went")
    assert (done.state, done.dropped, done.reason, done.count) == (
        *("interrupted", ("c1", "c3"), "the power went", 3),
    )
    shown = await batch.messages()
    assert [each.parts for each in shown[1:2]] == [(both[0], both[2])] and len(shown) == 3
    with pytest.raises(Conflict, match="is interrupted"):
        await batch.add("user", "late")
    again = await messages.resume(batch.id)
    assert (await messages.list_batches(open_only=True))[0].id == batch.id
    with pytest.raises(InputError, match="no call 'c1'"):
        await again.add_result("c1", "too late")
    added = await again.add("assistant", "sorry")
    assert added.number == "4"  # the number of the dropped message is not given again
    assert (await again.complete()).dropped == ("c1", "c3")
    with pytest.raises(Conflict, match="is complete"):
        await messages.resume(batch.id)


async def test_a_result_is_added_once(messages: Messages) -> None:
    batch = await messages.begin()
    with pytest.raises(InputError, match="no call"):
        await batch.add_result("c1", "x")
    await batch.add("assistant", [CALL])
    first = await batch.add_result("c1", "x")
    assert (await batch.add_result("c1", "x")).id == first.id
    with pytest.raises(Conflict, match="has a result already"):
        await batch.add_result("c1", "another")
    other = await messages.resume(batch.id)
    with pytest.raises(Conflict, match="has a result already"):
        await other.add_result("c1", "another")
    with pytest.raises(InputError, match="twice"):
        await other.add("assistant", [CALL])
    with pytest.raises(Conflict, match="result of a call"):
        await messages.delete(first.id)


async def test_a_key_adds_once(messages: Messages) -> None:
    batch = await messages.begin(key="b", entries=[Entry("user", "hello")])
    assert (await messages.begin(key="b", entries=[Entry("user", "hello")])).id == batch.id
    first = await batch.add("user", "x", key="k")
    assert (await batch.add("user", "x", key="k")).id == first.id
    both = await asyncio.gather(*(messages.add("user", f"n{n}", key="once") for n in range(3)))
    assert len({each.id for each in both}) == 1 and await messages.count() == 3
    # Keys of agents are apart.
    assert (await Messages(messages.universe, "scribe").add("user", "x", key="once")).agent == "scribe"
    await messages.delete(first.id)
    with pytest.raises(NotFound, match="deleted since"):
        await batch.add("user", "x", key="k")


async def test_messages_join_a_transaction(messages: Messages) -> None:
    u = messages.universe
    batch = await messages.begin()
    with pytest.raises(ZeroDivisionError):
        async with u.transaction() as tx:
            await tx.put(dgent.Datum("note", data={"n": 1}))
            await batch.add("user", "gone", tx=tx)
            raise ZeroDivisionError
    assert await batch.messages() == [] and await u.get("note") is None
    async with u.transaction() as tx:
        await tx.put(dgent.Datum("note", data={"n": 1}))
        await batch.add("user", "kept", tx=tx)
        await messages.add_all([Entry("user", "a"), Entry("assistant", "b")], tx=tx)
    (kept,) = await batch.messages()
    note = await u.get("note")
    assert kept.number == "1" and note.seq == kept.seq and await messages.count() == 3


async def test_undo_takes_back_and_leaves_no_message_without_its_batch(messages: Messages) -> None:
    u = messages.universe
    batch = await messages.begin()
    begun = await u.seq()
    added = await batch.add("user", "one")
    assert added.seq is not None
    with pytest.raises(UndoConflict, match="messages of later commits"):
        await u.undo(begun)
    await u.undo(added.seq)
    assert await batch.messages() == []
    # The number is not given again: the history of the first is its own.
    assert (await batch.add("user", "two")).number == "2"
    edited = await messages.edit((await batch.messages())[0].id, "three")
    assert edited.seq is not None
    await u.undo(edited.seq)
    assert (await batch.messages())[0].text == "two"


async def test_trust_only_falls(messages: Messages) -> None:
    batch = await messages.begin()
    assert batch.trust == "partner"
    await batch.add("user", "x", trust="friend")
    assert await batch.lower_trust("conversant") == "conversant"
    assert await batch.lower_trust("partner") == "conversant"
    answer = await batch.add("assistant", "y")
    assert answer.trust == "conversant"
    again = await messages.get_batch(batch.id)
    assert again.trust == "conversant"
    await batch.complete()
    assert (await messages.history()).trust == "conversant"
    batch = await messages.begin(entries=[Entry("user", "x", trust="friend")])
    again = await messages.get_batch(batch.id)
    # Two handles lower it at once: the lowest counts.
    await asyncio.gather(batch.lower_trust("untrusted"), again.add("user", "z", trust="friend"))
    await again.reload()
    assert again.trust == "untrusted"
