"""Sessions of Google's ADK beside its own SQLite service: `make bench-adk`, as ADK has a venv of its own."""

from __future__ import annotations

import asyncio
import itertools
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.adk.events import Event, EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from bench import table
from bench.bridges import BASE, GOAL, ITEMS, OURS, Work, compare_calls
from bench.measure import Row, say
from bench.plan import QUICK, Plan
from dgent.bridges.adk import DgentSessionService

_NAME = {"app_name": "app", "user_id": "ann"}


class Talk:
    """A session of one of the services, and its newest state."""

    def __init__(self, service: Any, session: Any) -> None:
        self.service, self.session = service, session
        self._count = itertools.count()

    async def append(self) -> None:
        """Store an event that changes the state."""
        number = next(self._count)
        content = types.Content(role="user", parts=[types.Part(text=f"message {number} " * 12)])
        actions = EventActions(state_delta={"turn": number})
        event = Event(author="user", invocation_id=f"i{number}", content=content, actions=actions)
        await self.service.append_event(self.session, event)

    async def get(self, config: GetSessionConfig | None = None) -> None:
        """Read the session with its events."""
        await self.service.get_session(**_NAME, session_id=self.session.id, config=config)

    async def create(self) -> None:
        """Begin another session."""
        await self.service.create_session(**_NAME, state={"a": 1})


async def adk(plan: Plan) -> list[Row]:
    """Measure the calls of a conversation."""
    say("  ADK's sessions on dgent")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        ours = await stack.enter_async_context(DgentSessionService(f"sqlite:///{folder}/ours.db"))
        services = {OURS: ours, BASE: SqliteSessionService(str(folder / "theirs.db"))}
        talks = {name: Talk(each, await each.create_session(**_NAME)) for name, each in services.items()}
        for talk in talks.values():
            for _ in range(ITEMS):
                await talk.append()
        recent = GetSessionConfig(num_recent_events=20)
        work: Work = {
            "append an event": Talk.append,
            f"get with more than {ITEMS} events": Talk.get,
            "get with the last 20": lambda talk: talk.get(recent),
            "create a session": Talk.create,
        }
        return await compare_calls(plan, "ADK session", "its SqliteSessionService", talks, work, GOAL)


if __name__ == "__main__":
    found = asyncio.run(adk(QUICK if "--quick" in sys.argv else Plan()))
    print(table.as_json(found, []) if "--json" in sys.argv else table.text(found, []))
