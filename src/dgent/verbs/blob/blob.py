"""Verbs for blobs: files under keys, beside the records."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dgent import clock
from dgent.errors import Corrupt, InputError, NoBackendAvailable, NotFound, StorageFull, VersionConflict
from dgent.exchange import folders
from dgent.store.port.blob import CHUNK, BlobInfo, BlobReader, Collected
from dgent.universe.blob import BlobStore, open_blobs
from dgent.verbs import parse
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, Items, argument, option, verb

STREAM = "-"  # in place of a file's name: standard output, or the body of a request or an answer
BlobKeyField = Annotated[str, argument("the blob's key, any text", complete="blob")]


class BlobAnswer(msgspec.Struct, frozen=True):
    """A blob as verbs show it; `references` counts the keys and records with its content, where asked."""

    key: str
    id: str
    size_bytes: int
    content_type: str
    updated_at: datetime | None = None
    rev: int | None = None
    references: int | None = None


async def blobs_of(context: Context) -> BlobStore:
    """Return the blobs of a call."""
    return open_blobs(await context.universe())


async def open_blob(
    context: Context, info: BlobInfo, start: int = 0, end: int | None = None
) -> AbstractAsyncContextManager[BlobReader]:
    """Return a context that reads a part of a blob; a door that can send parts uses it."""
    return (await blobs_of(context)).open(info, start=start, end=end)


async def find_blob(context: Context, key: str) -> BlobInfo:
    """Return a blob; raises NotFound."""
    found = await (await blobs_of(context)).info(key)
    if found is None:
        raise NotFound(f"there is no blob {key!r}", hint="`dgent blob list` shows them", key=key)
    return found


class PutBlob(Ask):
    """Input of `blob.put`."""

    key: BlobKeyField
    path: Annotated[str, argument("the file to store", complete="file")]
    content_type: Annotated[
        str | None, option("such as image/png; without it the file's name says", name="type")
    ] = None
    expect: Annotated[int | None, option("only if the key has this rev; 0: only if there is none")] = None


@verb(
    "blob.put",
    effect="write",
    errors=(InputError, NotFound, StorageFull, VersionConflict),
    local=True,
    makes=True,
    lighter=lambda ask: "append" if ask.expect == 0 else None,
    unless=lambda ask: ask.path == STREAM,
)
async def put(context: Context, ask: PutBlob) -> BlobAnswer:
    """Store a file under a key; the same content is kept once, whatever its keys."""
    data: Any
    if ask.path == STREAM:
        if context.upload is None:
            raise InputError("there is nothing to read here", hint="name a file", field="path")
        data = _read(context.upload) if isinstance(context.upload, Path) else context.upload
    elif not os.path.exists(ask.path) or os.path.isdir(ask.path):
        raise NotFound(f"there is no file {ask.path}", path=ask.path)
    else:
        data = _read(Path(ask.path))
    kind = ask.content_type or mimetypes.guess_type(ask.key if ask.path == STREAM else ask.path)[0]
    return _answer(await (await blobs_of(context)).put(ask.key, data, kind, expect=ask.expect))


async def _read(path: Path) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    with folders.translate_errors(path), open(path, "rb", buffering=0) as file:
        while part := await loop.run_in_executor(None, file.read, CHUNK):
            yield part


class GetBlob(Ask):
    """Input of `blob.get`."""

    key: BlobKeyField
    to: Annotated[str, option("a new file; - writes to standard output", short="o")] = STREAM


@verb(
    "blob.get",
    effect="read",
    errors=(InputError, NotFound, Corrupt, StorageFull, NoBackendAvailable),
    local=True,
    unless=lambda ask: ask.to == STREAM,
)
async def get(context: Context, ask: GetBlob) -> BlobAnswer:
    """Write the content of a blob, checked by its hash, to a new file or to standard output."""
    info = await find_blob(context, ask.key)
    if ask.to == STREAM:
        if context.out is None:
            raise InputError("there is no standard output here", hint="name a file", field="to")
        async with await open_blob(context, info) as reader:
            async for part in reader:
                context.out(part)
        return _answer(info)
    target = folders.check_path(Path(ask.to), "to")
    if os.path.lexists(target):
        raise InputError(f"{target} exists already", hint="name a new file", field="to")
    with folders.translate_errors(target):
        await _write_file(context, info, target)
    return _answer(info)


async def _write_file(context: Context, info: BlobInfo, target: Path) -> None:
    # Under a temporary name until it is complete and checked.
    handle, unfinished = tempfile.mkstemp(dir=target.parent, prefix=".blob.", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            async with await open_blob(context, info) as reader:
                async for part in reader:
                    file.write(part)
        os.link(unfinished, target)  # unlike a rename, this never takes the place of another file
    except FileExistsError:
        raise InputError(f"{target} exists already", hint="name a new file", field="to") from None
    finally:
        os.unlink(unfinished)


class OneBlob(Ask):
    """Input of `blob.info`."""

    key: BlobKeyField


@verb("blob.info", effect="read", errors=(NotFound,))
async def info(context: Context, ask: OneBlob) -> BlobAnswer:
    """Show size, type and hash of a blob, and how many keys and records refer to its content."""
    found = await find_blob(context, ask.key)
    return _answer(found, await (await blobs_of(context)).references(ask.key))


class ListBlobs(Ask):
    """Input of `blob.list`."""

    prefix: Annotated[str, argument("the beginning of the keys; all without it", complete="blob")] = ""
    after: Annotated[str | None, option("only keys after this one, to go on with a list")] = None
    limit: Annotated[int, option("how many at most", short="n")] = 100


@verb("blob.list", effect="read", errors=(InputError,))
async def list_(context: Context, ask: ListBlobs) -> Items[BlobAnswer]:
    """List blobs in the order of their keys."""
    found = await (await blobs_of(context)).list(ask.prefix, after=ask.after, limit=ask.limit)
    return Items([_answer(each) for each in found])


class DeleteBlob(OneBlob):
    """Input of `blob.delete`."""

    expect: Annotated[int | None, option("only if the key has this rev")] = None


@verb("blob.delete", effect="write", errors=(NotFound, VersionConflict))
async def delete(context: Context, ask: DeleteBlob) -> BlobAnswer:
    """Delete a key; its content stays until `blob gc` finds it unused."""
    found = await find_blob(context, ask.key)
    await (await blobs_of(context)).delete(ask.key, expect=ask.expect)
    return _answer(found)


class Forgotten(msgspec.Struct, frozen=True):
    """The number of keys that were erased."""

    blobs: int


class ForgetBlobs(Ask):
    """Input of `blob.forget`."""

    keys: Annotated[tuple[str, ...], argument("the keys of the blobs", complete="blob")]


@verb("blob.forget", effect="destroy")
async def forget(context: Context, ask: ForgetBlobs) -> Forgotten:
    """Erase blobs for good: keys, their history, and contents that nothing else refers to."""
    return Forgotten(await (await blobs_of(context)).forget(*ask.keys))


class CollectBlobs(Ask):
    """Input of `blob.gc`."""

    grace: Annotated[str, option("how long a content must have been unused: 12h, 7d, 0d")] = "1d"
    dry_run: Annotated[bool, option("only count")] = False


@verb("blob.gc", effect="destroy", errors=(InputError,))
async def gc(context: Context, ask: CollectBlobs) -> Collected:
    """Remove contents that nothing has referred to for a time; the first run notes when that begins."""
    now = clock.now()
    grace = parse.ahead(ask.grace, "grace") - now
    seconds = timedelta(seconds=round(grace.total_seconds()))
    return await (await blobs_of(context)).collect(grace=seconds, dry_run=ask.dry_run)


def _answer(found: BlobInfo, references: int | None = None) -> BlobAnswer:
    return BlobAnswer(
        found.key, found.id, found.size, found.content_type, found.updated_at, found.rev, references
    )
