"""Subscriptions: which addresses a commit touched, for clients that want to hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated

from dgent.doors.mcp.client import Client
from dgent.doors.mcp.resource import parse_address
from dgent.errors import Closed, CursorInvalid, DgentError, HistoryGone, InputError
from dgent.store.backend import Item
from dgent.universe.universe import Universe

Touches = Callable[[Item], bool]
Watch = Callable[[Client, str], Awaitable[Touches]]
_LISTS = {"memory": "block.", "ready": "cupboard.", "lessons": "cupboard.trail"}
_NAMING = ("crumb_id", "from_id", "to_id")  # fields of links and comments that name a work item
MOST = 1_000  # addresses that are watched at once
AGAIN_S = 0.5  # until a feed that failed is followed again


async def watch_of(client: Client, uri: str) -> Touches:
    """Return what tells whether a change touches an address; raises if the client may not read it."""
    kind, parts = parse_address(uri)
    if kind in _LISTS:
        return lambda item: (item.schema or "").startswith(_LISTS[kind])
    if kind == "schema":
        return lambda item: item.schema == parts[0]
    if kind == "block":
        owner, label = parts
        return _Below((await client.call("block.info", label=label, owner=owner)).card.id)
    verb = "data" if kind == "record" else kind
    return _Below((await client.call(f"{verb}.get", id=parts[0])).id)


class _Below:
    """A record, those below it, and those that name it."""

    def __init__(self, id: str) -> None:
        self._id, self._below = id, id + "/"

    def __call__(self, item: Item) -> bool:
        if item.id is None:
            return False
        if item.id == self._id or item.id.startswith(self._below):
            return True
        datum = getattr(item.datum or item.last, "datum", item.datum or item.last)
        return datum is not None and any(datum.data.get(name) == self._id for name in _NAMING)


class Subscriptions:
    """The addresses that are watched, and who hears of them; follows the change feed while there are any."""

    def __init__(self, universe: Universe, watch: Watch) -> None:
        self._universe, self._watch = universe, watch
        self.bus = InMemorySubscriptionBus()
        self._watched: dict[str, tuple[Touches, int]] = {}
        self._sessions: dict[str, set[ServerSession]] = {}
        self._following: asyncio.Task[None] | None = None

    async def add(self, client: Client, uri: str) -> None:
        """Watch an address."""
        if uri not in self._watched and len(self._watched) >= MOST:
            raise InputError(f"at most {MOST} resources can be watched at once", field="uri")
        touches = await self._watch(client, uri)
        known = self._watched.get(uri)
        self._watched[uri] = touches, 1 if known is None else known[1] + 1
        if self._following is None:
            since = await self._universe.seq()
            self._following = asyncio.create_task(self._follow(since))

    def remove(self, uri: str) -> None:
        """Watch an address no longer, if nobody else wants it."""
        touches, count = self._watched.get(uri, (None, 0))
        if touches is not None and count > 1:
            self._watched[uri] = touches, count - 1
        else:
            self._watched.pop(uri, None)

    async def add_session(self, client: Client, session: ServerSession, uri: str) -> None:
        """Send a session updates of an address, until it ends or wants no more."""
        if session not in self._sessions.get(uri, ()):
            await self.add(client, uri)
            self._sessions.setdefault(uri, set()).add(session)

    def remove_session(self, session: ServerSession, uri: str) -> None:
        """Send a session no more updates of an address."""
        if session in self._sessions.get(uri, ()):
            self._sessions[uri].remove(session)
            self.remove(uri)

    async def close(self) -> None:
        """Follow the feed no longer."""
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following

    async def _follow(self, since: int | None) -> None:
        """Report changes as long as the universe is open, also after the store was unavailable."""
        while True:
            try:
                async for change in self._universe.watch(since=since):
                    since = change.seq or since
                    for uri, (touches, _) in list(self._watched.items()):
                        if any(map(touches, change.items)):
                            await self._publish(uri)
            except Closed:
                return
            except (CursorInvalid, HistoryGone):
                # What happened meanwhile cannot be known, so all of it may have changed.
                since = None
                for uri in list(self._watched):
                    await self._publish(uri)
            except DgentError:
                await asyncio.sleep(AGAIN_S)

    async def _publish(self, uri: str) -> None:
        await self.bus.publish(ResourceUpdated(uri=uri))
        for session in list(self._sessions.get(uri, ())):
            await self._send(session, uri)

    async def _send(self, session: Any, uri: str) -> None:
        try:
            await session.send_resource_updated(uri)
        except Exception:  # the session ended, whatever its transport says of that
            self.remove_session(session, uri)
