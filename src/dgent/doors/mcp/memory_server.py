"""The server of `--compat memory-server`: the tools and the resource of the reference memory server."""

from __future__ import annotations

from importlib.metadata import version

import mcp_types as types
from mcp.server import Server
from mcp.shared.exceptions import MCPError

from dgent.doors.mcp import graph_tool
from dgent.doors.mcp.client import Client, Clients
from dgent.doors.mcp.server import INVALID_PARAMS, McpDoor, Request, report_errors
from dgent.doors.mcp.subscription import Touches
from dgent.errors import InputError
from dgent.graph import Graph
from dgent.graph.record import SCHEMAS

NAME = "memory-server"
URI = "memory://knowledge-graph"
RESOURCE = types.Resource(
    name="knowledge-graph",
    title="Knowledge Graph",
    uri=URI,
    description="All entities and relations.",
    mime_type="application/json",
)


async def watch_of(_client: Client, uri: str) -> Touches:
    """Return what tells whether a change touches the graph."""
    _check(uri)
    return lambda item: item.schema in SCHEMAS


def _check(uri: str) -> None:
    if uri != URI:
        raise InputError(f"{uri[:200]!r} is not an address here", hint=f"use {URI}", field="uri")


class MemoryServer(McpDoor):
    """The requests that the reference memory server answers, on the graph of one store."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients, watch_of)

    def server(self) -> Server[None]:
        """Return the server for one or many connections."""
        return Server(
            NAME,
            version=version("dgent"),
            lifespan=self._live,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_read_resource=report_errors(self.read_resource),
            on_subscribe_resource=report_errors(self.subscribe),
            on_unsubscribe_resource=self.unsubscribe,
            on_subscriptions_listen=report_errors(self.listen),
        )

    def _graph(self, request: Request) -> Graph:
        return Graph(self._client(request).universe)

    async def list_tools(
        self, _request: Request, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """List the tools."""
        return types.ListToolsResult(tools=graph_tool.list_tools())

    async def call_tool(self, request: Request, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Call a tool."""
        if params.name not in graph_tool.TOOLS:
            raise MCPError(INVALID_PARAMS, f"Tool {params.name[:80]} not found")
        return await graph_tool.call_tool(self._graph(request), params.name, params.arguments)

    async def list_resources(
        self, _request: Request, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """List the one resource."""
        return types.ListResourcesResult(resources=[RESOURCE])

    async def read_resource(
        self, request: Request, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Read the graph."""
        _check(params.uri)
        text = graph_tool.write_json(graph_tool.part_json(await self._graph(request).read()))
        contents = types.TextResourceContents(uri=URI, mime_type=RESOURCE.mime_type, text=text)
        return types.ReadResourceResult(contents=[contents])
