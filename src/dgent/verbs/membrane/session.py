"""Verbs for sessions of the command line, and for the programs that run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dgent.errors import Conflict, InputError, NotFound
from dgent.membrane.instance import Instances
from dgent.membrane.project import project_hash
from dgent.membrane.record import (
    CLISession,
    CLISessionAgent,
    CLISessionArtifact,
    CLISessionEvent,
    Instance,
)
from dgent.membrane.session import CLISessionService, SessionHit
from dgent.membrane.shell import resume_in_shell
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, Items, argument, option, verb

SessionId = Annotated[str, argument("the session's id", complete="session")]
Limit = Annotated[int, option("how many at most", short="n")]
Project = Annotated[
    str | None, option("only of this project: the hash that `session show` shows, or . for the one here")
]


async def sessions_of(context: Context) -> CLISessionService:
    """Return the sessions of the store of a call."""
    return CLISessionService(await context.universe())


def hash_of(context: Context, project: str | None) -> str | None:
    """Return the hash of a project that a caller names; `.` is the one that the settings found."""
    if project != ".":
        return project
    folder = context.settings.project
    return project_hash(Path.cwd() if folder is None else folder)


class ListSessions(Ask):
    """Input of `session.list`."""

    state: Annotated[
        Literal["active", "completed", "failed", "interrupted"] | None, option("only those in this state")
    ] = None
    project: Project = None
    limit: Limit = 20


@verb("session.list", effect="read")
async def list_(context: Context, ask: ListSessions) -> Items[CLISession]:
    """List sessions, newest first."""
    wanted = hash_of(context, ask.project)
    sessions = await sessions_of(context)
    return Items(await sessions.list_sessions(ask.limit, state=ask.state, project_hash=wanted))


class WholeSession(msgspec.Struct, frozen=True):
    """A session with what happened in it: events, agents and artifacts, the oldest first."""

    session: CLISession
    events: list[CLISessionEvent]
    agents: list[CLISessionAgent]
    artifacts: list[CLISessionArtifact]


class ShowSession(Ask):
    """Input of `session.show`."""

    id: SessionId
    limit: Limit = 100


@verb("session.show", effect="read", errors=(NotFound,))
async def show(context: Context, ask: ShowSession) -> WholeSession:
    """Show a session with its newest events, its agents and what came out of it."""
    sessions = await sessions_of(context)
    return WholeSession(
        await sessions.get_session(ask.id),
        (await sessions.get_session_events(ask.id, ask.limit))[::-1],
        (await sessions.get_session_agents(ask.id, ask.limit))[::-1],
        (await sessions.get_session_artifacts(ask.id, ask.limit))[::-1],
    )


class StartSession(Ask):
    """Input of `session.start`."""

    name: Annotated[str, argument("what it is about", words=True)]
    kind: Annotated[
        Literal["interactive", "repl", "flow", "script"], option("the kind of session", short="k")
    ] = "script"
    project: Project = None


@verb("session.start", effect="append", errors=(InputError,), makes=True)
async def start(context: Context, ask: StartSession) -> CLISession:
    """Start a session, for a program that logs what it does."""
    wanted = hash_of(context, ask.project)
    return await (await sessions_of(context)).start_session(ask.kind, ask.name, project_hash=wanted)


class LogEvent(Ask):
    """Input of `session.log`."""

    id: SessionId
    message: Annotated[str, argument("what happened", words=True)]
    event_type: Annotated[str, option("the kind of event", name="type", short="t")] = "note"
    source: Annotated[str, option("what reports it")] = "user"


@verb("session.log", effect="append", errors=(NotFound, Conflict))
async def log(context: Context, ask: LogEvent) -> CLISessionEvent:
    """Log an event in an active session."""
    return await (await sessions_of(context)).log_event(ask.id, ask.event_type, ask.source, ask.message)


class EndSession(Ask):
    """Input of `session.end`."""

    id: SessionId
    state: Annotated[Literal["completed", "failed", "interrupted"], option("how it ended")] = "completed"


@verb("session.end", effect="write", errors=(NotFound,))
async def end(context: Context, ask: EndSession) -> CLISession:
    """End a session; one that has ended stays as it is."""
    sessions = await sessions_of(context)
    await sessions.end_session(ask.id, state=ask.state)
    return await sessions.get_session(ask.id)


class ResumeSession(Ask):
    """Input of `session.resume`."""

    id: SessionId


@verb("session.resume", effect="write", errors=(NotFound,))
async def resume(context: Context, ask: ResumeSession) -> CLISession:
    """Go on with a session that has ended; in a shell its commands are logged there from now on."""
    if context.shell is None:
        return await (await sessions_of(context)).resume(ask.id)
    return await resume_in_shell(await context.universe(), ask.id, context.shell)


class ForgetSession(Ask):
    """Input of `session.forget`."""

    id: SessionId


class SessionErasure(msgspec.Struct, frozen=True):
    """A session that was erased, and how many records that were with its events, agents and artifacts."""

    id: str
    records: int


@verb("session.forget", effect="destroy", errors=(NotFound,))
async def forget(context: Context, ask: ForgetSession) -> SessionErasure:
    """Erase a session with its events, agents and artifacts for good."""
    return SessionErasure(ask.id, await (await sessions_of(context)).forget_session(ask.id))


class SearchSessions(Ask):
    """Input of `session.search`."""

    text: Annotated[str, argument("the words", words=True)]
    project: Project = None
    limit: Limit = 20


@verb("session.search", effect="read")
async def search(context: Context, ask: SearchSessions) -> Items[SessionHit]:
    """Find sessions by their names and by what happened in them, the best first."""
    wanted = hash_of(context, ask.project)
    return Items(await (await sessions_of(context)).search(ask.text, ask.limit, project_hash=wanted))


class ListInstances(Ask):
    """Input of `instance.list`."""

    status: Annotated[
        Literal["active", "stale", "terminated"] | None, option("only those with this status")
    ] = None
    project: Project = None
    limit: Limit = 100


@verb("instance.list", effect="read")
async def list_instances(context: Context, ask: ListInstances) -> Items[Instance]:
    """List the programs that registered themselves, the last one first."""
    wanted = hash_of(context, ask.project)
    instances = Instances(await context.universe())
    return Items(await instances.list(status=ask.status, project_hash=wanted, limit=ask.limit))
