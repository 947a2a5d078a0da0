"""Sessions of a command line: what was run, which agents were started, and what came out of it.

Every event, agent and artifact is committed only while its session is there, so none is ever without one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from dgent import clock
from dgent.errors import Conflict, InputError, NotFound
from dgent.membrane.membrane import Membrane, make_id
from dgent.membrane.project import project_hash as hash_project
from dgent.membrane.record import (
    EVENT,
    SESSION,
    SESSION_STATES,
    SESSION_TYPES,
    CLISession,
    CLISessionAgent,
    CLISessionArtifact,
    CLISessionEvent,
    key_of,
)
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.universe.universe import Universe
from dgent.universe.universe import open as open_universe

R = TypeVar("R")

FORGET_AT_ONCE = 500


@dataclass(frozen=True)
class SessionHit:
    """A session that a search found: by its name, or by the message of an event."""

    session: CLISession
    message: str
    score: float


class CLISessionService:
    """The sessions of a universe: `CLISessionService(u)`, or `await create_cli_session_service()`.

    `async with` closes the universe if the service opened it.
    """

    def __init__(self, universe: Universe, *, owns: bool = False) -> None:
        self._membrane = Membrane(universe)
        self._opened = universe if owns else None

    async def __aenter__(self) -> CLISessionService:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def owns_universe(self) -> bool:
        """True if `close` closes the universe, too."""
        return self._opened is not None

    async def close(self) -> None:
        """Close the universe that this service opened; one that it was given stays open."""
        if self._opened is not None:
            await self._opened.close()

    # -- the life of a session ----------------------------------------------------------------

    async def start_session(
        self,
        session_type: str = "interactive",
        name: str = "",
        *,
        project_path: str | Path | None = None,
        project_hash: str | None = None,
        flow_name: str | None = None,
        flow_path: str | None = None,
        budget_level: str = "medium",
        metadata: dict[str, Any] | None = None,
    ) -> CLISession:
        """Start a session, and log that; the hash of the project follows from its path unless given."""
        if session_type not in SESSION_TYPES:
            hint = f"use {', '.join(SESSION_TYPES[:-1])} or {SESSION_TYPES[-1]}"
            raise InputError(
                f"{session_type!r} is not a valid kind of session", hint=hint, field="session_type"
            )
        if project_hash is None and project_path is not None:
            project_hash = hash_project(project_path)
        session = CLISession(
            id=make_id("cli"),
            name=name or session_type,
            session_type=session_type,
            started_at=clock.now(),
            project_path=None if project_path is None else str(project_path),
            project_hash=project_hash,
            flow_name=flow_name,
            flow_path=flow_path,
            budget_level=budget_level,
            metadata=metadata or {},
        )
        await self._membrane.put(
            session, _event(session, "session_start", f"started {session.name}"), new=True
        )
        return session

    async def end_session(
        self, session_id: str, *, state: str = "completed", tokens_used: int | None = None
    ) -> bool:
        """End a session as completed, failed or interrupted; False if it has ended already."""
        if state not in SESSION_STATES[1:]:
            hint = "use completed, failed or interrupted"
            raise InputError(f"{state!r} is not a valid end of a session", hint=hint, field="state")
        return await self._move(session_id, "active", state, "session_end", tokens_used)

    async def resume(self, session_id: str) -> CLISession:
        """Go on with a session that has ended, and log that; one that is active stays as it is."""
        for state in SESSION_STATES[1:]:
            if await self._move(session_id, state, "active", "session_resume"):
                break
        return await self.get_session(session_id)

    async def _move(
        self, session_id: str, before: str, after: str, event_type: str, tokens_used: int | None = None
    ) -> bool:
        """Change the state of a session if it is as expected; return whether it was."""

        def work(session: CLISession) -> list[Any]:
            if session.state != before:
                return []
            ended_at = None if after == "active" else clock.now()
            used = session.tokens_used if tokens_used is None else tokens_used
            moved = replace(session, state=after, ended_at=ended_at, tokens_used=used)
            return [moved, _event(session, event_type, f"{after}: {session.name}")]

        return await self._membrane.change(CLISession, session_id, work) is not None

    # -- what happens in a session ------------------------------------------------------------

    async def log_event(
        self,
        session_id: str,
        event_type: str,
        source: str,
        message: str,
        data: Any = None,
    ) -> CLISessionEvent:
        """Log an event of an active session."""
        event = CLISessionEvent(
            id=make_id("evt"),
            session_id=session_id,
            timestamp=clock.now(),
            event_type=event_type,
            source=source,
            message=message,
            data=data,
        )
        await self._add(event)
        return event

    async def spawn_agent(
        self, session_id: str, name: str, genus: str, metadata: dict[str, Any] | None = None
    ) -> CLISessionAgent:
        """Record that an agent runs in a session."""
        agent = CLISessionAgent(
            id=make_id("agt"),
            session_id=session_id,
            name=name,
            genus=genus,
            status="running",
            started_at=clock.now(),
            metadata=metadata or {},
        )
        await self._add(agent)
        return agent

    async def complete_agent(
        self, agent_id: str, status: str = "completed", error: str | None = None
    ) -> bool:
        """Record that an agent has ended; False if that was recorded already."""

        def work(agent: CLISessionAgent) -> list[CLISessionAgent]:
            if agent.completed_at is not None:
                return []
            return [replace(agent, status=status, error=error, completed_at=clock.now())]

        return await self._membrane.change(CLISessionAgent, agent_id, work) is not None

    async def record_artifact(
        self,
        session_id: str,
        name: str,
        artifact_type: str,
        *,
        path: str | Path | None = None,
        size_bytes: int | None = None,
        content_preview: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> CLISessionArtifact:
        """Record an output of a session."""
        now = clock.now()
        artifact = CLISessionArtifact(
            id=make_id("art"),
            session_id=session_id,
            name=name,
            path=None if path is None else str(path),
            artifact_type=artifact_type,
            created_at=now,
            updated_at=now,
            size_bytes=size_bytes,
            content_preview=content_preview,
            metadata=metadata or {},
        )
        await self._add(artifact)
        return artifact

    async def _add(self, record: CLISessionEvent | CLISessionAgent | CLISessionArtifact) -> None:
        session = await self.get_session(record.session_id)
        if session.state != "active":
            raise Conflict(
                f"the session {session.id!r} has ended as {session.state}",
                hint=f"`dgent session resume {session.id}` goes on with it",
                id=session.id,
            )
        await self._membrane.put(record, new=True)

    async def forget_session(self, session_id: str) -> int:
        """Erase a session with all that is in it for good; return how many records that were."""
        await self.get_session(session_id)
        count = 0
        kinds: tuple[type[Any], ...] = (CLISessionEvent, CLISessionAgent, CLISessionArtifact)
        for kind in kinds:
            while found := await self._membrane.list(kind, session_id=session_id, limit=FORGET_AT_ONCE):
                await self._membrane.forget(kind, *map(key_of, found))
                count += len(found)
        # The session last: a crash before leaves something to forget again.
        await self._membrane.forget(CLISession, session_id)
        return count + 1

    # -- reads --------------------------------------------------------------------------------

    async def get_session(self, session_id: str) -> CLISession:
        """Return a session; raises NotFound."""
        found = await self._membrane.get(CLISession, session_id)
        if found is None:
            raise _missing(session_id)
        return found

    async def list_sessions(
        self,
        limit: int = 20,
        *,
        state: str | None = None,
        project_hash: str | None = None,
        session_type: str | None = None,
    ) -> list[CLISession]:
        """Return sessions, newest first."""
        return await self._membrane.list(
            CLISession, limit=limit, state=state, project_hash=project_hash, session_type=session_type
        )

    async def get_session_events(
        self, session_id: str, limit: int | None = 100, event_type: str | None = None
    ) -> list[CLISessionEvent]:
        """Return the events of a session, newest first."""
        return await self._of_session(CLISessionEvent, session_id, limit, event_type=event_type)

    async def get_session_agents(self, session_id: str, limit: int | None = 100) -> list[CLISessionAgent]:
        """Return the agents of a session, newest first."""
        return await self._of_session(CLISessionAgent, session_id, limit)

    async def get_session_artifacts(
        self, session_id: str, limit: int | None = 100
    ) -> list[CLISessionArtifact]:
        """Return the artifacts of a session, newest first."""
        return await self._of_session(CLISessionArtifact, session_id, limit)

    async def _of_session(self, kind: type[R], session_id: str, limit: int | None, **where: Any) -> list[R]:
        await self.get_session(session_id)
        return await self._membrane.list(kind, limit=limit, session_id=session_id, **where)

    async def search(
        self, text: str, limit: int = 20, *, project_hash: str | None = None
    ) -> list[SessionHit]:
        """Return sessions whose names, or messages of their events, fit the words best; each once."""
        universe = self._membrane.universe
        found = await universe.search_among((SESSION.name, EVENT.name), text, Query(), max(4 * limit, 50))
        hits: dict[str, SessionHit] = {}
        for hit in found:
            if not isinstance(hit.record, Crystal) or len(hits) >= limit:
                continue
            value: CLISession | CLISessionEvent = hit.record.value
            id = value.id if isinstance(value, CLISession) else value.session_id
            session = None if id in hits else await self._membrane.get(CLISession, id)
            if session is None or project_hash not in (None, session.project_hash):
                continue
            message = value.message if isinstance(value, CLISessionEvent) else session.name
            hits[id] = SessionHit(session, message, hit.score)
        return list(hits.values())


def _event(session: CLISession, event_type: str, message: str) -> CLISessionEvent:
    return CLISessionEvent(
        id=make_id("evt"),
        session_id=session.id,
        timestamp=clock.now(),
        event_type=event_type,
        source="session",
        message=message,
    )


def _missing(session_id: str) -> NotFound:
    return NotFound(
        f"there is no session {session_id!r}", hint="`dgent session list` has them", id=session_id
    )


async def create_cli_session_service(url: str | None = None, *, author: str = "system") -> CLISessionService:
    """Open a universe, the default one without a URL, and return its sessions; `close` closes it."""
    return CLISessionService(await open_universe(url, author=author), owns=True)
