"""The Model Context Protocol inside the server: each token has a server of its own, with its trust."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from dgent.doors.http.house import Visitor
from dgent.errors import Unsupported

PATH = "/mcp"
IDLE_S = 600.0  # after which a session that nobody uses ends
MOST_SESSIONS = 64  # of one token
MOST_MOUNTED = 64  # tokens whose servers are kept


class MountedServer:
    """The server of one token; its sessions are for no other token."""

    def __init__(self, visitor: Visitor) -> None:
        try:
            from dgent.doors.mcp.client import Clients, tools_of
            from dgent.doors.mcp.server import McpDoor
        except ImportError as error:
            raise Unsupported(
                f"the Model Context Protocol is not installed ({error.name})", hint="pip install 'dgent[mcp]'"
            ) from None
        from mcp.server.transport_security import TransportSecuritySettings

        who = visitor.principal
        clients = Clients(visitor.store.universe, who.trust, who.name, tools_of(""))
        # Hosts and origins were checked before.
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        self._app: Any = (
            McpDoor(clients)
            .server()
            .streamable_http_app(
                streamable_http_path=PATH,
                transport_security=unchecked,
                session_idle_timeout=IDLE_S,
                max_sessions=MOST_SESSIONS,
            )
        )
        self._ready, self._stop = asyncio.Event(), asyncio.Event()
        # One task enters and leaves: the protocol's tasks belong to it.
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self._app.router.lifespan_context(self._app):
            self._ready.set()
            await self._stop.wait()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._ready.wait()
        await self._app({**scope, "path": PATH, "raw_path": PATH.encode(), "root_path": ""}, receive, send)

    async def close(self) -> None:
        """End all sessions."""
        self._stop.set()
        await asyncio.gather(self._task, return_exceptions=True)


async def serve_mcp(visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a request of the protocol for a visitor."""
    key = f"{visitor.id}/{visitor.principal.trust}/{visitor.principal.name}"
    kept = visitor.store.mounted
    mounted = kept.pop(key, None) or MountedServer(visitor)
    kept[key] = mounted  # the newest last
    if len(kept) > MOST_MOUNTED:
        await kept.pop(next(iter(kept))).close()
    await mounted.serve(scope, receive, send)
