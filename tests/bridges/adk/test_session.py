"""Sessions of ADK, beside its own service in memory."""

from __future__ import annotations

import asyncio
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

import dgent
from dgent.bridges.adk import DgentSessionService
from tests.bridges.adk.place import ENGINES, NAMES, place
from tests.soak import first, times

KEYS = ("k", "app:a", "app:b", "user:u", "user:", "temp:t", "app:", "é\0", "n")
VALUES = (None, 1, "text", [1, {"a": None}], {}, 2**70, True, 1.5)
ERRORS = (AlreadyExistsError, SessionNotFoundError, StaleSessionError)


def make_event(choose: random.Random, number: int) -> Event:
    delta = {choose.choice(KEYS): choose.choice(VALUES) for _ in range(choose.randrange(4))}
    parts = [
        types.Part(text=f"say {number} \0é"),
        types.Part(inline_data=types.Blob(data=b"\xff\0", mime_type="image/png")),
        types.Part(function_call=types.FunctionCall(name="f", args={"a": [1, None, 2**70]}, id="c")),
    ]
    return Event(
        id=f"event {number}",
        author=choose.choice(("user", "agent")),
        invocation_id=f"i{number % 3}",
        timestamp=choose.choice((number, number + 0.25, 5.0)),
        content=choose.choice((None, types.Content(role="user", parts=choose.sample(parts, 2)))),
        actions=EventActions(state_delta=delta, artifact_delta={"f": 1}),
        partial=choose.choice((None, None, None, False, True)),
        long_running_tool_ids=choose.choice((None, {"c"})),
    )


def view(session: Session | None) -> Any:
    """Return all that can be seen of a session, except the time of its creation."""
    if session is None:
        return None
    seen = session.model_dump()
    if not seen["events"]:
        del seen["last_update_time"]
    return seen


async def view_all(service: BaseSessionService) -> Any:
    seen: list[Any] = []
    for app in ("app", "p/q"):
        for user in NAMES[:4]:
            seen.append(await service.get_user_state(app_name=app, user_id=user))
            listed = await service.list_sessions(app_name=app, user_id=user)
            seen.append(sorted((each.id, str(each.state)) for each in listed.sessions))
        everybody = await service.list_sessions(app_name=app)
        seen.append(sorted((each.user_id, each.id, str(each.state)) for each in everybody.sessions))
        assert not any(each.events for each in everybody.sessions)
    return seen


async def act(service: BaseSessionService, step: tuple[str, dict[str, str], Any]) -> Any:
    kind, name, extra = step
    try:
        if kind == "create":
            user = {"app_name": name["app_name"], "user_id": name["user_id"]}
            made = await service.create_session(**user, session_id=name["session_id"], state=extra)
            return view(made)
        if kind == "get":
            return view(await service.get_session(**name, config=extra))
        if kind == "delete":
            return await service.delete_session(**name)
        session = await service.get_session(**name) or Session(
            id=name["session_id"], app_name=name["app_name"], user_id=name["user_id"]
        )
        for event in extra:
            await service.append_event(session, event.model_copy(deep=True))
        return view(session)
    except ERRORS as error:
        return type(error).__name__


def make_step(choose: random.Random, number: int) -> tuple[str, dict[str, str], Any]:
    kind = choose.choice(("create", "create", "append", "append", "append", "append", "get", "get", "delete"))
    name = {
        "app_name": choose.choice(("app", "p/q")),
        "user_id": choose.choice(NAMES[:4]),
        "session_id": choose.choice((" s ", "s", "t/u")),
    }
    extra: Any = None
    if kind == "create":
        extra = choose.choice((None, {key: choose.choice(VALUES) for key in choose.sample(KEYS, 3)}))
    elif kind == "append":
        name["session_id"] = name["session_id"].strip()
        extra = [make_event(choose, number * 10 + place) for place in range(choose.randrange(1, 4))]
        if choose.random() < 0.5 and "temp:t" not in extra[0].actions.state_delta:
            extra.append(extra[0])  # delivered twice; with a temp: key, ADK's own service would add it twice
    elif kind == "get":
        recent, after = choose.choice((None, 0, 1, 3)), choose.choice((None, None, 5.0, number * 5.0))
        extra = choose.choice((None, GetSessionConfig(num_recent_events=recent, after_timestamp=after)))
    return kind, name, extra


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(times(3)))
async def test_random_programs(engine: str, seed: int, tmp_path: Path) -> None:
    choose = random.Random(f"{engine} {seed}")
    ours, theirs = DgentSessionService(place(engine, tmp_path)), InMemorySessionService()
    for number in range(40):
        step = make_step(choose, number)
        expected = await act(theirs, step)
        assert await act(ours, step) == expected, step
    assert await view_all(ours) == await view_all(theirs)
    await ours.aclose()


@pytest.mark.parametrize("engine", ENGINES)
async def test_names_of_any_kind_stay_apart(engine: str, tmp_path: Path) -> None:
    service = DgentSessionService(place(engine, tmp_path))
    names = [
        {"app_name": a, "user_id": u, "session_id": s}
        for a, u, s in zip(NAMES[:-2], NAMES[1:-1], NAMES[2:], strict=True)
    ]
    names += [
        {"app_name": "a", "user_id": "b/c", "session_id": "d"},
        {"app_name": "a/b", "user_id": "c", "session_id": "d"},
    ]
    for number, name in enumerate(names):
        user = {"app_name": name["app_name"], "user_id": name["user_id"]}
        session = await service.create_session(**user, session_id=name["session_id"], state={"n": number})
        await service.append_event(session, Event(author="user", id=f"{number}"))
    for number, name in enumerate(names):
        found = await service.get_session(**name)
        assert found is not None and found.state == {"n": number}
        assert [event.id for event in found.events] == [f"{number}"]
    await service.aclose()


async def test_a_restart_keeps_everything_and_undo_takes_back_an_event(tmp_path: Path) -> None:
    url = place("sqlite", tmp_path)
    name = {"app_name": "app", "user_id": "ann", "session_id": "s"}
    service = DgentSessionService(url)
    session = await service.create_session(**name, state={"k": 1, "app:a": 2, "user:u": math.inf})
    delta = {"k": 2, "user:u": 2**70, "temp:x": 1}
    content = types.Content(role="user", parts=[types.Part(text="the lighthouse")])
    event = Event(author="user", content=content, actions=EventActions(state_delta=delta))
    assert await service.append_event(session, event) is event
    assert session.state["temp:x"] == 1
    await service.aclose()
    async with dgent.open(url) as u:
        again = DgentSessionService(u)
        found = await again.get_session(**name)
        assert found is not None and found.state == {"k": 2, "app:a": 2, "user:u": 2**70}
        assert found.events[0].actions.state_delta == {"k": 2, "user:u": 2**70}
        assert (await u.search("lighthouse"))[0].datum.schema == "adk.event"
        await u.undo((await u.changes(until=None))[-1].seq)
        before = await again.get_session(**name)
        assert before is not None and before.events == []
        assert before.state == {"k": 1, "app:a": 2, "user:u": math.inf}
        with pytest.raises(StaleSessionError, match="get it again"):
            await again.append_event(found, Event(author="user"))
        await again.aclose()


async def test_an_event_is_one_commit() -> None:
    async with dgent.open("memory:") as u:
        service = DgentSessionService(u)
        session = await service.create_session(app_name="app", user_id="ann")
        before = await u.seq()
        delta = {"k": 1, "app:a": 1, "user:u": 1}
        await service.append_event(session, Event(author="user", actions=EventActions(state_delta=delta)))
        changes = await u.changes(before)
        assert len(changes) == 1 and len(changes[0].items) == 5
        seq = await u.seq()
        await service.append_event(session, Event(author="user", partial=True))
        assert await u.seq() == seq
        await service.aclose()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_session_that_others_changed_is_refused(engine: str, tmp_path: Path) -> None:
    url = place(engine, tmp_path)
    async with dgent.open(url) as u:
        service = DgentSessionService(u)
        name = {"app_name": "app", "user_id": "ann", "session_id": "s"}
        await service.create_session(**name)
        one, two = await service.get_session(**name), await service.get_session(**name)
        assert one is not None and two is not None
        await service.append_event(one, Event(author="user"))
        stale = Event(author="user", actions=EventActions(state_delta={"temp:t": 1, "k": 1}))
        with pytest.raises(StaleSessionError):
            await service.append_event(two, stale)
        assert two.events == [] and two.state == {} and "temp:t" in stale.actions.state_delta
        await service.delete_session(**name)
        await service.create_session(**name)
        with pytest.raises(StaleSessionError):
            await service.append_event(one, Event(author="user"))
        other = Session(id="s", app_name="app", user_id="ann")
        await service.append_event(other, Event(author="user"))
        await service.aclose()


async def test_tasks_that_share_a_session_lose_nothing(tmp_path: Path) -> None:
    service = DgentSessionService(place("sqlite", tmp_path))
    session = await service.create_session(app_name="app", user_id="ann", session_id="s")
    events = [
        Event(author="user", id=f"{n}", actions=EventActions(state_delta={f"k{n}": n})) for n in range(30)
    ]
    await asyncio.gather(*(service.append_event(session, event) for event in events))
    found = await service.get_session(app_name="app", user_id="ann", session_id="s")
    assert found is not None and found.state == session.state == {f"k{n}": n for n in range(30)}
    assert [each.id for each in found.events] == [each.id for each in session.events]
    await service.aclose()


PROGRAM = """
import asyncio, sys
from google.adk.errors import StaleSessionError
from google.adk.events import Event, EventActions
from dgent.bridges.adk import DgentSessionService

async def main(url, me):
    service = DgentSessionService(url)
    for number in range(15):
        while True:
            session = await service.get_session(app_name="app", user_id="ann", session_id="s")
            delta = {f"{me}{number}": 1, f"user:{me}{number}": 1}
            try:
                await service.append_event(session, Event(author=me, actions=EventActions(state_delta=delta)))
                break
            except StaleSessionError:
                pass
    await service.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("engine", first(["sqlite", "postgres"], 1))
async def test_processes_that_add_at_once_lose_nothing(engine: str, tmp_path: Path) -> None:
    url = place(engine, tmp_path)
    service = DgentSessionService(url)
    name = {"app_name": "app", "user_id": "ann", "session_id": "s"}
    await service.create_session(**name)
    running = [subprocess.Popen([sys.executable, "-c", PROGRAM, url, me]) for me in "ab"]
    assert [await asyncio.to_thread(each.wait, 100) for each in running] == [0, 0]
    found = await service.get_session(**name)
    assert found is not None and len(found.events) == 30
    own = {f"{me}{number}": 1 for me in "ab" for number in range(15)}
    assert found.state == {**own, **{f"user:{key}": 1 for key in own}}
    assert len(await service.get_user_state(app_name="app", user_id="ann")) == 30
    await service.aclose()


async def test_sessions_are_listed_by_their_last_update() -> None:
    service = DgentSessionService("memory:")
    made = [
        await service.create_session(app_name="app", user_id=f"u{n % 2}", session_id=f"{n}") for n in range(4)
    ]
    await service.append_event(made[0], Event(author="user", timestamp=made[3].last_update_time + 10))
    listed = (await service.list_sessions(app_name="app")).sessions
    assert [each.id for each in listed] == ["1", "2", "3", "0"]
    await service.append_event(listed[-1], Event(author="user"))  # one that was listed can be added to
    await service.aclose()


async def test_what_cannot_be_stored_stores_nothing() -> None:
    async with dgent.open("memory:") as u:
        service = DgentSessionService(u)
        session = await service.create_session(app_name="app", user_id="ann")
        seq = await u.seq()
        with pytest.raises(ValueError):
            await service.append_event(session, Event(author="\ud800"))
        assert await u.seq() == seq and session.events == []
        await service.aclose()


def test_any_event_loop_may_use_a_service(tmp_path: Path) -> None:
    with DgentSessionService(place("sqlite", tmp_path)) as service:
        session = asyncio.run(service.create_session(app_name="app", user_id="ann", session_id="s"))
        for _ in range(3):
            asyncio.run(service.append_event(session, Event(author="user")))
        found = asyncio.run(service.get_session(app_name="app", user_id="ann", session_id="s"))
        assert found is not None and len(found.events) == 3


async def test_a_cancelled_append_is_whole_or_not_there(tmp_path: Path) -> None:
    service = DgentSessionService(place("sqlite", tmp_path))
    name = {"app_name": "app", "user_id": "ann", "session_id": "s"}
    await service.create_session(**name)
    for number in range(10):
        session = await service.get_session(**name)
        assert session is not None
        event = Event(
            author="user", actions=EventActions(state_delta={f"k{number}": 1, f"user:u{number}": 1})
        )
        adding = asyncio.ensure_future(service.append_event(session, event))
        await asyncio.sleep(0.0002 * number)
        adding.cancel()
        await asyncio.gather(adding, return_exceptions=True)
        found = await service.get_session(**name)
        assert found is not None
        added = found.events[-1:] == [event]
        assert (f"k{number}" in found.state) == (f"user:u{number}" in found.state) == added
    await service.aclose()


@pytest.mark.parametrize("engine", ENGINES[1:])
async def test_sessions_that_change_a_shared_state_at_once_lose_nothing(engine: str, tmp_path: Path) -> None:
    url = place(engine, tmp_path)
    async with dgent.open(url) as u, dgent.open(url) as v:
        services = [DgentSessionService(u), DgentSessionService(v)]

        async def add(number: int) -> None:
            service = services[number % 2]
            session = await service.create_session(app_name="app", user_id="ann", session_id=f"{number}")
            for step in range(4):
                delta = {f"user:{number} {step}": 1, f"app:{number} {step}": 1}
                await service.append_event(
                    session, Event(author="u", actions=EventActions(state_delta=delta))
                )

        await asyncio.gather(*map(add, range(6)))
        found = await services[0].get_session(app_name="app", user_id="ann", session_id="0")
        keys = {
            f"{scope}:{number} {step}"
            for scope in ("user", "app")
            for number in range(6)
            for step in range(4)
        }
        assert found is not None and found.state.keys() == keys
        for service in services:
            await service.aclose()


async def test_long_sessions_are_read_from_a_time_on() -> None:
    ours, theirs = DgentSessionService("memory:"), InMemorySessionService()
    name = {"app_name": "app", "user_id": "ann", "session_id": "s"}
    for service in (ours, theirs):
        session = await service.create_session(**name)
        for number in range(450):
            at = float(number) if number % 7 else 100.0  # clocks of several machines
            await service.append_event(session, Event(author="user", id=f"{number}", timestamp=at))
    for recent in (None, 0, 3, 300, 1000):
        for after in (None, 0.0, 99.5, 100.0, 101.0, 225.0, 449.0, 1000.0):
            config = GetSessionConfig(num_recent_events=recent, after_timestamp=after)
            found, expected = [await each.get_session(**name, config=config) for each in (ours, theirs)]
            assert found is not None and expected is not None
            assert [each.id for each in found.events] == [each.id for each in expected.events], config
    await ours.aclose()
