"""The files and terminals of an editor, in place of the disk and of processes of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec
from acp import RequestError, helpers, schema

from dgent.errors import Unavailable
from dgent.runtime.code.change import FileChange
from dgent.runtime.code.context import CodeContext, Ended, describe_change
from dgent.runtime.code.run import MAX_OUTPUT
from dgent.runtime.code.workspace import FileState
from dgent.runtime.tool.tool import Answer, Call


class EditorContext(CodeContext, frozen=True, kw_only=True):
    """Reads what the editor shows, saved or not, and lets it write, so that its buffers and its undo agree.

    The rules of the workspace are checked on the disk first: a path that leads outside is refused as ever.
    """

    client: Any
    session: str
    reads: bool = False
    writes: bool = False

    async def read(self, tool: str, path: str, call: Call) -> tuple[str, FileState]:
        """Return the name of a file and the text that the editor has of it."""
        name, state = await CodeContext.read(self, tool, path, call)
        return name, await self._ask(name, state)

    async def look(self, tool: str, path: str, call: Call) -> tuple[str, FileState]:
        """Return the name of a file to be changed, and the text that the editor has of it."""
        name, state = await CodeContext.look(self, tool, path, call)
        # Without writing, a change is of the disk, and must be of what the disk has.
        return name, (await self._ask(name, state) if self.writes else state)

    async def _ask(self, name: str, state: FileState) -> FileState:
        if not self.reads or state.text is None:
            return state
        try:
            found = await self.client.read_text_file(
                session_id=self.session, path=str(self.workspace.root / name)
            )
        except RequestError:  # a file that the editor does not open is read from the disk
            return state
        self.workspace.check_text(name, found.content)
        return FileState(found.content, state.mode)

    async def change(self, tool: str, changes: Sequence[FileChange], call: Call) -> Answer:
        """Change files, through the editor where it can; the versions are recorded first."""
        if not self.writes or self.recorder is None or any(each.after.text is None for each in changes):
            return await CodeContext.change(self, tool, changes, call)
        names = ", ".join(each.name for each in changes)
        seq = await self.recorder.record(changes, f"{tool} {names}"[:500])
        try:
            for each in changes:
                path = str(self.workspace.root / each.name)
                text = each.after.text or ""
                await self.client.write_text_file(session_id=self.session, path=path, content=text)
        except (RequestError, ConnectionError) as error:
            await self.recorder.withdraw(seq)
            raise Unavailable(f"the editor did not write {names}: {error}", hint="look at the file") from None
        data = {"files": [describe_change(each) for each in changes], "undo": seq}
        return {"ok": True, "message": f"changed {names}"[:500], "data": data}


def wrap_context(
    context: CodeContext, client: Any, session: str, can: schema.ClientCapabilities
) -> CodeContext:
    """Return a context that uses the files of an editor, as far as it offers them."""
    files = can.fs
    reads, writes = bool(files and files.read_text_file), bool(files and files.write_text_file)
    if not reads and not writes:
        return context
    fields = {name: getattr(context, name) for name in context.__struct_fields__}
    return EditorContext(**fields, client=client, session=session, reads=reads, writes=writes)


def use_terminals(
    context: CodeContext, client: Any, session: str, wait_shown: Callable[[str], Awaitable[None]]
) -> CodeContext:
    """Return a context that runs commands in terminals of the editor, shown in the card of their call."""

    async def run(argv: list[str], folder: str, timeout: float, call: Call) -> Ended:
        began = monotonic()
        made = await client.create_terminal(
            session_id=session,
            command=argv[0],
            args=argv[1:],
            cwd=str(context.workspace.root / folder),
            output_byte_limit=MAX_OUTPUT,
        )
        about = {"session_id": session, "terminal_id": made.terminal_id}
        try:
            if call.key:
                await wait_shown(call.key)
                shown = schema.ToolCallProgress(
                    session_update="tool_call_update",
                    tool_call_id=call.key,
                    content=[helpers.tool_terminal_ref(made.terminal_id)],
                )
                await client.session_update(session_id=session, update=shown)
            code, reason = await _wait(client, about, timeout)
            output = await client.terminal_output(**about)
            return Ended(code, reason, output.output[-MAX_OUTPUT:], monotonic() - began)
        finally:
            with suppress(RequestError, ConnectionError):
                await client.release_terminal(**about)  # which ends what still runs

    return msgspec.structs.replace(context, runner=run)


async def _wait(client: Any, about: dict[str, str], timeout: float) -> tuple[int, str]:
    try:
        ended = await asyncio.wait_for(client.wait_for_terminal_exit(**about), timeout)
    except TimeoutError:
        await client.kill_terminal(**about)
        return -9, f"ended: it took longer than {timeout:g} s"
    if ended.exit_code is None:
        return -1, f"ended by the signal {ended.signal or 'unknown'}"
    return int(ended.exit_code), ""
