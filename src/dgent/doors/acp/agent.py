"""The agent as an editor sees it: what it can do, and its sessions.

A session is a thread of the persistent agent in a folder: it remembers all it ever knew, and each session
shows its own batches. Sessions are records, so they outlive the program that had them open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec
from acp import PROTOCOL_VERSION, RequestError, schema

from dgent import clock, ids
from dgent.doors.acp import update
from dgent.doors.acp.session import EditorSession
from dgent.errors import DgentError, InputError, NotFound
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.runtime.code.task import MODES, check_mode
from dgent.universe.universe import Universe

P = ParamSpec("P")
R = TypeVar("R")
PAGE = 50  # sessions that are listed at once
MAX_TITLE = 80
TITLES = {
    "plan": ("Plan", "Reads files, and changes and runs nothing."),
    "ask": ("Ask", "Asks before it changes a file or runs a command."),
    "code": ("Code", "Changes files without asking, and asks before it runs a command."),
    "auto": ("Auto", "Changes files and runs commands without asking."),
}


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session of an editor: its agent, folder, mode, and the beginning of its first prompt."""

    agent: str
    folder: str
    mode: str = "ask"
    title: str = ""
    updated_at: str = ""


SESSION = Schema("dgent.editor_session", contract=SessionRecord, history="none", feed=False)


def answers(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Let errors of dgent reach the editor as errors of JSON-RPC, with their hints."""

    @wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await function(*args, **kwargs)
        except (InputError, NotFound) as error:
            raise RequestError(-32602, error.message, {"code": error.code, "hint": error.hint}) from None
        except DgentError as error:
            raise RequestError(-32603, error.message, {"code": error.code, "hint": error.hint}) from None

    return run


class AcpAgent:
    """Serves one editor. `options` is called for each session, and returns what its `AgentRuntime` takes."""

    def __init__(
        self, universe: Universe, agent: str, *, options: Callable[[], dict[str, Any]], mode: str = "ask"
    ) -> None:
        self.agent, self._universe, self._mode, self._options = agent, universe, check_mode(mode), options
        self._can = schema.ClientCapabilities()
        self._client: Any = None
        self._sessions: dict[str, EditorSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def on_connect(self, conn: Any) -> None:
        """Take the connection to the editor."""
        self._client = conn

    async def close(self) -> None:
        """End all sessions; what they were at can be resumed."""
        for session in tuple(self._sessions.values()):
            await session.close()
        self._sessions.clear()

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **_: Any,
    ) -> schema.InitializeResponse:
        """Say what this agent can do."""
        self._can = client_capabilities or schema.ClientCapabilities()
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=True),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    delete=schema.SessionDeleteCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
            agent_info=schema.Implementation(
                name="dgent", title=f"dgent: {self.agent}", version=version("dgent")
            ),
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        """Refuse: whoever starts this program is the partner."""
        raise RequestError.invalid_params({"methodId": "there is nothing to log in to"})

    # -- sessions -----------------------------------------------------------------------------

    @answers
    async def new_session(
        self, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> schema.NewSessionResponse:
        """Open a session in a folder."""
        id = ids.new_id()
        record = SessionRecord(agent=self.agent, folder=_check_folder(cwd), mode=self._mode)
        session = await self._open(id, record, mcp_servers)
        return schema.NewSessionResponse(session_id=id, modes=_show_modes(session.coder.tools.mode))

    @answers
    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> schema.LoadSessionResponse:
        """Open a session again, and send all that was said in it before the answer."""
        session = await self._reopen(session_id, cwd, mcp_servers)
        messages = session.runtime.messages
        batches = await messages.list_batches(limit=None)
        for info in reversed([each for each in batches if each.session == session_id]):
            said = await (await messages.get_batch(info.id)).messages()
            for made in await update.replay(self._universe, session.root, said):
                await session.send(made)
        return schema.LoadSessionResponse(modes=_show_modes(session.coder.tools.mode))

    @answers
    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> schema.ResumeSessionResponse:
        """Open a session again without sending what was said."""
        session = await self._reopen(session_id, cwd, mcp_servers)
        return schema.ResumeSessionResponse(modes=_show_modes(session.coder.tools.mode))

    @answers
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        """List the sessions of this agent, the newest first, or those of a folder."""
        where = {"agent": self.agent} | ({} if cwd is None else {"folder": cwd})
        query = Query(schema=SESSION.name, where=where, limit=PAGE, cursor=cursor)
        page = await self._universe.page(query, raw=True)
        found = [
            (each.id.partition("/")[2], msgspec.convert(each.data, SessionRecord)) for each in page.items
        ]
        return schema.ListSessionsResponse(
            sessions=[
                schema.SessionInfo(
                    session_id=id,
                    cwd=each.folder,
                    title=each.title or None,
                    updated_at=each.updated_at or None,
                )
                for id, each in found
            ],
            next_cursor=page.cursor,
        )

    @answers
    async def close_session(self, session_id: str, **_: Any) -> None:
        """End a session's work; it can be loaded again."""
        session = self._find(session_id)
        del self._sessions[session_id]
        await session.close()

    async def ext_method(self, method: str, params: dict[str, Any]) -> schema.DeleteSessionResponse:
        """Answer `session/delete`, which the SDK knows and does not route; there are no extensions."""
        if method != "session/delete":
            raise RequestError.method_not_found(f"_{method}")
        return await self.delete_session(schema.DeleteSessionRequest.model_validate(params).session_id)

    @answers
    async def delete_session(self, session_id: str) -> schema.DeleteSessionResponse:
        """Take a session off the list; the agent remembers what was said. An unknown one is no error."""
        record = await self._read(session_id)
        if record is not None and record.agent == self.agent:
            if session_id in self._sessions:
                await self._sessions.pop(session_id).close()
            await self._universe.delete(ids.compose(SESSION.name, session_id))
        return schema.DeleteSessionResponse()

    @answers
    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        """Choose what a session does without asking."""
        session = self._find(session_id)
        session.coder.tools.mode = check_mode(mode_id)
        await self._save(session_id, mode=mode_id)

    # -- prompts ------------------------------------------------------------------------------

    @answers
    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> schema.PromptResponse:
        """Answer a prompt of a session."""
        session = self._find(session_id)
        made = await session.prompt(prompt)
        if not session.title:
            said = " ".join(each.text for each in prompt if isinstance(each, schema.TextContentBlock))
            title = " ".join(said.split())[:MAX_TITLE]
            session.title = title or "an image"
            await self._save(session_id, title=session.title)
            info = schema.SessionInfoUpdate(session_update="session_info_update", title=session.title)
            await session.send(info)
        return made

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the answer of a session; one that is not open is left out."""
        if session_id in self._sessions:
            await self._sessions[session_id].cancel()

    # -- records --------------------------------------------------------------------------------

    def _find(self, id: str) -> EditorSession:
        if id not in self._sessions:
            raise NotFound(
                f"the session {id!r:.80} is not open", hint="open it with session/new or session/load"
            )
        return self._sessions[id]

    async def _reopen(self, id: str, cwd: str, servers: Sequence[Any] | None) -> EditorSession:
        record = await self._read(id)
        if record is None or record.agent != self.agent:
            raise NotFound(f"{self.agent} has no session {id!r:.80}", hint="session/list shows them")
        if id in self._sessions:
            await self._sessions.pop(id).close()
        return await self._open(id, msgspec.structs.replace(record, folder=_check_folder(cwd)), servers)

    async def _open(self, id: str, record: SessionRecord, servers: Sequence[Any] | None) -> EditorSession:
        session = EditorSession(
            self._universe,
            self.agent,
            id,
            Path(record.folder),
            self._client,
            self._can,
            mode=record.mode if record.mode in MODES else "ask",
            **self._options(),
        )
        self._sessions[id] = session
        session.title = record.title
        await self._save(id, **msgspec.structs.asdict(record))
        session.start_servers(servers or ())
        # Runs after the answer is written, which says what the session is called.
        task = asyncio.create_task(session.announce())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return session

    async def _read(self, id: str) -> SessionRecord | None:
        if not id or len(id) > 100:
            return None
        found = await self._universe.get(ids.compose(SESSION.name, id), raw=True)
        if found is None or found.schema != SESSION.name:
            return None
        return msgspec.convert(found.data, SessionRecord)

    async def _save(self, id: str, **changed: Any) -> None:
        self._universe.register(SESSION)
        known = await self._read(id)
        if known is None and "agent" not in changed:
            return  # it was deleted meanwhile
        fields = {} if known is None else msgspec.structs.asdict(known)
        record = SessionRecord(**{**fields, **changed, "updated_at": clock.text(clock.now())})
        data, key = msgspec.to_builtins(record), ids.compose(SESSION.name, id)
        await self._universe.put(Datum(key, data=data, schema=SESSION.name, schema_version=SESSION.version))


def _check_folder(folder: str) -> str:
    path = Path(folder)
    if not path.is_absolute() or not path.is_dir():
        raise InputError(f"{folder!r:.200} is not the absolute path of a folder", field="cwd")
    return str(path)


def _show_modes(mode: str) -> schema.SessionModeState:
    listed = [schema.SessionMode(id=id, name=name, description=text) for id, (name, text) in TITLES.items()]
    return schema.SessionModeState(current_mode_id=mode, available_modes=listed)
