"""One session of an editor: prompts in, updates out, and questions to the partner in between."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from acp import RequestError, helpers, schema

from dgent import codec
from dgent.config.mcp import McpServer
from dgent.doors.acp import update
from dgent.doors.acp.editor import use_terminals, wrap_context
from dgent.errors import DgentError
from dgent.messages.part import Part
from dgent.runtime import event as events
from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.task import CodingAgent
from dgent.runtime.context.draw import draw_context
from dgent.runtime.event import Event
from dgent.runtime.tool import consent
from dgent.runtime.tool.consent import Consent
from dgent.universe.universe import Universe

COMMANDS = {
    "resume": "Go on with what was interrupted.",
    "undo": "Take back the last change of files in this session.",
    "context": "Show what the model is given, with the tokens of each part.",
}
STOPS: dict[str, Any] = {
    "stop": "end_turn",
    "repeated": "end_turn",
    "length": "max_tokens",
    "content_filter": "refusal",
    "interrupted": "cancelled",
}
MAX_IMAGE = 10 * 1024 * 1024
_SERVER = re.compile(r"[^A-Za-z0-9_-]+")


class EditorSession:
    """A session: the persistent agent, in a folder, with the editor's files, terminals and MCP servers."""

    def __init__(
        self,
        universe: Universe,
        agent: str,
        id: str,
        root: Path,
        client: Any,
        can: schema.ClientCapabilities,
        **more: Any,
    ) -> None:
        self.id, self.root, self._client, self._universe = id, root, client, universe
        self._can = can
        self.title = ""
        self._busy = self._cancelled = False
        self._number = 0  # of prompts
        self._shown: set[str] = set()  # the calls that the editor was told of
        self._undo: list[int] = []
        self.coder = CodingAgent(universe, agent, root, ask=self._ask, wrap=self._wrap, **more)
        self.runtime = self.coder.runtime

    def _wrap(self, context: CodeContext) -> CodeContext:
        made = wrap_context(context, self._client, self.id, self._can)
        return use_terminals(made, self._client, self.id, self._wait_shown) if self._can.terminal else made

    async def close(self) -> None:
        """End the turn that runs, durably, and all servers."""
        await self.coder.close()

    async def send(self, made: Any) -> None:
        """Send one update."""
        await self._client.session_update(session_id=self.id, update=made)

    async def announce(self) -> None:
        """Tell the editor which commands there are."""
        listed = [schema.AvailableCommand(name=name, description=text) for name, text in COMMANDS.items()]
        with suppress(ConnectionError):
            await self.send(
                schema.AvailableCommandsUpdate(
                    session_update="available_commands_update", available_commands=listed
                )
            )

    # -- MCP servers of the editor --------------------------------------------------------------

    def start_servers(self, servers: Sequence[Any]) -> None:
        """Begin to start MCP servers, also those of the settings; the first prompt waits for them."""
        for given in servers:
            name = _SERVER.sub("-", given.name).strip("-_")[:24] or "server"
            taken = self.runtime.servers.names
            while name in taken:
                name = f"{name}-{len(taken)}"
            try:
                self.runtime.servers.add(_read_server(name, given, self.root))
            except DgentError as error:
                self.runtime.servers.note(error.message)
        self.runtime.servers.begin()

    # -- prompts ------------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[Any]) -> schema.PromptResponse:
        """Answer a prompt; a second one at the same time is refused."""
        if self._busy:
            raise RequestError(-32600, "a prompt of this session is being answered; cancel it first")
        self._busy, self._cancelled = True, False
        self._number += 1
        try:
            parts = await self._read_prompt(blocks)
            if self._cancelled:
                return schema.PromptResponse(stop_reason="cancelled")
            return await self._answer(parts)
        finally:
            self._busy = False

    async def cancel(self) -> None:
        """Stop the answer that is under way; what is not durable is dropped."""
        self._cancelled, number = True, self._number
        while self._busy and self._number == number:  # never the prompt after it
            await self.runtime.interrupt()
            await asyncio.sleep(0.005)  # a turn that was about to begin is stopped too

    async def _answer(self, parts: list[Part]) -> schema.PromptResponse:
        first = parts[0].text.strip() if parts[0].type == "text" else ""
        command = first.removeprefix("/") if first.startswith("/") and len(parts) == 1 else ""
        if command == "resume":
            if not await self.runtime.interrupted():
                return await self._say("There is nothing to resume.")
            return await self._follow(self.runtime.resume())
        if command == "undo":
            return await self._say(await self._take_back())
        if command == "context":
            return await self._say(f"```\n{draw_context(await self.runtime.context())}\n```")
        self.coder.plan.goal = self.coder.plan.goal or first
        made = await self._follow(self.runtime.respond(parts, origin="acp", session=self.id))
        await self.coder.plan.close()
        return made

    async def _say(self, text: str) -> schema.PromptResponse:
        await self.send(helpers.update_agent_message_text(text))
        return schema.PromptResponse(stop_reason="end_turn")

    async def _take_back(self) -> str:
        if not self._undo:
            return "No files were changed in this session since it was opened."
        seq = self._undo[-1]
        try:
            await self._universe.undo(seq)
        except DgentError as error:
            return f"{error.message}\n\n{error.hint}"
        self._undo.pop()
        return f"Took back the changes of commit {seq}."

    async def _follow(self, stream: AsyncGenerator[Event]) -> schema.PromptResponse:
        """Pass on the events of a turn; return why it ended."""
        last: Event | None = None
        async with aclosing(stream) as turn:
            async for event in turn:
                last = event
                await self._pass_on(event)
        if isinstance(last, events.Failed):
            if last.code == "budget_spent" and "steps" in last.message:
                return schema.PromptResponse(stop_reason="max_turn_requests")
            raise RequestError(-32603, last.message, {"code": last.code, "hint": last.hint})
        assert isinstance(last, events.Done)
        stop: Any = "cancelled" if self._cancelled else STOPS.get(last.finish, "end_turn")
        return schema.PromptResponse(stop_reason=stop, usage=_sum_usage(last))

    async def _pass_on(self, event: Event) -> None:
        match event:
            case events.Text():
                await self.send(helpers.update_agent_message_text(event.text))
            case events.Thinking():
                await self.send(helpers.update_agent_thought_text(event.text))
            case events.ToolStarted():
                id = update.call_id(event.batch, event.call)
                await self.send(update.start_call(self.root, id, event.name, event.arguments, event.kind))
                self._shown.add(id)
            case events.ToolFinished():
                await self._finish_call(event)
            case events.UsageReport():
                await self.send(update.show_usage(event, self.runtime.builder.budget.window))
            case events.Notice():
                text = update.RESTARTED if event.code == "restart" else f"{event.text}\n"
                show = helpers.update_agent_message_text
                await self.send(
                    (show if event.code == "restart" else helpers.update_agent_thought_text)(text)
                )
            case _:
                pass

    async def _finish_call(self, event: events.ToolFinished) -> None:
        id = update.call_id(event.batch, event.call)
        seq = None if event.error else update.find_undo(event.text)
        content = [] if seq is None else await update.read_diffs(self._universe, seq)
        if seq is not None:
            self._undo.append(seq)
        await self.send(update.finish_call(id, event.text, event.error, content))
        self._shown.discard(id)
        if event.name in update.PLANNING:
            await self.send(update.show_plan(await self.coder.plan.steps()))

    async def _wait_shown(self, id: str) -> None:
        """Wait until the editor was told of a call: what refers to it must come later."""
        while id not in self._shown and self._busy:
            await asyncio.sleep(0)

    # -- consent ------------------------------------------------------------------------------

    async def _ask(self, asked: Consent) -> consent.Answer:
        """Ask the partner in the editor; whatever is not a clear yes is a no."""
        id = asked.key.removesuffix(f"/{asked.scope}") if asked.scope else asked.key.rpartition("/")[0]
        await self._wait_shown(id)
        wider = f"Always allow {asked.scope}" if asked.scope else f"Allow {asked.tool} for 8 hours"
        made = await self._client.request_permission(
            session_id=self.id,
            tool_call=schema.ToolCallUpdate(
                tool_call_id=id,
                title=asked.reason or update.name_call(asked.tool, asked.details),
                content=update.preview(self.root, asked.tool, asked.details) or None,
                raw_input=asked.details,
            ),
            options=[
                schema.PermissionOption(option_id="once", name="Allow", kind="allow_once"),
                schema.PermissionOption(option_id="more", name=wider, kind="allow_always"),
                schema.PermissionOption(option_id="deny", name="Reject", kind="reject_once"),
            ],
        )
        chosen = getattr(made.outcome, "option_id", "")
        if chosen == "more":
            return "scope" if asked.scope else "duration"
        return "once" if chosen == "once" else "deny"

    # -- what the editor sends --------------------------------------------------------------------

    async def _read_prompt(self, blocks: Sequence[Any]) -> list[Part]:
        parts = [await self._read_block(each) for each in blocks]
        if not any(part.text.strip() or part.blob for part in parts):
            raise RequestError.invalid_params({"prompt": "it is empty"})
        return parts

    async def _read_block(self, block: Any) -> Part:
        match block:
            case schema.TextContentBlock():
                return Part("text", block.text)
            case schema.ImageContentBlock():
                try:
                    data = base64.b64decode(block.data, validate=True)
                except (binascii.Error, ValueError):
                    data = b""
                if not 0 < len(data) <= MAX_IMAGE:
                    raise RequestError.invalid_params({"prompt": f"an image has 1 to {MAX_IMAGE} bytes"})
                key = f"prompt/{codec.blake2b(data, size=12).hexdigest()}"
                info = await self._universe.storage.blob.put(key, data, block.mime_type)
                return Part("image", blob=info.id, media_type=block.mime_type)
            case schema.ResourceContentBlock():
                return Part("text", f"[{block.name}]({block.uri})")
            case schema.EmbeddedResourceContentBlock() if isinstance(
                block.resource, schema.TextResourceContents
            ):
                return Part("text", f"<file uri={block.resource.uri!r}>\n{block.resource.text}\n</file>")
            case _:
                raise RequestError.invalid_params({"prompt": f"{block.type} is not taken"})


def _sum_usage(event: events.Done) -> schema.Usage | None:
    usage = event.usage
    if usage is None or not usage.calls:
        return None
    return schema.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        cached_read_tokens=usage.cache_read_tokens,
        cached_write_tokens=usage.cache_write_tokens,
    )


def _read_server(name: str, given: Any, root: Path) -> McpServer:
    """Return the settings of a server of the editor; its answers are not trusted."""
    if isinstance(given, schema.McpServerStdio):
        env = {each.name: each.value for each in given.env}
        return McpServer(name=name, command=(given.command, *given.args), env=env, folder=str(root))
    headers = {each.name: each.value for each in getattr(given, "headers", ())}
    if not isinstance(given, schema.HttpMcpServer):
        return McpServer(name=name)  # which says what it needs
    return McpServer(name=name, url=given.url, headers=headers)
