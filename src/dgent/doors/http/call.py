"""One call of a verb over HTTP: fields from address, query and body, conditions, and the answer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dgent.doors.http.answer import HEADERS, answer, refuse
from dgent.doors.http.house import Visitor
from dgent.doors.http.limit import Places
from dgent.doors.http.route import NO_SCHEMA, ROUTES, Match
from dgent.errors import Corrupt, InputError, NotFound
from dgent.verbs import registry
from dgent.verbs.block.answer import BlockText, EditResult
from dgent.verbs.data.answer import Record, record_of
from dgent.verbs.data.history import Watch
from dgent.verbs.field import VerbField, fields_of
from dgent.verbs.registry import Ask, Verb

if TYPE_CHECKING:
    from dgent.doors.http.app import Request

LINES = "application/x-ndjson"
KEY = b"idempotency-key"
RECORD = "/v1/data/{schema}/{id}"
PART = 65_536  # bytes of a file that are sent at once


def read_fields(request: Request, match: Match, verb: Verb, body: bytes) -> dict[str, Any]:
    """Return the fields of a call, from the body, the query, the address and the headers."""
    known = _known(verb)
    given: dict[str, Any] = {**_read_query(request, known), **_read_body(body)}
    given |= {name: value for name, value in match.given.items() if name in known}
    if given.get("schema") == NO_SCHEMA:
        del given["schema"]
    given |= match.route.preset
    _read_conditions(request, known, given)
    key = request.header(KEY)
    if key is not None:
        if "key" not in known:
            raise InputError(f"{verb.id} takes no Idempotency-Key", field="key")
        given["key"] = key
    return given


def read_ask(verb: Verb, given: dict[str, Any], page: int) -> Ask:
    """Return the input of a verb; what it lists is bounded, so that one answer does not fill the memory."""
    ask = registry.read_input(verb, given)
    limit = getattr(ask, "limit", None)
    if verb.effect == "read" and isinstance(limit, int) and limit > page:
        raise InputError(f"limit is at most {page:,} here", hint="read page by page", field="limit")
    return ask


def _known(verb: Verb) -> dict[str, VerbField]:
    return {each.name: each for each in fields_of(verb, VerbField)}


def _read_query(request: Request, known: dict[str, VerbField]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in request.query():
        field = known.get(name)
        if field is not None and field.many:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise InputError(f"{name} is given twice", field=name)
        else:
            given[name] = value
    return given


def _read_body(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise InputError("the body is nested too deeply") from None
    if not isinstance(found, dict):
        raise InputError("the body must be a JSON object")
    return found


def _read_conditions(request: Request, known: dict[str, VerbField], given: dict[str, Any]) -> None:
    """Turn If-Match and If-None-Match of a change into the version that it expects."""
    wanted, unwanted = request.header(b"if-match"), request.header(b"if-none-match")
    if request.method in ("GET", "HEAD") or (wanted is None and unwanted is None):
        return
    if "expect" not in known:
        raise InputError("this address takes no If-Match", field="If-Match")
    if unwanted is not None and (unwanted != "*" or wanted is not None):
        raise InputError("If-None-Match of a change is *, without If-Match", field="If-None-Match")
    rev = "0" if unwanted is not None else (wanted or "").strip('"')
    if not rev.isdecimal() or len(rev) > 18:
        raise InputError('If-Match is the ETag of a version, such as "3"', field="If-Match")
    given["expect"] = int(rev)


async def call(request: Request, match: Match, verb: Verb, visitor: Visitor, ask: Ask) -> Response:
    """Call a verb and answer with what it found; the ETag of a record is its rev, of a block its version."""
    of_record = match.route.path.startswith(RECORD)
    if of_record and verb.id != "data.get":
        await _check_present(visitor, match)
    found = await registry.call(verb, visitor.context, ask)
    headers: dict[str, str] = {}
    if of_record and isinstance(found, Record):
        _check_address(found, match)
    number = _number_of(found)
    if number is not None:
        headers["ETag"] = f'"{number}"'
        if request.method in ("GET", "HEAD") and request.header(b"if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers={**HEADERS, **headers})
    made = verb.id == "data.put" and match.route.method == "POST" and match.route in ROUTES
    return answer(found, 201 if made else 200, headers)


async def _check_present(visitor: Visitor, match: Match) -> None:
    """Raise NotFound where the record of this id is of another schema; an absent one may be made."""
    universe = await visitor.context.universe()
    present = await universe.get(match.given["id"], raw=True)
    if present is not None:
        _check_address(record_of(present), match)


def _number_of(found: Any) -> int | None:
    """Return the number of the version that an answer is; None for other answers."""
    if isinstance(found, Record):
        return found.rev
    if isinstance(found, BlockText):
        return found.version if found.lines is None else None
    return found.version.version if isinstance(found, EditResult) else None


def _check_address(found: Record, match: Match) -> None:
    """Raise NotFound where the record of this id is of another schema, or only begins like it."""
    schema = match.given["schema"]
    if found.id != match.given["id"] or (found.schema or NO_SCHEMA) != schema:
        raise NotFound(f"there is no record {match.given['id']!r} of {schema!r}", id=match.given["id"])


def watch_of(request: Request, given: dict[str, Any]) -> Watch:
    """Return what a visitor watches; a client that comes back names the last event that it got."""
    last = request.header(b"last-event-id")
    if last is not None:
        if not last.isdecimal() or len(last) > 18:
            raise InputError("Last-Event-ID is the number of a commit", field="Last-Event-ID")
        given["from_seq"] = int(last)
    ask = registry.read_input(registry.find("data.watch"), given)
    assert isinstance(ask, Watch)
    return ask


async def export_lines(visitor: Visitor, ask: Ask, places: Places) -> Response:
    """Answer with records as lines of JSON: first to a file, so that neither side waits for the other.

    Such a file takes a place until it is sent.
    """
    with ExitStack() as stack:
        stack.enter_context(places.take())
        lines = stack.enter_context(tempfile.TemporaryFile(prefix="dgent-export-"))
        context = visitor.context.copy(out=lines.write)
        await registry.call(registry.find("data.export"), context, ask)
        size = lines.tell()
        lines.seek(0)
        headers = {**HEADERS, "Content-Length": str(size)}
        return _FileResponse(_read_parts(lines), stack.pop_all(), headers)


class _FileResponse(StreamingResponse):
    """An answer from a file, which is closed when it was sent, or could not be."""

    def __init__(self, parts: AsyncIterator[bytes], kept: ExitStack, headers: dict[str, str]) -> None:
        super().__init__(parts, 200, headers, LINES)
        self._kept = kept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._kept:
            await super().__call__(scope, receive, send)


async def _read_parts(lines: IO[bytes]) -> AsyncIterator[bytes]:
    while part := lines.read(PART):
        yield part


async def import_lines(request: Request, match: Match, visitor: Visitor, body: bytes) -> Response:
    """Import the lines that a visitor sends."""
    if not body:
        return refuse(400, "input", "there are no lines to import", "send what export wrote as the body")
    verb = registry.find("data.import")
    given: dict[str, Any] = {**_read_query(request, _known(verb)), **match.route.preset}
    handle, name = tempfile.mkstemp(prefix="dgent-import-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
        context = visitor.context.copy(upload=Path(name))
        return answer(await registry.call(verb, context, given))
    except Corrupt as error:
        return refuse(400, error.code, error.message, error.hint)  # it is the body that is damaged
    finally:
        os.unlink(name)
