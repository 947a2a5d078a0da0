"""An editor: starts `dgent acp` as a real process, and speaks to it with the official client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
from acp import schema
from acp.client.connection import ClientSideConnection
from pydantic import TypeAdapter

from tests.acp import conformance
from tests.mcp import host

RESULTS = {
    "initialize": schema.InitializeResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/prompt": schema.PromptResponse,
    "session/close": schema.CloseSessionResponse,
    "session/delete": schema.DeleteSessionResponse,
    "session/set_mode": schema.SetSessionModeResponse,
}
REQUESTS = {
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
    "fs/read_text_file": schema.ReadTextFileRequest,
    "fs/write_text_file": schema.WriteTextFileRequest,
    "terminal/create": schema.CreateTerminalRequest,
    "terminal/output": schema.TerminalOutputRequest,
    "terminal/release": schema.ReleaseTerminalRequest,
    "terminal/wait_for_exit": schema.WaitForTerminalExitRequest,
    "terminal/kill": schema.KillTerminalRequest,
}


class Checker:
    """Validates each message of the agent by the SDK's models, and by the JSON schema if it is here."""

    def __init__(self) -> None:
        self.asked: dict[Any, str] = {}
        self.checked = 0
        self.problems: list[str] = []

    def __call__(self, event: Any) -> None:
        message = event.message
        if event.direction.value == "outgoing":
            if "method" in message and "id" in message:
                self.asked[message["id"]] = message["method"]
            return
        self.checked += 1
        try:
            assert message["jsonrpc"] == "2.0"
            if "method" in message:
                self._check(REQUESTS[message["method"]], message["params"])
                conformance.check(message["method"], message["params"])
            elif "result" in message:
                self._check(RESULTS[self.asked[message["id"]]], message["result"])
                conformance.check(self.asked[message["id"]], message["result"], answer=True)
            else:
                TypeAdapter(schema.Error).validate_python(message["error"])
                conformance.check("", message["error"], error=True)
        except Exception as error:
            self.problems.append(f"{error}: {json.dumps(message)[:500]}")

    def _check(self, model: Any, given: Any) -> None:
        made = model.model_validate(given, strict=True)
        # What the model does not know would be dropped in silence.
        known = made.model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert known == given, f"{given} has more than {known}"


class Editor:
    """The client side: collects updates, answers questions, has files and terminals."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.choose: Callable[[Any], str | None] = lambda options: "once"
        self.buffers: dict[str, str] = {}
        self.written: dict[str, str] = {}
        self.terminals: dict[str, asyncio.subprocess.Process] = {}
        self.released: list[str] = []
        self.heard = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.heard.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Sequence[Any], **_: Any
    ) -> Any:
        self.asked.append((tool_call, list(options)))
        self.heard.set()
        chosen = self.choose(options)
        if chosen == "never":
            await asyncio.Event().wait()
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> Any:
        if path not in self.buffers:
            raise acp.RequestError.resource_not_found(path)
        return schema.ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> Any:
        self.written[path] = self.buffers[path] = content
        Path(path).write_text(content)
        return schema.WriteTextFileResponse()

    async def create_terminal(
        self, session_id: str, command: str, args: Any = None, cwd: str | None = None, **_: Any
    ) -> Any:
        process = await asyncio.create_subprocess_exec(
            command, *(args or ()), cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        id = f"t{len(self.terminals) + 1}"
        self.terminals[id] = process
        return schema.CreateTerminalResponse(terminal_id=id)

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        code = await self.terminals[terminal_id].wait()
        return schema.WaitForTerminalExitResponse(exit_code=code if code >= 0 else None, signal=None)

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        stream = self.terminals[terminal_id].stdout
        assert stream is not None
        return schema.TerminalOutputResponse(output=(await stream.read()).decode(), truncated=False)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        self.terminals[terminal_id].kill()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        self.released.append(terminal_id)

    def on_connect(self, conn: Any) -> None:
        pass

    def text(self, kind: str = "agent_message_chunk") -> str:
        """The text of all chunks of a kind."""
        return "".join(each.content.text for each in self.updates if each.session_update == kind)

    def of(self, kind: str) -> list[Any]:
        """The updates of a kind."""
        return [each for each in self.updates if each.session_update == kind]

    async def wait(self, done: Callable[[], Any]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(60):
            while not done():
                self.heard.clear()
                await self.heard.wait()


class Started(Editor):
    """A connected editor with its process."""

    agent: ClientSideConnection
    process: asyncio.subprocess.Process
    checker: Checker

    async def prompt(self, session: str, text: str) -> Any:
        return await self.agent.prompt(session_id=session, prompt=[acp.text_block(text)])

    async def delete(self, session: str) -> None:
        """Delete a session: the SDK's client has no method for it yet."""
        await self.agent._conn.send_request("session/delete", {"sessionId": session})


def write_script(path: Path, steps: Sequence[Any]) -> Path:
    path.write_text("\n".join(json.dumps(each) for each in steps))
    return path


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


def command(folder: Path, script: Path, *words: str) -> list[str]:
    store = f"sqlite:///{folder}/store.db"
    return host.command("--url", store, "--agent", "coder", "acp", "--model", f"script:{script}", *words)


@asynccontextmanager
async def start(folder: Path, steps: Sequence[Any], *words: str, **can: Any) -> AsyncIterator[Started]:
    """Start the agent with a script, and say hello; every message is checked at the end."""
    script = write_script(folder / "script.jsonl", steps)
    editor, checker = Started(), Checker()
    program, *rest = command(folder, script, *words)
    async with acp.spawn_agent_process(
        editor,  # type: ignore[arg-type]
        program,
        *rest,
        env=host.environment(folder),
        observers=[checker],
        use_unstable_protocol=True,
        transport_kwargs={"limit": 64 * 1024 * 1024},
    ) as (agent, process):
        editor.agent, editor.process, editor.checker = agent, process, checker
        capabilities = schema.ClientCapabilities(**can)
        await agent.initialize(protocol_version=1, client_capabilities=capabilities)
        yield editor
        assert checker.problems == []
