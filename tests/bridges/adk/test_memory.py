"""Memory of ADK, beside its own service in memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event
from google.adk.memory import BaseMemoryService, InMemoryMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

import dgent
from dgent.bridges.adk import DgentMemoryService
from tests.bridges.adk.place import ENGINES, NAMES, place
from tests.soak import times

WORDS = ("lighthouse", "harbour", "storm", "captain", "anchor", "whale")


def make_event(choose: random.Random) -> Event:
    number = choose.randrange(12)
    parts = [
        types.Part(text=" ".join(choose.sample(WORDS, choose.randrange(3)))),
        types.Part(text=f"x{number}"),
    ]
    return Event(
        id=f"event {number}",
        author="user",
        timestamp=1_700_000_000 + number,
        content=choose.choice((None, types.Content(role="user", parts=parts), types.Content(parts=[]))),
    )


async def act(service: BaseMemoryService, step: tuple[str, dict[str, str], Any]) -> None:
    kind, user, extra = step
    if kind == "session":
        await service.add_session_to_memory(Session(**user, id=extra[0], events=extra[1]))
    elif kind == "events":
        await service.add_events_to_memory(**user, session_id=extra[0], events=extra[1])
    else:
        await service.delete_memory(**user, memory_id=extra)


async def view(service: BaseMemoryService, users: list[dict[str, str]]) -> Any:
    """Return what each user finds by each word, in a fixed order: ours ranks also by how rare a word is."""
    seen = []
    for user in users:
        for word in (*WORDS, *(f"x{number}" for number in range(12)), "nothing", " "):
            found = (await service.search_memory(**user, query=word)).memories
            seen.append(sorted(each.model_dump_json() for each in found))
    return seen


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(times(2)))
async def test_random_programs(engine: str, seed: int, tmp_path: Path) -> None:
    choose = random.Random(f"{engine} {seed}")
    ours, theirs = DgentMemoryService(place(engine, tmp_path), limit=1000), InMemoryMemoryService()
    users = [{"app_name": "app", "user_id": name} for name in NAMES[:2]]
    for _ in range(25):
        kind = choose.choice(("session", "session", "events", "events", "events", "delete"))
        extra: Any = f"event {choose.randrange(12)}"
        if kind != "delete":
            sessions = ("s", "t/u") if kind == "session" else ("s", "t/u", None)
            events = [make_event(choose) for _ in range(choose.randrange(1, 4))]
            different = {each.id: each for each in events}  # ADK's own service keeps two with one id
            extra = choose.choice(sessions), [*different.values()]
        step = kind, choose.choice(users), extra
        await act(theirs, step)
        await act(ours, step)
    assert await view(ours, users) == await view(theirs, users)
    await ours.aclose()


async def test_the_best_fit_comes_first_and_at_most_ten() -> None:
    service = DgentMemoryService("memory:")
    user = {"app_name": "app", "user_id": "ann"}
    events = [
        Event(author="user", content=types.Content(parts=[types.Part(text=f"the ship number {number}")]))
        for number in range(30)
    ]
    text = "Where is the lighthouse? The ship asks for the lighthouse."
    events.append(Event(author="user", id="best", content=types.Content(parts=[types.Part(text=text)])))
    await service.add_events_to_memory(**user, events=events, custom_metadata={"source": "log"})
    found = (await service.search_memory(**user, query="lighthouses for the ship")).memories
    assert len(found) == 10 and found[0].id == "best" and found[0].custom_metadata == {"source": "log"}
    for other in ({"app_name": "app", "user_id": "bob"}, {"app_name": "other", "user_id": "ann"}):
        assert (await service.search_memory(**other, query="lighthouse")).memories == []
    await service.aclose()


@pytest.mark.parametrize("engine", ENGINES)
async def test_entries_are_added_replaced_and_deleted(engine: str, tmp_path: Path) -> None:
    service = DgentMemoryService(place(engine, tmp_path))
    for name in NAMES:
        user = {"app_name": name, "user_id": name}
        entries = [
            MemoryEntry(id="/~d", content=types.Content(parts=[types.Part(text="likes tea")]), author="ann"),
            MemoryEntry(
                content=types.Content(parts=[types.Part(text="likes coffee")]), timestamp="2026-01-01"
            ),
        ]
        await service.add_memory(**user, memories=entries, custom_metadata={"k": [1]})
        changed = MemoryEntry(id="/~d", content=types.Content(parts=[types.Part(text="likes cocoa")]))
        await service.add_memory(**user, memories=[changed])
        found = (await service.search_memory(**user, query="likes")).memories
        assert {each.content.parts[0].text for each in found} == {"likes cocoa", "likes coffee"}
        for each in found:
            await service.delete_memory(**user, memory_id=each.id)
        assert (await service.search_memory(**user, query="likes")).memories == []
    await service.aclose()


async def test_memories_last_and_have_a_history(tmp_path: Path) -> None:
    url = place("sqlite", tmp_path)
    content = types.Content(
        parts=[types.Part(text="the lighthouse"), types.Part(inline_data=types.Blob(data=b"\xff"))]
    )
    session = Session(
        id="s", app_name="app", user_id="ann", events=[Event(author="user", id="e", content=content)]
    )
    service = DgentMemoryService(url)
    await service.add_session_to_memory(session)
    await service.aclose()
    async with dgent.open(url) as u:
        again = DgentMemoryService(u)
        seq = await u.seq()
        await again.add_session_to_memory(session)
        assert await u.seq() == seq  # nothing is new
        found = (await again.search_memory(app_name="app", user_id="ann", query="lighthouse")).memories
        assert [each.content for each in found] == [content]
        session.events.clear()
        await again.add_session_to_memory(session)
        assert await u.count(schema="adk.memory") == 0
        assert [each.datum is None for each in await u.history("adk.memory/app/ann/s/e")] == [True, False]
        await again.aclose()


async def test_a_deleted_memory_does_not_come_back() -> None:
    for service in (DgentMemoryService("memory:"), InMemoryMemoryService()):
        user = {"app_name": "app", "user_id": "ann"}
        events = [
            Event(author="user", id=id, content=types.Content(parts=[types.Part(text=f"word {id}")]))
            for id in ("one", "two")
        ]
        session = Session(**user, id="s", events=events)
        await service.add_session_to_memory(session)
        await service.delete_memory(**user, memory_id="one")
        await service.delete_memory(**user, memory_id="unknown")
        await service.delete_memory(**user)
        await service.add_session_to_memory(session)
        await service.add_events_to_memory(**user, events=events, session_id="other")
        found = (await service.search_memory(**user, query="word")).memories
        assert [each.id for each in found] == ["two", "two"]
        if isinstance(service, DgentMemoryService):
            await service.aclose()
