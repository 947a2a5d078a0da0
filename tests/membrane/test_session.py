"""Sessions: they are started, filled, ended, resumed and found; nothing of them is without its session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.errors import Conflict, Denied, InputError, NotFound
from dgent.membrane import CLISessionService, create_cli_session_service, project_hash


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as universe:
        yield universe


async def test_a_session_from_start_to_end(u: dgent.Universe, tmp_path: Path) -> None:
    service = CLISessionService(u)
    session = await service.start_session("repl", "My REPL", project_path=tmp_path)
    assert session.id.startswith("cli_") and session.project_hash == project_hash(tmp_path)
    await service.log_event(session.id, "command", "repl", "User ran check", {"n": 1})
    agent = await service.spawn_agent(session.id, "scout", "k-gent")
    assert await service.complete_agent(agent.id, "failed", "no answer")
    assert not await service.complete_agent(agent.id)
    await service.record_artifact(session.id, "report", "file", path=tmp_path / "r.md", size_bytes=3)
    assert await service.end_session(session.id, state="completed", tokens_used=12)
    assert not await service.end_session(session.id)
    ended = await service.get_session(session.id)
    assert (ended.state, ended.tokens_used, ended.name) == ("completed", 12, "My REPL")
    events = await service.get_session_events(session.id)
    assert [each.event_type for each in events] == ["session_end", "command", "session_start"]
    assert [each.data for each in await service.get_session_events(session.id, event_type="command")] == [
        {"n": 1}
    ]
    (stored,) = await service.get_session_agents(session.id)
    assert (stored.status, stored.error) == ("failed", "no answer")
    assert [each.size_bytes for each in await service.get_session_artifacts(session.id)] == [3]


async def test_an_ended_session_takes_events_again_after_resume(u: dgent.Universe) -> None:
    service = CLISessionService(u)
    session = await service.start_session("flow", "build")
    await service.end_session(session.id, state="interrupted")
    with pytest.raises(Conflict, match="has ended as interrupted"):
        await service.log_event(session.id, "command", "flow", "late")
    assert (await service.resume(session.id)).state == "active"
    assert (await service.resume(session.id)).ended_at is None
    await service.log_event(session.id, "command", "flow", "again")
    types = [each.event_type for each in await service.get_session_events(session.id)]
    assert types == ["command", "session_resume", "session_end", "session_start"]


async def test_nothing_is_stored_without_its_session(u: dgent.Universe) -> None:
    service = CLISessionService(u)
    for call in (
        service.log_event("cli_none", "command", "x", "y"),
        service.spawn_agent("cli_none", "a", "g"),
        service.record_artifact("cli_none", "a", "file"),
        service.get_session_events("cli_none"),
        service.end_session("cli_none"),
    ):
        with pytest.raises(NotFound):
            await call
    assert await u.count(schema="membrane.cli_session_event") == 0
    with pytest.raises(InputError, match="not a valid kind of session"):
        await service.start_session("party")


async def test_lists_filter_by_project_and_state(u: dgent.Universe, tmp_path: Path) -> None:
    service = CLISessionService(u)
    one = await service.start_session("script", "one", project_path=tmp_path / "a")
    two = await service.start_session("script", "two", project_path=tmp_path / "b")
    await service.end_session(two.id)
    assert [each.name for each in await service.list_sessions()] == ["two", "one"]
    assert [each.name for each in await service.list_sessions(state="active")] == ["one"]
    assert [each.name for each in await service.list_sessions(project_hash=two.project_hash)] == ["two"]
    assert one.project_hash != two.project_hash


async def test_search_finds_names_and_messages_once_per_session(u: dgent.Universe, tmp_path: Path) -> None:
    service = CLISessionService(u)
    one = await service.start_session("repl", "deploy the lighthouse", project_path=tmp_path)
    other = await service.start_session("repl", "plain")
    await service.log_event(one.id, "command", "repl", "lighthouse is up")
    await service.log_event(other.id, "command", "repl", "the lighthouse failed")
    found = await service.search("lighthouse")
    assert {each.session.id for each in found} == {one.id, other.id} and len(found) == 2
    only = await service.search("lighthouse", project_hash=project_hash(tmp_path))
    assert [each.session.id for each in only] == [one.id]
    assert await service.search("submarine") == []


async def test_two_who_end_a_session_at_once_end_it_once(u: dgent.Universe) -> None:
    service = CLISessionService(u)
    session = await service.start_session()
    done = await asyncio.gather(*(service.end_session(session.id) for _ in range(8)))
    assert sorted(done) == [False] * 7 + [True]
    assert len(await service.get_session_events(session.id, event_type="session_end")) == 1


async def test_a_forgotten_session_is_gone_with_all_that_is_in_it(u: dgent.Universe) -> None:
    service = CLISessionService(u)
    session, other = await service.start_session(name="heron"), await service.start_session(name="other")
    event = await service.log_event(session.id, "command", "repl", "heron flew")
    await service.spawn_agent(session.id, "scout", "g")
    await service.end_session(session.id)
    assert await service.forget_session(session.id) == 5  # with the events of its start and end
    assert await u.history(f"membrane.cli_session_event/{event.id}") == []
    assert await u.history(f"membrane.cli_session/{session.id}") == []
    assert await service.search("heron") == []
    assert [each.id for each in await service.list_sessions()] == [other.id]
    with pytest.raises(NotFound):
        await service.forget_session(session.id)


async def test_only_the_room_writes_its_records(u: dgent.Universe) -> None:
    session = await CLISessionService(u).start_session()
    with pytest.raises(Denied):
        await u.delete(f"membrane.cli_session/{session.id}")
    with pytest.raises(Denied):
        await u.put(dgent.Datum("membrane.shape/x", data={}))


async def test_sessions_are_not_what_undo_takes_back(u: dgent.Universe) -> None:
    from dgent.universe.history import find_undoable
    from dgent.universe.room import Describers

    await u.put(dgent.Datum("mine", data={"n": 1}))
    seq = await u.seq()
    service = CLISessionService(u)
    session = await service.start_session()
    await service.log_event(session.id, "command", "repl", "x")
    assert await find_undoable(u, Describers(u, None)) == seq


async def test_a_service_closes_only_the_universe_it_opened(u: dgent.Universe, tmp_path: Path) -> None:
    async with CLISessionService(u) as service:
        await service.start_session()
    assert await u.count(schema="membrane.cli_session") == 1
    made = await create_cli_session_service(f"sqlite:///{tmp_path}/other.db")
    async with made as service:
        session = await service.start_session("interactive", "My REPL")
        await service.log_event(session.id, "command", "repl", "User ran check")
        await service.end_session(session.id, state="completed")
    with pytest.raises(dgent.errors.Closed):
        await made.list_sessions()
