"""A run of ADK on all three services, forgetting a user, and the error without ADK."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import Event, EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools import ToolContext, load_memory
from google.genai import types

import dgent
from dgent.bridges.adk import DgentArtifactService, DgentMemoryService, DgentSessionService, forget_user
from dgent.exchange.user import forget_user as forget_everywhere
from tests.bridges.adk.place import ENGINES, NAMES, place


class Scripted(BaseLlm):
    """A model that calls the next tool of a script, and tells what it was given at the end."""

    script: list[Any]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        step = self.script.pop(0)
        if isinstance(step, str):
            part = types.Part(text=f"{step} ({len(llm_request.contents)} contents)")
        else:
            part = types.Part(function_call=types.FunctionCall(name=step[0], args=step[1]))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def note(text: str, tool_context: ToolContext) -> str:
    """Save a note."""
    tool_context.state["user:notes"] = tool_context.state.get("user:notes", 0) + 1
    tool_context.state["temp:now"] = text
    version = await tool_context.save_artifact("note.txt", types.Part(text=text))
    return f"version {version}"


async def run(url: str, script: list[Any], text: str) -> list[Event]:
    """Ask an agent in services that are opened for this one turn."""
    sessions, memories = DgentSessionService(url), DgentMemoryService(url)
    artifacts = DgentArtifactService(url)
    agent = LlmAgent(
        name="keeper", model=Scripted(model="scripted", script=script), tools=[note, load_memory]
    )
    runner = Runner(
        app_name="app",
        agent=agent,
        session_service=sessions,
        memory_service=memories,
        artifact_service=artifacts,
        auto_create_session=True,
    )
    message = types.Content(role="user", parts=[types.Part(text=text)])
    events = [each async for each in runner.run_async(user_id="ann", session_id="s", new_message=message)]
    session = await sessions.get_session(app_name="app", user_id="ann", session_id="s")
    assert session is not None
    await memories.add_session_to_memory(session)
    await runner.close()
    for service in (sessions, memories, artifacts):
        await service.aclose()
    return events


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
async def test_a_run_goes_on_after_restarts(tmp_path: Path) -> None:
    url = place("sqlite", tmp_path)
    await run(url, [("note", {"text": "the lamp is broken"}), "Noted"], "Note that the lamp is broken")
    await run(url, [("note", {"text": "the lamp is mended"}), "Noted"], "Now it is mended")
    events = await run(url, [("load_memory", {"query": "lamp broken"}), "It was"], "Was the lamp broken?")
    answer = events[1].get_function_responses()[0].response
    assert answer is not None and "the lamp is broken" in str(answer)
    assert events[-1].content is not None and events[-1].content.parts is not None
    assert (
        events[-1].content.parts[0].text == "It was (11 contents)"
    )  # four of each turn before, three of this
    async with dgent.open(url) as u:
        session = await DgentSessionService(u).get_session(app_name="app", user_id="ann", session_id="s")
        assert session is not None and len(session.events) == 12
        assert session.state == {"user:notes": 2}
        artifacts = DgentArtifactService(u)
        name = {"app_name": "app", "user_id": "ann", "session_id": "s", "filename": "note.txt"}
        assert await artifacts.list_versions(**name) == [0, 1]
        assert await artifacts.load_artifact(**name, version=0) == types.Part(text="the lamp is broken")


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_user_is_forgotten_with_what_was_deleted(engine: str, tmp_path: Path) -> None:
    async with dgent.open(place(engine, tmp_path)) as u:
        sessions, memories, artifacts = DgentSessionService(u), DgentMemoryService(u), DgentArtifactService(u)
        for name in NAMES[:6]:
            user = {"app_name": "app", "user_id": name}
            content = types.Content(parts=[types.Part(text="a secret")])
            for session_id in ("s", "gone"):
                session = await sessions.create_session(**user, session_id=session_id, state={"k": "secret"})
                delta = {"user:u": 1, "app:a": 1}
                event = Event(author="user", content=content, actions=EventActions(state_delta=delta))
                await sessions.append_event(session, event)
                await memories.add_session_to_memory(session)
                where = {**user, "session_id": session_id, "filename": session_id}
                await artifacts.save_artifact(**where, artifact=types.Part(text="secret"))
            await sessions.delete_session(**user, session_id="gone")
            await artifacts.delete_artifact(**user, session_id="gone", filename="gone")
        before = {each.id for each in await u.query(limit=None, raw=True)}
        assert await forget_user(u, app_name="app", user_id="a/b") == 13  # 5 of them were deleted
        after = {each.id for each in await u.query(limit=None, raw=True)}
        gone = before - after
        assert len(gone) == 8 and all(id.split("/")[2] == "a~1b" for id in gone)
        changed = {item.id for change in await u.changes() for item in change.items if item.op != "forget"}
        assert not any(id and "/a~1b/" in id for id in changed)
        assert await u.history("adk.event/app/a~1b/gone/000000") == []
        assert len(await u.history("adk.event/app/ann/gone/000000")) == 2
        assert await forget_user(u, app_name="app", user_id="nobody") == 0
        assert (await forget_everywhere(u, "ann")).records == 13
        assert await u.history("adk.event/app/ann/gone/000000") == []
        left = {each.id for each in await u.query(limit=None, raw=True)}
        assert len(after - left) == 8 and all(id.split("/")[2] == "ann" for id in after - left)
        for service in (sessions, memories, artifacts):
            await service.aclose()


def test_without_adk_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['google.adk'] = None; import dgent.bridges.adk"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'dgent[adk]'" in done.stderr
