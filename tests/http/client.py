"""Visit a server in this process, without a network: what it gets is what uvicorn would hand it."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import dgent
from dgent.doors.http.app import Server
from dgent.doors.http.house import House
from dgent.doors.http.limit import Limits
from dgent.universe.gate import Principal, Trust
from dgent.universe.token import create_token

HOST = "127.0.0.1:8730"


class Answer(NamedTuple):
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        assert self.status in (200, 201), self
        return self.json["data"]


class Client:
    """Sends requests with one token."""

    def __init__(self, server: Server, token: str | None = None, prefix: str = "") -> None:
        self.server, self.token, self.prefix = server, token, prefix
        self.received = b""  # of all answers, as far as they came

    async def send(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request and return the answer."""
        raw, _, query = path.partition("?")
        wanted = {"host": HOST, "content-length": str(len(body))}
        if self.token is not None:
            wanted["authorization"] = f"Bearer {self.token}"
        wanted |= {name.lower(): value for name, value in (headers or {}).items()}
        scope = {
            "type": "http",
            "method": method,
            "path": raw,
            "raw_path": (self.prefix + raw).encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in wanted.items()],
            "client": ("127.0.0.1", 1),
            "scheme": "http",
        }
        got: list[dict[str, Any]] = []
        sent = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not sent:
                await asyncio.Event().wait()  # it stays, and sends no more
            return sent.pop()

        async def send(message: Any) -> None:
            got.append(message)
            self.received += message.get("body", b"")

        await self.server(scope, receive, send)
        head = {name.decode(): value.decode() for name, value in got[0]["headers"]}
        return Answer(got[0]["status"], head, b"".join(each.get("body", b"") for each in got[1:]))

    async def hear(self, text: bytes) -> None:
        """Wait until an answer has this text."""
        async with asyncio.timeout(60):
            while text not in self.received:
                await asyncio.sleep(0.005)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.send("GET", path, headers=_named(headers))

    async def post(self, path: str, given: Any = None, **headers: str) -> Answer:
        return await self.send("POST", path, _encode(given), _named(headers))

    async def put(self, path: str, given: Any = None, **headers: str) -> Answer:
        return await self.send("PUT", path, _encode(given), _named(headers))

    async def patch(self, path: str, given: Any = None, **headers: str) -> Answer:
        return await self.send("PATCH", path, _encode(given), _named(headers))

    async def delete(self, path: str, **headers: str) -> Answer:
        return await self.send("DELETE", path, headers=_named(headers))


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _encode(given: Any) -> bytes:
    return b"" if given is None else json.dumps(given).encode()


async def serve_universe(
    universe: dgent.Universe,
    *others: tuple[str, dgent.Universe],
    limits: Limits | None = None,
    name: str = "main",
) -> Server:
    """A server of stores that are open already; the first one has this name."""

    def opener(found: dgent.Universe) -> Any:
        async def open(_stack: AsyncExitStack) -> dgent.Universe:
            return found

        return open

    house = House({name: opener(found) for name, found in ((name, universe), *others)})
    return Server(house, hosts=("127.0.0.1", "localhost"), limits=limits)


async def token_for(universe: dgent.Universe, trust: Trust = "friend", agent: str = "scout") -> str:
    """A new token."""
    return (await create_token(universe, Principal(agent, trust)))[1]
