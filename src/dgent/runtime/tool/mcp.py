"""MCP servers as tools: `async with McpTools(McpServer("files", command=("mcp-files",))) as tools: ...`.

What a server answers comes from outside, so it is not trusted unless its settings say so, and a batch that
reads it is trusted no further. A server that ends is started again once, which is reported; the
call that was under way is made again only where that does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dgent import codec
from dgent.config.mcp import McpServer
from dgent.errors import DgentError, Unavailable, Unsupported
from dgent.runtime.tool.mcp_link import Ending, open_link
from dgent.runtime.tool.mcp_translate import Result, check_schema, describe, judge, name_tools
from dgent.runtime.tool.tool import Answer, Arguments, Call, Tool, Toolset
from dgent.universe.blob import BlobStore

if TYPE_CHECKING:
    from mcp import Client

MAX_TOOLS = 128
MAX_PAGES = 50
MAX_NOTICES = 100
START_S = 30.0
CLOSE_S = 5.0
RELIST_S = 1.0  # between two looks at a list that changes


class McpTools:
    """The tools of one server, as a source of tools. `notices` has what the partner should know of it.

    With `blobs`, images in answers are stored there. `on_change` is called when the list of tools changed.
    """

    def __init__(
        self,
        server: McpServer,
        *,
        blobs: BlobStore | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self.server, self.trust = server, server.trust
        self.notices: list[str] = []
        self._blobs, self._on_change = blobs, on_change
        self._tools = Toolset()
        self._client: Client | None = None
        self._ending = Ending()
        self._keeper: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        self._starting = asyncio.Lock()
        self._restarted = False

    async def __aenter__(self) -> McpTools:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, and read the list of tools; Unavailable if the server does not answer in time."""
        _check_installed()
        self._ending, self._stopping = Ending(), False
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keeper = self._keeper = asyncio.create_task(self._keep(ready))
        # The SDK's scopes belong to the task that opens them, so one task opens and closes the connection.
        await asyncio.wait((ready, keeper), timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            return
        error = keeper.exception() if keeper.done() and not keeper.cancelled() else None
        if error is not None and not _is_broken(error):
            reason = _describe(error)
        else:
            reason = self._ending.explain() or f"no answer in {START_S:g} s"
        await self.close()
        raise Unavailable(f"the MCP server {self.server.name!r} did not start: {reason}")

    async def close(self) -> None:
        """Disconnect, and end a server that was started."""
        connected, self._stopping, self._client = self._client is not None, True, None
        self._wake.set()
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        if not keeper.done():
            await asyncio.wait((keeper,), timeout=CLOSE_S if connected else 0.0)
            keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)

    async def _keep(self, ready: asyncio.Future[None]) -> None:
        from mcp import Client

        client = Client(
            open_link(self.server, self._ending),
            mode="legacy",  # all servers know it, and it says when the list of tools changes
            cache=None,
            read_timeout_seconds=self.server.timeout_s,
            message_handler=self._hear,
        )
        async with client:
            self._tools = await self._list(client)
            self._client = client
            ready.set_result(None)
            while not self._stopping:
                await self._wake.wait()
                self._wake.clear()
                if not self._stopping:
                    await self._relist(client)

    async def _hear(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._wake.set()

    async def _relist(self, client: Client) -> None:
        with suppress(TimeoutError):  # a server may say so without end
            await asyncio.wait_for(self._wait_stop(), RELIST_S)
            return
        self._wake.clear()
        try:
            self._tools = await self._list(client)
        except Exception as error:  # the tools that were known stay
            self._note(f"its list of tools cannot be read: {_describe(error)}")
            return
        if self._on_change is not None:
            self._on_change()

    async def _wait_stop(self) -> None:
        while not self._stopping:
            await asyncio.sleep(0.05)

    # -- the list of tools --------------------------------------------------------------------

    async def _list(self, client: Client) -> Toolset:
        from mcp_types import ListToolsRequest, ListToolsResult, PaginatedRequestParams

        found: dict[str, Any] = {}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            asked = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
            # Not client.list_tools(): it would check answers by schemas of the server, which may be traps.
            page = await client.session.send_request(asked, ListToolsResult)
            for each in page.tools:
                found.setdefault(each.name, each)
            cursor = page.next_cursor
            if cursor is None or len(found) > MAX_TOOLS:
                break
        else:
            self._note(f"its list of tools has more than {MAX_PAGES} pages")
        fit = [each for each in found.values() if self._fits(each)]
        if len(fit) > MAX_TOOLS:
            self._note(f"it has more than {MAX_TOOLS} tools; the rest are left out")
        return self._build(fit[:MAX_TOOLS])

    def _fits(self, tool: Any) -> bool:
        wrong = check_schema(tool.input_schema)
        if wrong:
            self._note(f"its tool {tool.name[:80]!r} is left out: {wrong}")
        return not wrong

    def _build(self, tools: list[Any]) -> Toolset:
        names = name_tools(self.server.name, (each.name for each in tools))
        trusted = self.trust in ("partner", "friend")
        made = Toolset()
        for each in tools:
            effect, kind, repeatable = judge(each.annotations, trusted)
            run = partial(self._run, each.name, repeatable)
            name, schema = names[each.name], each.input_schema
            made.add(Tool(name, describe(each), schema, run, effect, kind, repeatable, self.trust))
        return made

    def schemas(self) -> list[dict[str, Any]]:
        """Return name, description and parameters of each tool."""
        return self._tools.schemas()

    def find(self, name: str) -> Tool | None:
        """Return a tool by its name; None where there is none."""
        return self._tools.find(name)

    # -- calls --------------------------------------------------------------------------------

    async def call(self, name: str, arguments: Arguments = None, call: Call | None = None) -> Answer:
        """Call a tool; wrong arguments, refusals and failures are answers too."""
        return await self._tools.call(name, arguments, call)

    async def _run(self, tool: str, repeatable: bool, arguments: Mapping[str, Any], call: Call) -> Answer:
        if self._has_ended():
            await self._restart()
        try:
            result = await self._ask(tool, arguments)
        except DgentError:
            raise
        except Exception as error:
            if not _is_broken(error) and not self._has_ended():
                raise Unavailable(f"{self.server.name}: {_describe(error)}", hint="try another way") from None
            self._ending.set("it ended")
            await self._restart()
            if not repeatable:
                raise Unavailable(
                    f"{self.server.name} ended during this call, so it is not known whether it was done",
                    hint="look first; it runs again",
                ) from None
            result = await self._ask(tool, arguments)
        self._restarted = False
        return await self._answer(result)

    async def _ask(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

        client = self._client
        if client is None:
            raise Unavailable(f"the MCP server {self.server.name!r} is not connected", hint="start it")
        asked = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(arguments)))
        timeout = self.server.timeout_s
        waiting = client.session.send_request(asked, CallToolResult, request_read_timeout_seconds=timeout)
        try:
            # The SDK's own limit starts anew with each word of progress.
            return await asyncio.wait_for(waiting, timeout + 1.0)
        except TimeoutError:
            raise Unavailable(f"{self.server.name} did not answer in {timeout:g} s") from None

    def _has_ended(self) -> bool:
        return self._ending.ended or self._keeper is None or self._keeper.done()

    async def _restart(self) -> None:
        """Start an ended server again; Unavailable if that was done since its last answer."""
        async with self._starting:
            if not self._has_ended():
                return  # another call did
            reason = self._ending.explain() or "the connection ended"
            if self._restarted or self._stopping:
                raise Unavailable(f"the MCP server {self.server.name!r} is gone: {reason}")
            self._restarted = True
            self._note(f"started again, since {reason}")
            await self.close()
            await self.start()

    async def _answer(self, found: Any) -> Answer:
        result = Result(found.content, found.structured_content, bool(found.is_error))
        stored: list[dict[str, Any]] = []
        for data, media in result.images if self._blobs is not None else ():
            assert self._blobs is not None
            key = f"mcp/{self.server.name}/{codec.blake2b(data, size=12).hexdigest()}"
            info = await self._blobs.put(key, data, media)
            stored.append({"blob": info.id, "media_type": media})
        return result.answer(stored)

    def _note(self, text: str) -> None:
        if len(self.notices) < MAX_NOTICES:
            self.notices.append(f"MCP server {self.server.name}: {text}")


def _is_broken(error: BaseException) -> bool:
    """Return whether an error, or the first of a group, says that the connection ended."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    error = _first(error)
    if isinstance(error, MCPError):
        return error.error.code == CONNECTION_CLOSED
    return type(error).__name__ in ("ClosedResourceError", "BrokenResourceError", "EndOfStream")


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _describe(error: BaseException) -> str:
    """Return an error in one line; of a group, the first in it."""
    error = _first(error)
    if isinstance(error, DgentError):
        return error.message
    text = " ".join(str(error).split())[:300]
    return text or type(error).__name__


def _check_installed() -> None:
    try:
        import mcp  # noqa: F401 - a second long to load, so only here
    except ImportError as error:
        raise Unsupported(
            f"the Model Context Protocol is not installed ({error.name})", hint="pip install 'dgent[mcp]'"
        ) from None
