"""Whose messages they are: nobody reads or writes those of another agent, whatever the way."""

from __future__ import annotations

import pytest

import dgent
from dgent.errors import Denied, NotFound
from dgent.messages import Entry, Inbox, Messages
from dgent.model.query import Query
from dgent.universe.gate import Principal


async def test_a_conversant_reads_no_messages_of_others(messages: Messages) -> None:
    u = messages.universe
    secret = await messages.add("user", "the secret lighthouse")
    await messages.edit(secret.id, "the secret old lighthouse")
    begun = await u.seq()
    for trust in ("friend", "conversant"):
        guest = u.acting(Principal("guest", trust))
        with pytest.raises(Denied, match="guest"):
            Messages(guest, "scout")
        own = Messages(guest, "guest")
        mine = await own.add("user", "my own lighthouse", trust="partner")
        assert mine.trust == trust  # nobody vouches for more than for itself
        assert await guest.get(secret.id) is None
        assert await guest.history(secret.id) == []
        assert {each.data["agent"] for each in await guest.query(schema="message.message", raw=True)} == {
            "guest"
        }
        assert await guest.count(Query(schema="message.batch")) == await own.count()
        assert all("secret" not in str(hit.value) for hit in await guest.search("lighthouse", k=50))
        assert all(item.id != secret.id for change in await guest.changes() for item in change.items)
        assert [hit.message.agent for hit in await own.search("lighthouse") if hit.message] == ["guest"] * (
            await own.count()
        )
        assert not any(["secret" in line async for line in own.export()])
        with pytest.raises(NotFound):
            await own.get(secret.id)
        with pytest.raises(NotFound):
            await own.page(batch=secret.batch)
        with pytest.raises(NotFound):
            await own.resume(secret.batch)
        with pytest.raises(Denied):
            await guest.undo(begun)
    with pytest.raises(Denied):
        await Messages(u.acting(Principal("x", "untrusted")), "x").page()


async def test_a_conversant_only_adds(messages: Messages) -> None:
    guest = Messages(messages.universe.acting(Principal("guest", "conversant")), "guest")
    batch = await guest.begin(entries=[Entry("user", "hello")])
    (added,) = await batch.messages()
    with pytest.raises(Denied, match="may not write"):
        await guest.edit(added.id, "x")
    with pytest.raises(Denied, match="may not write"):
        await guest.delete(added.id)
    with pytest.raises(Denied, match="may not destroy"):
        await guest.forget(added.id)
    friend = Messages(messages.universe.acting(Principal("guest", "friend")), "guest")
    await friend.edit(added.id, "x")
    with pytest.raises(Denied, match="may not destroy"):
        await friend.redact("x")
    with pytest.raises(Denied, match="transaction of a principal"):
        async with guest.universe.transaction() as tx:
            await batch.add("user", "y", tx=tx)


async def test_a_conversant_sends_and_has_its_own_queue_only(messages: Messages) -> None:
    u = messages.universe
    guest = u.acting(Principal("guest", "conversant"))
    id = await Inbox(guest, "guest").send("scout", "let me in", trust="partner", type="user_request")
    await Inbox(u, "ann").send("scout", "a secret")
    await Inbox(u, "ann").send("guest", "for you")
    assert [each.data["text"] for each in await guest.query(schema="message.incoming", raw=True)] == [
        *("for you", "let me in")  # what it sent, it may see
    ]
    found = await Inbox(guest, "guest").take()
    assert found is not None and found.message.text == "for you"
    assert (await found.begin()).info.agent == "guest"
    await found.done()
    with pytest.raises(NotFound):
        await Inbox(u.acting(Principal("guest", "friend")), "guest").drop(id)
    taken = await Inbox(u, "scout").take()
    assert taken is not None and (taken.id, taken.message.trust) == (id, "conversant")


async def test_nobody_plants_or_changes_records_of_the_room(messages: Messages) -> None:
    added = await messages.add("user", "hello")
    u = messages.universe
    found = await u.get(added.id, raw=True)
    with pytest.raises(Denied):
        await u.put(found.replace(data={**found.data, "trust": "partner", "text": "forged"}))
    with pytest.raises(Denied):
        await u.put(found.replace(id=f"{added.batch}/00000009"))
    with pytest.raises(Denied):
        await u.delete(added.id)
    async with dgent.open("memory:") as empty:
        with pytest.raises(Denied):
            await empty.put(dgent.Datum("x", data={}, schema="message.message", schema_version=1))


async def test_an_edit_or_a_summary_has_no_more_trust_than_who_wrote_it(messages: Messages) -> None:
    said = await messages.add("user", "pay 10", trust="partner")
    friend = Messages(messages.universe.acting(Principal("scout", "friend")), "scout")
    edited = await friend.edit(said.id, "pay 1000")
    assert edited.trust == "friend"
    assert (await messages.get_batch(said.batch)).trust == "friend"
    for number in range(3):
        await messages.add("user", f"message {number}", trust="partner")

    async def summarise(texts: object) -> str:
        return "pay everything"

    await messages.delete(said.batch)
    await friend.compress({"strategy": "recursive_summary", "keep": 1}, summarise=summarise)
    assert [each.trust for each in await messages.list_summaries()] == ["friend"]
