"""The same story on every engine: a batch with calls, an interruption, pages, search, edits, in and out."""

from __future__ import annotations

import asyncio

import dgent
from dgent.messages import Entry, Messages, Part


async def test_a_batch_from_the_request_to_the_answer(everywhere: Messages) -> None:
    messages = everywhere
    await messages.add("user", "an earlier word about the harbour", origin="cli")
    batch = await messages.begin(
        entries=[Entry("user", "find the lighthouse", trust="friend", origin="chat", by="ann")]
    )
    calls = [
        Part("thinking", "two tools", signature="s"),
        Part("text", "I look"),
        Part("tool_call", call="c1", name="search", arguments={"q": "lighthouse"}),
        Part("tool_call", call="c2", name="web"),
    ]
    asked = await batch.add("assistant", calls, usage={"input": 12})
    await batch.add("user", "please hurry")
    late = await batch.add_result("c2", "a page", trust="untrusted", origin="https://example.org")
    await batch.add_result("c1", "on the coast")
    assert await batch.pending() == {} and batch.trust == "untrusted"
    await batch.add("assistant", "It stands on the coast.")
    ended = await batch.complete(usage={"input": 40})
    assert (ended.state, ended.count, ended.trust, ended.usage) == ("complete", 6, "untrusted", {"input": 40})

    shown = await batch.messages()
    assert [each.number for each in shown] == ["1", "2", "2.1", "2.2", "3", "4"]
    assert shown[1].parts == tuple(calls) and shown[1].usage == {"input": 12} and shown[1].id == asked.id
    assert (shown[3].trust, shown[3].origin, shown[3].id) == ("untrusted", "https://example.org", late.id)
    # What was said before anything untrusted was read keeps its own trust; what came after has the lowest.
    assert [each.trust for each in shown] == [
        "friend",
        "friend",
        "untrusted",
        "untrusted",
        "friend",
        "untrusted",
    ]

    first = await messages.page(4)
    rest = await messages.page(4, cursor=first.cursor)
    assert [each.number for each in first.items + rest.items] == ["4", "3", "2.2", "2.1", "2", "1", "1"]
    assert rest.cursor is None and await messages.count() == 7
    hits = await messages.search("harbour")
    assert hits[0].message is not None and "harbour" in hits[0].snippet

    edited = await messages.edit(shown[0].id, "find the old lighthouse")
    assert edited.edited_at is not None and edited.at == shown[0].at
    assert len(await messages.universe.history(shown[0].id)) == 2
    lines = [line async for line in messages.export()]
    async with dgent.open("memory:") as other:
        copy = Messages(other, "scout")
        assert (await copy.load(lines)).added == 9
        assert [line async for line in copy.export()] == lines
        # What comes after what was imported stands after it, though this store has fewer commits.
        await copy.add("user", "new here")
        assert [each.text for each in (await copy.page(2)).items] == ["new here", "It stands on the coast."]
    assert await messages.delete(asked.id) == 3
    assert [each.number for each in await batch.messages()] == ["1", "3", "4"]
    assert await messages.redact("coast") == 2  # a deleted one, too
    assert await messages.search("coast") == []
    assert await messages.forget(batch.id) == 3 + 2 and await messages.count() == 1


async def test_eight_at_once_in_one_batch_and_in_their_own(everywhere: Messages) -> None:
    batch = await everywhere.begin()
    handles = [await everywhere.get_batch(batch.id) for _ in range(4)]

    async def add(number: int) -> None:
        await handles[number % 4].add("user", f"part {number}", key=f"k{number % 6}")
        await everywhere.add("user", f"own {number}")

    await asyncio.gather(*map(add, range(8)))
    shown = await batch.messages()
    assert [each.number for each in shown] == ["1", "2", "3", "4", "5", "6"]  # k0 and k1 came twice
    assert sorted(each.seq or 0 for each in shown) == [each.seq for each in shown]
    assert await everywhere.count() == 14
