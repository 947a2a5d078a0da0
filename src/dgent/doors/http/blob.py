"""Blobs over HTTP: bodies that are streamed in and out, parts of them, and conditions by their hashes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.responses import Response, StreamingResponse

from dgent.doors.http.answer import HEADERS, answer, refuse
from dgent.doors.http.limit import Limits, stream_body
from dgent.errors import InputError, VersionConflict
from dgent.verbs import registry
from dgent.verbs.blob.blob import find_blob, open_blob
from dgent.verbs.registry import Verb

if TYPE_CHECKING:
    from dgent.doors.http.app import Request
    from dgent.doors.http.house import Visitor
    from dgent.doors.http.route import Match
    from dgent.store.port.blob import BlobInfo, BlobReader

PATH, ONE = "/v1/blobs/", "/v1/blobs/{key}"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)

# What somebody stored must never run as a page of this server, whatever type they gave it.
_SAFE = {"Content-Disposition": "attachment", "Content-Security-Policy": "default-src 'none'; sandbox"}


async def serve_blob(
    request: Request, match: Match, verb: Verb, visitor: Visitor, limits: Limits
) -> Response:
    """Answer with a blob or a part of it, or store the body as one."""
    key = _read_key(request)
    if verb.id == "blob.put":
        return await _store(request, key, verb, visitor, limits)
    # As the verb itself does: checks the caller's trust, and that there is such a blob.
    await registry.call(registry.find("blob.info"), visitor.context, {"key": key})
    return await _send(request, await find_blob(visitor.context, key), visitor)


def _read_key(request: Request) -> str:
    """Return the key in an address: all that follows, so that slashes need no escape."""
    try:
        return unquote(request.raw_path.partition(PATH)[2], errors="strict")
    except UnicodeDecodeError:
        raise InputError("the key in the address is not valid UTF-8", field="key") from None


async def _store(request: Request, key: str, verb: Verb, visitor: Visitor, limits: Limits) -> Response:
    given: dict[str, Any] = {"key": key, "path": "-", "content_type": request.header(b"content-type")}
    wanted, unwanted = request.header(b"if-match"), request.header(b"if-none-match")
    if unwanted is not None and (unwanted != "*" or wanted is not None):
        raise InputError("If-None-Match of a change is *, without If-Match", field="If-None-Match")
    if wanted is not None:
        found = await find_blob(visitor.context, key)
        if wanted.strip('"') != found.sha256:
            raise VersionConflict(f"the blob {key!r} has another content by now", key=key)
        given["expect"] = found.rev
    elif unwanted is not None:
        given["expect"] = 0
    parts = stream_body(request.headers, request.receive, limits)
    made = await registry.call(verb, visitor.context.copy(upload=parts), given)
    headers = {"ETag": f'"{made.id.partition(":")[2]}"'}
    return answer(made, 201 if made.rev == 1 else 200, headers)


async def _send(request: Request, info: BlobInfo, visitor: Visitor) -> Response:
    etag = f'"{info.sha256}"'
    headers = {**HEADERS, **_SAFE, "ETag": etag, "Accept-Ranges": "bytes"}
    if request.header(b"if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    status, start, end = 200, 0, info.size
    if request.header(b"if-range") in (None, etag):
        found = _read_range(request.header(b"range"), info.size)
        if found == ():
            return refuse(416, "range", "the blob is shorter", **{"Content-Range": f"bytes */{info.size}"})
        if found:
            status, (start, end) = 206, found
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{info.size}"
    headers["Content-Length"] = str(end - start)
    headers["Content-Type"] = info.content_type
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    stack = AsyncExitStack()
    try:
        reader = await stack.enter_async_context(await open_blob(visitor.context, info, start, end))
        first = await anext(aiter(reader), b"")  # damage that shows here is an answer, not a broken one
    except BaseException:
        await stack.aclose()
        raise
    return StreamingResponse(_parts(stack, first, reader), status, headers)


async def _parts(stack: AsyncExitStack, first: bytes, reader: BlobReader) -> AsyncIterator[bytes]:
    async with stack:
        yield first
        async for part in reader:
            yield part


def _read_range(text: str | None, size: int) -> tuple[int, int] | tuple[()] | None:
    """Return the first byte and the one after the last; () if there are none, None for the whole.

    Of several ranges, or what is not understood, the answer is the whole, as the standard allows.
    """
    found = None if text is None else _RANGE.fullmatch(text.replace(" ", ""))
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        start, end = max(0, size - int(found[2])), size
    else:
        start, end = int(found[1]), size if found[2] == "" else int(found[2]) + 1
        if found[2] and end <= start:
            return None
    return (start, min(end, size)) if start < size and end > start else ()
