"""One stream of events for many consumers."""

from __future__ import annotations

import asyncio

import pytest

from dgent.errors import Closed, InputError
from dgent.runtime.event import Done, Event, Missed, Text, is_last
from dgent.runtime.hub import EventHub


def text(number: int) -> Text:
    return Text(text=str(number))


async def test_all_consumers_see_all_events_in_order() -> None:
    sunk: list[Event] = []

    async def sink(event: Event) -> None:
        await asyncio.sleep(0)
        sunk.append(event)

    async with EventHub() as hub:
        taps = [hub.tap(), hub.tap()]
        hub.add_sink(sink)
        last = hub.tap(wanted=is_last)
        sent = [*map(text, range(50)), Done(text="ok")]
        for event in sent:
            hub.publish(event)
    for tap in taps:
        assert [event async for event in tap] == sent
    assert sunk == sent
    assert [event async for event in last] == [sent[-1]]


async def test_a_slow_consumer_is_told_how_many_it_missed_and_holds_nobody_up() -> None:
    stuck = asyncio.Event()
    seen: list[Event] = []

    async def sink(event: Event) -> None:
        await stuck.wait()
        seen.append(event)

    hub = EventHub()
    hub.add_sink(sink, room=10)
    slow, quick = hub.tap(room=10), hub.tap(room=2000)
    for number in range(1000):
        hub.publish(text(number))
    hub.publish(Done(text="ok"))
    stuck.set()
    await hub.close()
    got = [event async for event in slow]
    assert isinstance(got[0], Missed) and len(got) <= 11
    assert got[0].count + len(got) - 1 == 1001 and slow.missed == got[0].count
    assert got[-1] == Done(text="ok") and got[-2] == text(999)
    assert len([event async for event in quick]) == 1001
    missed = sum(event.count for event in seen if isinstance(event, Missed))
    assert missed + len([event for event in seen if not isinstance(event, Missed)]) == 1001


async def test_the_end_of_a_batch_outlives_a_flood() -> None:
    async with EventHub(room=10) as hub:
        tap = hub.tap()
        hub.publish(Done(text="first"))
        for number in range(100):
            hub.publish(text(number))
    got = [event async for event in tap]
    assert (
        got[1] == Done(text="first")
        and sum(e.count for e in got if isinstance(e, Missed)) + len(got) - 1 == 101
    )


async def test_room_is_a_bound_even_for_endings() -> None:
    async with EventHub(room=4) as hub:
        tap = hub.tap()
        for number in range(100):
            hub.publish(Done(text=str(number)))
    got = [event async for event in tap]
    assert len(got) <= 5 and got[-1] == Done(text="99")
    assert sum(e.count for e in got if isinstance(e, Missed)) + len(got) - 1 == 100


async def test_a_sink_that_fails_is_removed_and_the_others_go_on() -> None:
    seen: list[Event] = []
    hub = EventHub()
    hub.add_sink(lambda event: 1 / 0)  # type: ignore[arg-type,return-value]
    hub.add_sink(seen.append)
    hub.publish(text(1))
    await asyncio.sleep(0.01)
    hub.publish(text(2))
    await hub.close()
    assert seen == [text(1), text(2)]
    assert [type(error) for error in hub.failures] == [ZeroDivisionError]


async def test_closing_wakes_readers_stops_stuck_sinks_and_refuses_more() -> None:
    hub = EventHub()

    async def stuck(event: Event) -> None:
        await asyncio.Event().wait()

    hub.add_sink(stuck)
    tap = hub.tap()
    reader = asyncio.create_task(anext(tap, None))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    with pytest.raises(InputError, match="one reader"):
        await anext(tap)
    hub.publish(text(1))
    assert await reader == text(1)
    waiting = asyncio.create_task(anext(tap, None))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await hub.close(timeout_s=0.01)
    assert await waiting is None and hub.failures == []
    with pytest.raises(Closed):
        hub.publish(text(2))
    with pytest.raises(Closed):
        hub.tap()
    await hub.close()


async def test_a_tap_that_is_closed_gets_no_more() -> None:
    async with EventHub() as hub:
        async with hub.tap() as tap:
            hub.publish(text(1))
        hub.publish(text(2))
        assert [event async for event in tap] == [text(1)]
    for wrong in (0, 1, 2.5, True):
        with pytest.raises(InputError):
            EventHub(wrong)  # type: ignore[arg-type]
