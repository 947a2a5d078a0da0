"""The server of the protocol: each request becomes a call of a verb by the agent that sent it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from importlib.metadata import version
from typing import Any, TypeVar

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from dgent.doors.mcp import prompt, resource, tool
from dgent.doors.mcp.client import Client, Clients
from dgent.doors.mcp.subscription import MOST, Subscriptions, Watch, watch_of
from dgent.errors import DgentError, InputError, NotFound

Request = ServerRequestContext[Any, Any]
T = TypeVar("T")

INSTRUCTIONS = (
    "dgent keeps what you know between sessions. Begin with `memory`, which is what you wrote down before. "
    "`find` finds anything by its words. Write down what the next session needs with `block_append`, "
    "`block_replace` or `remember`. `work_ready` lists open work, `work_take` claims an item, `work_end` "
    "ends it. Nothing is lost: every version is kept. An answer says what to change if a call was wrong."
)
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603


def report_errors(handle: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """Turn errors of a verb into errors of the protocol."""

    @wraps(handle)
    async def run(*args: Any) -> T:
        try:
            return await handle(*args)
        except DgentError as error:
            code = INVALID_PARAMS if isinstance(error, InputError | NotFound) else INTERNAL_ERROR
            data = {"code": error.code, "hint": error.hint, "retryable": error.retryable}
            raise MCPError(code, error.message, data) from None

    return run


class McpDoor:
    """The requests that a server answers, for the agents of one store."""

    def __init__(self, clients: Clients, watch: Watch = watch_of) -> None:
        self._clients = clients
        self._subscriptions = Subscriptions(clients.universe, watch)
        self._listen = ListenHandler(self._subscriptions.bus, max_subscriptions=MOST)

    def server(self) -> Server[None]:
        """Return the server for one or many connections."""
        return Server(
            "dgent",
            version=version("dgent"),
            title="dgent",
            description="Memory, work and records of AI agents.",
            instructions=INSTRUCTIONS,
            lifespan=self._live,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=report_errors(self.list_resources),
            on_list_resource_templates=self.list_templates,
            on_read_resource=report_errors(self.read_resource),
            on_subscribe_resource=report_errors(self.subscribe),
            on_unsubscribe_resource=self.unsubscribe,
            on_subscriptions_listen=report_errors(self.listen),
            on_list_prompts=self.list_prompts,
            on_get_prompt=report_errors(self.get_prompt),
            on_completion=report_errors(self.complete),
        )

    @asynccontextmanager
    async def _live(self, _server: Server[None]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self._listen.close()
            await self._subscriptions.close()

    def _client(self, request: Request) -> Client:
        said = request.session.client_params
        return self._clients.find(None if said is None else said.client_info.name)

    # -- tools --------------------------------------------------------------------------------

    async def list_tools(
        self, request: Request, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """List the tools."""
        return types.ListToolsResult(tools=tool.list_tools(self._client(request)))

    async def call_tool(self, request: Request, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Call a tool."""
        client = self._client(request)
        if params.name not in client.toolbox.names:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:80]!r}")
        return await tool.call_tool(client, params.name, params.arguments)

    # -- resources ----------------------------------------------------------------------------

    async def list_resources(
        self, request: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """List a page of resources."""
        cursor = (params.cursor if params else None) or "0"
        if not cursor.isdecimal() or len(cursor) > 9:
            raise InputError(f"{cursor[:80]!r} is not a cursor of this list", field="cursor")
        found, end = await resource.list_resources(self._client(request), int(cursor))
        return types.ListResourcesResult(resources=found, next_cursor=None if end is None else str(end))

    async def list_templates(
        self, _request: Request, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """List the kinds of addresses."""
        return types.ListResourceTemplatesResult(resource_templates=resource.list_templates())

    async def read_resource(
        self, request: Request, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Read a resource."""
        return types.ReadResourceResult(contents=[await resource.read(self._client(request), params.uri)])

    async def subscribe(self, request: Request, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Send the session updates of a resource."""
        await self._subscriptions.add_session(self._client(request), request.session, params.uri)
        return types.EmptyResult()

    async def unsubscribe(
        self, request: Request, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Send the session no more updates of a resource."""
        self._subscriptions.remove_session(request.session, params.uri)
        return types.EmptyResult()

    async def listen(
        self, request: Request, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Send updates of some resources as the answer of one request, until the client ends it."""
        wanted = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(wanted) > MOST:
            raise InputError(
                f"at most {MOST} resources can be watched at once", field="resource_subscriptions"
            )
        client, added = self._client(request), list[str]()
        try:
            for uri in wanted:
                await self._subscriptions.add(client, uri)
                added.append(uri)
            return await self._listen(request, params)
        finally:
            for uri in added:
                self._subscriptions.remove(uri)

    # -- prompts ------------------------------------------------------------------------------

    async def list_prompts(
        self, _request: Request, _params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """List the prompts."""
        return types.ListPromptsResult(prompts=prompt.list_prompts())

    async def get_prompt(
        self, request: Request, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """Return a prompt."""
        return await prompt.get(self._client(request), params.name, params.arguments or {})

    async def complete(self, request: Request, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Complete a part of an address."""
        if not isinstance(params.ref, types.ResourceTemplateReference):
            return types.CompleteResult(completion=types.Completion(values=[]))
        given = (params.context.arguments if params.context else None) or {}
        argument = params.argument
        found = await resource.complete(
            self._client(request), params.ref.uri, argument.name, argument.value, given
        )
        most = resource.MOST_WORDS
        return types.CompleteResult(
            completion=types.Completion(values=found[:most], total=len(found), has_more=len(found) > most)
        )
