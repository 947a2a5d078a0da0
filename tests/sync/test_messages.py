"""Messages without an event loop: the same names, and every call blocks until it is answered."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pytest

import dgent
from dgent import messages as rooms
from dgent import sync
from dgent.errors import InputError
from dgent.sync import messages as blocking
from dgent.sync.messages import Entry, Inbox, Messages, Part

OTHERS = {"Batch", "Delivery", "Inbox", "Messages"}


def test_the_same_names_and_only_what_waits_is_another() -> None:
    assert set(blocking.__all__) == set(rooms.__all__)
    other = {name for name in rooms.__all__ if getattr(blocking, name) is not getattr(rooms, name)}
    assert other == OTHERS
    for name in OTHERS:
        for each, method in inspect.getmembers(getattr(blocking, name), inspect.isfunction):
            assert not inspect.iscoroutinefunction(method), each
            assert not {"async", "await"} & set((method.__doc__ or "").replace("`", " ").split())


def test_a_conversation_a_compression_and_the_queue(u: sync.Universe) -> None:
    messages = Messages(u, "scout")
    batch = messages.begin(entries=[Entry("user", "hello")])
    batch.add("assistant", [Part("tool_call", call="c", name="n")])
    with u.transaction() as tx:
        tx.put(dgent.Datum("note", data={}))
        batch.add_result("c", "done", tx=tx)
    assert batch.pending() == {} and batch.complete().count == 3
    assert [each.number for each in messages.get_batch(batch.id).messages()] == ["1", "2", "2.1"]
    messages.add("user", "later")

    def summarise(texts: Sequence[str]) -> str:
        return f"{len(texts)} texts"

    done = messages.compress({"strategy": "recursive_summary", "keep": 1}, summarise=summarise)
    assert done.messages == 3 and messages.history().summary.text == "3 texts"
    assert len(list(messages.export())) == 9
    Inbox(u, "ann").send("scout", "ping")
    found = Inbox(u, "scout").take()
    assert found is not None
    with found.keep():
        found.begin().interrupt()
    found.done()
    assert Inbox(u, "scout").list() == []
    with pytest.raises(InputError, match=r"universe of dgent\.sync"):
        Messages("memory:", "scout")  # type: ignore[arg-type]
