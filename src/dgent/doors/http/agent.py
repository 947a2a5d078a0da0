"""Agents over HTTP: messages whose answers are streamed, the events of an agent, interrupt and resume.

The trust of a message is that of the token. A turn goes on when its client leaves: the answer is paid for,
and the client comes back to it with the number of the last event that it got.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from starlette.responses import Response, StreamingResponse

from dgent.blocks import Library
from dgent.config import settings as config
from dgent.config.agent import AgentSettings, find_agent, list_agents
from dgent.doors.http.answer import HEADERS, answer
from dgent.doors.http.call import KEY
from dgent.doors.http.feed import BEGIN
from dgent.doors.http.limit import Limits, read_body
from dgent.doors.http.route import Match, Route, Router
from dgent.doors.http.turn import AgentTurns, Turn
from dgent.errors import Denied, InputError, NotFound
from dgent.runtime.tool.consent import WAIT_S
from dgent.universe.universe import Universe
from dgent.verbs import caller as callers

if TYPE_CHECKING:
    from dgent.doors.http.app import Request
    from dgent.doors.http.house import Visitor

PATH = "/v1/agents/"
TURN = "X-Dgent-Turn"  # the header that names the turn of an answer
MAX_TEXT = 200_000  # characters of a message
MAX_KEY = 200
STREAM = {**HEADERS, "X-Accel-Buffering": "no"}

Guard = Callable[["Request", "Visitor", AsyncGenerator[bytes, None]], AsyncGenerator[bytes, None]]
"""Ends a stream with its token, and counts it."""


class NewMessage(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a message: its text, and where it came from, such as a channel of a chat service."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT)]
    origin: Annotated[str, msgspec.Meta(max_length=500)] = "http"


ROUTES = (
    Route("POST", "/v1/agents/{name}/messages", "send"),
    Route("GET", "/v1/agents/{name}/events", "follow"),
    Route("POST", "/v1/agents/{name}/interrupt", "interrupt"),
    Route("POST", "/v1/agents/{name}/resume", "resume"),
)
"""The addresses that are no verbs: what they answer goes on while the agent works."""

_router = Router(ROUTES)


def find_route(method: str, path: str) -> Match | tuple[str, ...]:
    """Return the route of an address, or the methods that it has."""
    return _router.find(method, path) if path.startswith(PATH) else ()


async def serve_agent(
    request: Request, match: Match, visitor: Visitor, limits: Limits, guard: Guard
) -> Response:
    """Answer a request to an agent."""
    name = match.given["name"]
    if not callers.may(visitor.context.caller, "append"):
        raise Denied(
            f"{visitor.principal.name} is {visitor.principal.trust} and may not write to an agent",
            hint="it takes a conversant",
        )
    if request.method == "HEAD":
        return Response(b"", 200, STREAM, "text/event-stream")
    body = b"" if request.method == "GET" else await read_body(request.headers, request.receive, limits)
    turns = await visitor.store.agent(name, limits.turns)
    handler: Callable[..., Awaitable[Response]] = _HANDLERS[match.route.verb]
    return await handler(request, visitor, turns, body, guard)


async def _send(request: Request, visitor: Visitor, turns: AgentTurns, body: bytes, guard: Guard) -> Response:
    given = _read(body)
    key = request.header(KEY)
    if key is not None and not 0 < len(key) <= MAX_KEY:
        raise InputError(f"Idempotency-Key has 1 to {MAX_KEY} characters", field="Idempotency-Key")
    turn = None if key is None else turns.find(visitor.id, key)
    if turn is None:
        # The key is the client's own: others may use the same one.
        durable = None if key is None else f"http/{visitor.id}/{key}"
        said = turns.runtime.respond(given.text, caller=visitor.principal, origin=given.origin, key=durable)
        turn = turns.start(visitor.id, key, said, partner=_is_partner(visitor))
    return _stream(request, visitor, turns, turn, turn.first - 1, guard)


async def _resume(
    request: Request, visitor: Visitor, turns: AgentTurns, body: bytes, guard: Guard
) -> Response:
    _require_partner(visitor, "resume")
    batch = _read_field(body, "batch")
    turn = turns.start(visitor.id, None, turns.runtime.resume(batch), partner=True)
    return _stream(request, visitor, turns, turn, turn.first - 1, guard)


async def _follow(
    request: Request, visitor: Visitor, turns: AgentTurns, body: bytes, guard: Guard
) -> Response:
    given = dict(request.query())
    last = request.header(b"last-event-id") or given.get("since")
    if last is not None and (not last.isdecimal() or len(last) > 18):
        raise InputError("Last-Event-ID is the number of an event", field="Last-Event-ID")
    turn = _find_turn(visitor, turns, given.get("turn"))
    since = int(last) if last is not None else None if turn is None else turn.first - 1
    return _stream(request, visitor, turns, turn, since, guard)


async def _interrupt(
    request: Request, visitor: Visitor, turns: AgentTurns, body: bytes, guard: Guard
) -> Response:
    turn = _find_turn(visitor, turns, _read_field(body, "turn"))
    stopped = await turns.interrupt(turn)
    return answer({"interrupted": [each.id for each in stopped]})


_HANDLERS: dict[str, Callable[..., Awaitable[Response]]] = {
    "send": _send,
    "follow": _follow,
    "interrupt": _interrupt,
    "resume": _resume,
}


def _find_turn(visitor: Visitor, turns: AgentTurns, id: str | None) -> Turn | None:
    """Return a turn of the visitor, or of anybody for a partner, for whom None is all of them."""
    if id is None:
        _require_partner(visitor, "see all turns")
        return None
    turn = turns.get(id)
    if turn is None or not (_is_partner(visitor) or turn.owner == visitor.id):
        raise NotFound(
            f"there is no turn {id[:60]!r} here", hint="its answer is among the messages of the agent"
        )
    return turn


def _stream(
    request: Request, visitor: Visitor, turns: AgentTurns, turn: Turn | None, since: int | None, guard: Guard
) -> Response:
    headers = STREAM if turn is None else {**STREAM, TURN: turn.id}

    async def send() -> AsyncGenerator[bytes, None]:
        yield BEGIN
        async with aclosing(turns.log.follow(since, turn, whole=_is_partner(visitor))) as found:
            async for each in found:
                yield each

    return StreamingResponse(guard(request, visitor, send()), 200, headers, "text/event-stream")


def _is_partner(visitor: Visitor) -> bool:
    return visitor.principal.trust == "partner"


def _require_partner(visitor: Visitor, what: str) -> None:
    if not _is_partner(visitor):
        who = visitor.principal
        raise Denied(f"{who.name} is {who.trust} and may not {what}", hint="it takes a partner")


def _read(body: bytes) -> NewMessage:
    try:
        return msgspec.json.decode(body, type=NewMessage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"the body is not a message: {error}", hint='send {"text": "…"}', field="text"
        ) from None


def _read_field(body: bytes, name: str) -> str | None:
    """Return one field of a body that may be empty."""
    if not body.strip():
        return None
    try:
        found = msgspec.json.decode(body, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the body is not JSON with texts: {error}", field=name) from None
    return found.get(name)


class MachineAgents:
    """The agents of this machine, as its settings have them when an agent is first asked for."""

    def __init__(self, load: Callable[[], config.Settings]) -> None:
        self._load = load

    def find_settings(self, name: str) -> AgentSettings:
        """Return the settings of an agent."""
        return find_agent(self._load(), name)

    async def check(self, universe: Universe, name: str) -> None:
        """Raise NotFound for an agent that is not on the roster and has no settings."""
        if name not in list_agents(self._load()):
            await Library(universe, name).agents.get(name)

    def open(self, universe: Universe, name: str, most: int) -> AgentTurns:
        """Return the turns of an agent; what it needs consent for waits for an answer at any door."""
        from dgent.runtime.opener import open_agent  # loads the runtime, which few servers need

        made = open_agent(universe, name, self.find_settings(name), consent_s=WAIT_S)
        return AgentTurns(made, most)


def describe_paths() -> dict[str, dict[str, Any]]:
    """Return the addresses for the description of the server."""
    text = {"type": "string"}
    stream = {"description": "events of the turn", "content": {"text/event-stream": {}}}
    plain = {"description": "the turns that were interrupted", "content": {"application/json": {}}}
    rows: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[str]]] = {
        "send": (
            "Send a message to an agent; the answer is a stream of events.",
            stream,
            {"text": {**text, "minLength": 1, "maxLength": MAX_TEXT}, "origin": text},
            ["text"],
        ),
        "follow": ("Follow the events of an agent, or of one turn.", stream, {}, []),
        "interrupt": ("Interrupt a turn, or all of them.", plain, {"turn": text}, []),
        "resume": ("Go on with an interrupted turn.", stream, {"batch": text}, []),
    }
    found: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        summary, response, fields, needed = rows[route.verb]
        made: dict[str, Any] = {
            "operationId": f"{route.method.lower()} {route.path}",
            "summary": summary,
            "tags": ["agent"],
            "parameters": [{"name": "name", "in": "path", "required": True, "schema": text}],
            "responses": {"200": response, "default": _ERROR},
        }
        if route.verb == "follow":
            made["parameters"] += [
                {"name": "turn", "in": "query", "required": False, "schema": text},
                {"name": "since", "in": "query", "required": False, "schema": {"type": "integer"}},
            ]
        else:
            schema = {
                "type": "object",
                "properties": fields,
                "required": needed,
                "additionalProperties": False,
            }
            made["requestBody"] = {
                "required": bool(needed),
                "content": {"application/json": {"schema": schema}},
            }
        found.setdefault(route.path, {})[route.method.lower()] = made
    return found


_ERROR = {
    "description": "what was wrong, and what to do",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
