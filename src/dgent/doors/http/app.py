"""The server as an ASGI application: who asks, which verb, and its answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dgent.doors.http import agent, blob, call, feed, limit, openapi
from dgent.doors.http.answer import HEADERS, answer, refuse, report
from dgent.doors.http.errors import Gone, TooLarge, TooMany, TooSlow, UnknownVisitor
from dgent.doors.http.house import House, Visitor, enter
from dgent.doors.http.limit import Buckets, Limits, Places
from dgent.doors.http.metrics import Metrics
from dgent.doors.http.mount import PATH as MCP
from dgent.doors.http.mount import serve_mcp
from dgent.doors.http.route import Match, Route, Router
from dgent.doors.http.store import serve_call
from dgent.errors import Closed, Denied, DgentError, InputError
from dgent.store.remote.calls import CALLS
from dgent.store.remote.calls import PATH as STORE
from dgent.universe.gate import Principal
from dgent.verbs.registry import find

LOG = logging.getLogger("dgent.http")
COOKIE = "dgent_session"  # and the port: browsers send cookies to all ports of a host
BY_COOKIE = b"x-dgent-studio"  # a header that no foreign page can send without being asked
RECHECK_S = 5.0  # how often the token of a stream is looked up again
READS = frozenset(("GET", "HEAD"))
HEALTH = ("/healthz", "/readyz")


class Request:
    """A request, reduced to the parts that the server looks at."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope, self.receive = scope, receive
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.raw_path: str = scope.get("raw_path", scope["path"].encode()).decode("ascii", "replace")
        self.constellation = ""
        self.route = ""  # for the log and the metrics
        self.who = "-"

    def header(self, name: bytes) -> str | None:
        """Return a header as text."""
        found = self.headers.get(name)
        return None if found is None else found.decode("latin-1").strip()

    @property
    def peer(self) -> str:
        """The address that it came from."""
        return (self.scope.get("client") or ("?", 0))[0]

    def query(self) -> list[tuple[str, str]]:
        """Return the fields behind the question mark."""
        try:
            text = self.scope["query_string"].decode("ascii")
            return parse_qsl(text, keep_blank_values=True, max_num_fields=200, errors="strict")
        except (ValueError, UnicodeDecodeError):
            raise InputError("the fields behind the question mark cannot be read") from None


class Server:
    """Serves the stores of a house: verbs, resources, the feed and the Model Context Protocol."""

    def __init__(
        self,
        house: House,
        *,
        hosts: Sequence[str],
        limits: Limits | None = None,
        sessions: Callable[[str], str | None] = lambda _cookie: None,
        pages: ASGIApp | None = None,
    ) -> None:
        self.house, self.metrics = house, Metrics()
        self.limits = limits or Limits()
        self.hosts = frozenset(each.lower() for each in hosts)
        self.stopping = False
        self._rates = Buckets(self.limits.rate, self.limits.burst)
        self._wrong = Buckets(self.limits.wrong_rate, self.limits.wrong_burst)
        self._sessions, self._pages = sessions, pages
        self._router = Router()
        self._streams: Counter[str] = Counter()  # that are open, by token
        self._exports = Places(self.limits.exports)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})
            return
        request, began = Request(scope, receive), time.monotonic()
        status = 500

        async def note(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.metrics.under_way += 1
        try:
            await self._serve(request, note)
        finally:
            self.metrics.under_way -= 1
            took_s = time.monotonic() - began
            self.metrics.count(request.method, request.route or "-", status, took_s)
            # Never the query or a header: they may hold what is nobody's business.
            LOG.info("%s %s %s %d %.1f ms %s", request.peer, request.method, request.route or "-", status,
                     took_s * 1000, request.who.encode("unicode_escape").decode())  # fmt: skip

    async def stop(self) -> None:
        """Say that the server is about to stop, and end streams, which nobody could wait for."""
        self.stopping = True
        await self.house.end_streams()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.house.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _serve(self, request: Request, send: Send) -> None:
        try:
            response = await self._answer(request, send)
        except UnknownVisitor as error:
            response = refuse(401, error.code, error.message, error.hint, **{"WWW-Authenticate": "Bearer"})
        except Closed:
            response = refuse(503, "closed", "this constellation is no longer served")
        except DgentError as error:
            response = report(error, _is_conditional(request))
        except TooMany as error:
            after = str(max(1, round(error.after_s)))
            response = refuse(
                429, "too_many", "too many requests", f"wait {after} s", **{"Retry-After": after}
            )
        except TooLarge:
            most = self.limits.blob_bytes if request.route == blob.ONE else self.limits.body_bytes
            hint = f"at most {most:,} bytes are taken"
            response = refuse(413, "too_large", "the body is too large", hint, Connection="close")
        except TooSlow:
            response = refuse(408, "too_slow", "the body did not arrive in time", Connection="close")
        except Gone:
            return
        except Exception:
            LOG.exception("a fault in dgent")
            response = refuse(500, "fault", "a fault in dgent", "please report it")
        if response is not None:
            await response(request.scope, request.receive, send)

    async def _answer(self, request: Request, send: Send) -> Response | None:
        refused = self._check_place(request)
        if refused is not None:
            return refused
        path = self._find_store(request)
        if path in HEALTH:
            request.route = path
            return await self._health(path)
        if self._pages is not None and path.count("/") == 1 and path not in (MCP, "/metrics"):
            request.route = "studio"
            await self._pages(request.scope, request.receive, send)
            return None
        visitor, by_cookie = await self._enter(request)
        if by_cookie and request.method not in READS and request.header(BY_COOKIE) is None:
            raise Denied("a page may only change things through the studio")
        self._rates.take(visitor.id)
        if path == MCP:
            request.route = MCP
            await self._serve_mcp(request, visitor, send)
            return None
        with visitor.store.use():
            return await self._answer_visitor(request, path, visitor)

    def _check_place(self, request: Request) -> Response | None:
        """Refuse a request that was sent to another host, or by a page of another origin."""
        host = (request.header(b"host") or "").lower()
        if _name_of(host) not in self.hosts:
            return refuse(
                421, "host", "this server does not have that name", "see --host-name of dgent serve"
            )
        origin = request.header(b"origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return refuse(403, "origin", "pages of other origins may not use this server")
        return None

    def _find_store(self, request: Request) -> str:
        """Note the constellation that the path begins with, if it does; returns the rest of the path."""
        path = request.raw_path
        first, slash, rest = path[1:].partition("/")
        if slash and first in self.house and rest.startswith(("v1/", "mcp")):
            request.constellation = first
            return "/" + rest
        request.constellation = self.house.default
        return path

    async def _enter(self, request: Request) -> tuple[Visitor, bool]:
        given = request.header(b"authorization")
        cookie = _cookie_of(request) if given is None else None
        try:
            if cookie is not None:
                return await self._enter_by_cookie(request, cookie), True
            scheme, _, token = (given or "").partition(" ")
            shown = token.strip() if scheme.lower() == "bearer" else None
            visitor = await enter(self.house, request.constellation, shown)
        except Denied as error:
            # Only of wrong ones: whoever has a right token at the same address must not wait.
            self._wrong.take(request.peer)
            raise UnknownVisitor(error.message, hint=error.hint) from None
        request.who = f"{visitor.principal.name}/{visitor.id}"
        return visitor, False

    async def _enter_by_cookie(self, request: Request, cookie: str) -> Visitor:
        agent = self._sessions(cookie)
        if agent is None:
            return await enter(self.house, request.constellation, cookie)
        store = await self.house.store(request.constellation)
        chosen = unquote(request.header(b"x-dgent-agent") or "")  # a header is ASCII, a name need not be
        request.who = f"{chosen or agent}/studio"
        return store.visitor("studio", Principal(chosen or agent, "partner"), here=True)

    async def _health(self, path: str) -> Response:
        if path == "/readyz":
            if self.stopping:
                return refuse(503, "stopping", "the server is stopping")
            await (await self.house.store(self.house.default)).universe.seq()
        return answer("ready" if path == "/readyz" else "alive")

    async def _answer_visitor(self, request: Request, path: str, visitor: Visitor) -> Response:
        if path == "/metrics":
            request.route = path
            return PlainTextResponse(self.metrics.text(await self._newest(visitor)), headers=HEADERS)
        if path == "/v1/openapi.json":
            request.route = path
            return Response(openapi.document(), 200, HEADERS, "application/json")
        if path == "/v1/constellations":
            request.route = path
            names = self.house.names if visitor.here else (visitor.store.name,)
            you = {"agent": visitor.principal.name, "trust": visitor.principal.trust, "here": visitor.here}
            here, seq = visitor.store.name, await visitor.store.universe.seq()
            items = [{"name": each} for each in names]
            return answer({"items": items, "here": here, "seq": seq, "you": you})
        if path == "/v1/verbs":
            request.route = path
            return answer({"items": openapi.list_verbs(visitor.principal.trust)})
        if path.startswith(STORE) and request.method == "POST":
            name = path.removeprefix(STORE)
            request.route = path if name in CALLS else STORE
            body = await limit.read_body(request.headers, request.receive, self.limits)
            return await serve_call(visitor, name, body, request.receive)
        of_agent = agent.find_route(request.method, path)
        if isinstance(of_agent, Match):
            return await self._serve_agent(request, of_agent, visitor)
        match = refuse_method(request, of_agent) if of_agent else self._match(request, path)
        if isinstance(match, Response):
            return match
        return await self._call(request, match, visitor)

    async def _serve_agent(self, request: Request, match: Match, visitor: Visitor) -> Response:
        request.route = match.route.path
        if self._streams[visitor.id] >= self.limits.streams:
            raise TooMany(1.0)
        return await agent.serve_agent(request, match, visitor, self.limits, self._guard)

    def _match(self, request: Request, path: str) -> Match | Response:
        if path.startswith("/v1/verbs/") and request.method == "POST":
            verb = find(path.removeprefix("/v1/verbs/"))
            request.route = f"/v1/verbs/{verb.id}"
            return Match(Route("POST", request.route, verb.id), {})
        if path.startswith(blob.PATH):
            path = blob.PATH + path.removeprefix(blob.PATH).replace("/", "%2F")  # a key is all that follows
        found = self._router.find(request.method, path)
        if isinstance(found, Match):
            request.route = found.route.path
            return found
        if found:
            return refuse_method(request, found)
        return refuse(404, "not_found", "there is no such address", "GET /v1/openapi.json lists them")

    async def _serve_mcp(self, request: Request, visitor: Visitor, send: Send) -> None:
        """Serve a request of the Model Context Protocol; one that lasts ends with its token."""
        receive = request.receive
        if request.method not in READS:
            body = await limit.read_body(request.headers, receive, self.limits)
            receive = _repeat(body, receive)
        serving = asyncio.ensure_future(serve_mcp(visitor, request.scope, receive, send))
        try:
            while not serving.done():
                await asyncio.wait((serving,), timeout=RECHECK_S)
                if not serving.done():
                    await self._enter(request)
            serving.result()
        except (DgentError, TooMany):
            if serving.done():
                raise
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def _newest(self, visitor: Visitor) -> dict[str, int]:
        return {visitor.store.name: await visitor.store.universe.seq()}

    async def _call(self, request: Request, match: Match, visitor: Visitor) -> Response:
        verb = find(match.route.verb)
        body = b""
        if match.route.path == blob.ONE and verb.id != "blob.delete":
            return await blob.serve_blob(request, match, verb, visitor, self.limits)
        if request.method not in READS:
            body = await limit.read_body(request.headers, request.receive, self.limits)
        if verb.id == "data.import":
            return await call.import_lines(request, match, visitor, body)
        given = call.read_fields(request, match, verb, body)
        if verb.streams:
            return self._stream(request, visitor, given)
        ask = call.read_ask(verb, given, self.limits.page)
        if verb.id == "data.export":
            return await call.export_lines(visitor, ask, self._exports)
        return await call.call(request, match, verb, visitor, ask)

    def _stream(self, request: Request, visitor: Visitor, given: dict[str, Any]) -> Response:
        ask = call.watch_of(request, given)
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            return Response(b"", 200, headers, "text/event-stream")
        if self._streams[visitor.id] >= self.limits.streams:
            raise TooMany(1.0)
        events = self._guard(request, visitor, feed.follow(visitor, ask))
        return StreamingResponse(events, 200, headers, "text/event-stream")

    async def _guard(
        self, request: Request, visitor: Visitor, stream: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream until the server stops, or the token ends."""
        self.metrics.following += 1
        self._streams[visitor.id] += 1
        checked = time.monotonic()
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    if time.monotonic() - checked > RECHECK_S:
                        await self._enter(request)
                        checked = time.monotonic()
                    yield event
        except (DgentError, TooMany):
            return
        finally:
            self.metrics.following -= 1
            self._streams[visitor.id] -= 1
            if not self._streams[visitor.id]:
                del self._streams[visitor.id]


def refuse_method(request: Request, methods: Sequence[str]) -> Response:
    """Return an answer that says which methods an address has."""
    return refuse(405, "method", f"{request.method} is not for this address", Allow=", ".join(methods))


def _repeat(body: bytes, receive: Receive) -> Receive:
    """Return a way to receive a body that was read already, and then whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _is_conditional(request: Request) -> bool:
    return b"if-match" in request.headers or b"if-none-match" in request.headers


def _name_of(host: str) -> str:
    """Return a host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if ":" in host else host


def cookie_name(host: str) -> str:
    """Return the name of the cookie of a server, by the host and port that a browser asks for."""
    port = host.removeprefix(_name_of(host)).removeprefix(":")
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def _cookie_of(request: Request) -> str | None:
    """Return our cookie; others of the same host may be of any form."""
    name = cookie_name(request.header(b"host") or "")
    for part in (request.header(b"cookie") or "").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value
    return None
