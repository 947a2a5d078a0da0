"""The queue: every message is delivered until it is done, and handled once, whoever dies."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from dgent.errors import Conflict, InputError
from dgent.messages import Delivery, Entry, Inbox, LeaseLost, Messages, TooSoon


async def taken(inbox: Inbox, lease_s: float = 300) -> Delivery:
    found = await inbox.take(lease_s=lease_s)
    assert found is not None
    return found


async def test_eight_workers_handle_each_message_once(everywhere: Messages) -> None:
    u = everywhere.universe
    sender, inbox = Inbox(u, "ann"), Inbox(u, "scout")
    for number in range(12):
        await sender.send(
            "scout", f"job {number}", type="user_request", priority=5 + number % 2, key=str(number)
        )
    assert await sender.send("scout", "job 0", type="user_request", key="0")
    handled: Counter[str] = Counter()

    async def work(number: int) -> None:
        while (found := await inbox.take(holder=f"w{number}")) is not None:
            batch = await found.begin()
            async with u.transaction() as tx:
                await batch.add("assistant", f"done by w{number}", tx=tx)
                await found.done(tx=tx)
            await batch.complete()
            handled[found.message.text] += 1

    await asyncio.gather(*map(work, range(8)))
    assert handled == Counter(f"job {number}" for number in range(12))
    assert await inbox.list() == [] and await everywhere.count() == 24
    requests = [each for each in (await everywhere.page(50)).items if each.role == "user"]
    assert {each.by for each in requests} == {"ann"}


async def test_a_message_is_delivered_again_and_its_batch_goes_on(messages: Messages) -> None:
    u = messages.universe
    inbox = Inbox(u, "scout")
    await Inbox(u, "ann").send("scout", "low", type="user_request", priority=1)
    await Inbox(u, "ann").send("scout", "hello", trust="conversant", origin="chat", type="user_request")
    first = await taken(inbox, lease_s=0.02)
    assert (first.message.text, first.message.trust, first.message.attempts) == ("hello", "conversant", 1)
    batch = await first.begin()
    assert batch.trust == "conversant" and batch.info.cause == first.id
    await asyncio.sleep(0.03)  # as if its worker had died
    second = await taken(inbox)
    assert (second.id, second.message.attempts) == (first.id, 2)
    assert (await second.begin()).id == batch.id and len(await batch.messages()) == 1
    for call in (first.done(), first.renew(), first.give_back("x")):
        with pytest.raises(LeaseLost):
            await call
    async with second.keep():
        await asyncio.sleep(0)
    await second.done()
    assert (await taken(inbox)).message.text == "low"
    assert await inbox.take() is None


async def test_a_message_that_keeps_failing_is_dead(messages: Messages) -> None:
    u = messages.universe
    inbox = Inbox(u, "scout")
    id = await Inbox(u, "ann").send("scout", "boom", type="system_trigger", attempts=2)
    await (await taken(inbox)).give_back("first", delay_s=0.02)
    assert await inbox.take() is None
    found = await inbox.take(wait_s=5)
    assert found is not None
    await found.give_back("second")
    assert await inbox.take() is None
    (dead,) = await inbox.list("dead")
    assert (dead.id, dead.attempts, dead.error) == (id, 2, "second")
    assert (await inbox.release(id)).attempts == 0
    await taken(inbox, lease_s=0.001)
    await asyncio.sleep(0.002)
    await taken(inbox, lease_s=0.001)
    await asyncio.sleep(0.002)
    assert await inbox.take() is None and (await inbox.list())[0].state == "dead"
    await inbox.drop(id)
    assert await inbox.list() == []
    with pytest.raises(InputError):
        await inbox.send("scout", "x", priority=10)
    await messages.add("user", "not in the queue")


async def test_a_wait_ends_when_a_message_comes(messages: Messages) -> None:
    u = messages.universe
    waiting = asyncio.ensure_future(Inbox(u, "scout").take(wait_s=10))
    await asyncio.sleep(0.01)
    await Inbox(u, "ann").send("scout", "now")
    found = await asyncio.wait_for(waiting, 5)
    assert found is not None and found.message.text == "now"


async def test_two_agents_do_not_answer_each_other_without_end(messages: Messages) -> None:
    u = messages.universe
    ann, scout = Inbox(u, "ann"), Inbox(u, "scout")
    await ann.send("scout", "ping", cooldown_s=0.05)
    for sender, to in ((scout, "ann"), (ann, "scout")):
        with pytest.raises(TooSoon) as caught:
            await sender.send(to, "pong")
        assert 0 <= caught.value.details["retry_s"] <= 0.05
    await scout.send("bob", "another pair")
    await scout.send("ann", "a user's", type="user_request")
    await asyncio.sleep(0.06)
    done = await asyncio.gather(
        *(each.send(to, "again") for each, to in ((scout, "ann"), (ann, "scout"))), return_exceptions=True
    )
    assert sum(isinstance(each, TooSoon) for each in done) == 1
    with pytest.raises(Conflict, match="waits already"):
        await Inbox(u, "bob").release((await Inbox(u, "bob").list())[0].id)


async def test_what_a_message_led_to_is_forgotten_with_it(messages: Messages) -> None:
    u = messages.universe
    inbox = Inbox(u, "scout")
    await Inbox(u, "ann").send("scout", "hunter2")
    found = await taken(inbox)
    batch = await found.begin()
    await batch.add_all([Entry("assistant", "ok")])
    assert await messages.forget(batch.id) == 2
    assert await inbox.list() == [] and await u.get(found.id) is None
