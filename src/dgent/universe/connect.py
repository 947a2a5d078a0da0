"""From places to a backend, and the state of an open universe: its loop, its named locks."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Literal
from weakref import WeakValueDictionary

from dgent.config.secret import mask
from dgent.errors import InputError, NoBackendAvailable, SchemaConflict, Unavailable
from dgent.model.schema import Schema
from dgent.store.backend import Backend
from dgent.store.registry import backend_for

Degrade = bool | Literal["optimistic"] | None

_held: ContextVar[frozenset[str]] = ContextVar("dgent_held", default=frozenset())


class OpenState:
    """The open state of a universe, shared with the views that rooms have of it."""

    __slots__ = ("closed", "loop", "others")

    def __init__(self) -> None:
        self.others: tuple[str, ...] = ()  # the caller's other places, which were not tried
        self.loop: asyncio.AbstractEventLoop | None = None
        self.closed = False


class Names:
    """The named locks of a universe within one program; a lock lives only while it is held or waited for."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[None]:
        """Hold a name; asking for it again in the same task would deadlock."""
        held = _held.get()
        if name in held:
            raise InputError(f"{name!r} is held already by the caller, so it would wait for itself")
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        async with lock:
            token = _held.set(held | {name})
            try:
                yield
            finally:
                _held.reset(token)


async def open_store(backend: Backend, others: Sequence[str]) -> None:
    """Open a backend; on failure the error names it, and the places that were not tried."""
    try:
        if not await backend.is_available():
            raise NoBackendAvailable(
                f"the {backend.name} store cannot be opened at {getattr(backend, 'path', 'its place')}",
                hint="does the folder exist, and may you write there?",
            )
        await backend.open()
    except Unavailable as error:
        if others:
            error.message += f"; not tried, because it is another store: {', '.join(others)}"
            error.hint = "pass degrade=True to keep writes in an outbox until it is back"
            error.args = (error.message,)
        raise


def backend_at(
    url: str | Sequence[str] | None, degrade: Degrade, outbox: str | None, **options: str | None
) -> tuple[Backend, tuple[str, ...]]:
    """Return the backend for the named places, and the places that this backend does not stand for."""
    if degrade not in (None, False, True, "optimistic"):
        raise InputError(f"degrade is {degrade!r}; it is True, False or 'optimistic'", field="degrade")
    if url is None:
        from dgent.config import settings  # the only reader of home and environment, and only when asked

        urls, degrade, outbox = settings.default_places(degrade, outbox)
    elif isinstance(url, str) or not isinstance(url, Sequence):
        urls = [url]  # what is neither is refused with its type below
    else:
        urls = list(url)
    if not urls:
        raise InputError("the list of places is empty", field="url")
    if not degrade:
        if outbox is not None:
            raise InputError("an outbox needs a store that may be unavailable", hint="pass degrade=True")
        return backend_for(urls[0], **options), tuple(mask(each) for each in urls[1:])
    return _degradable(urls, degrade, outbox, options), ()


def _degradable(
    urls: Sequence[str], degrade: Degrade, outbox: str | None, options: dict[str, str | None]
) -> Backend:
    from dgent.store.offline.backend import DegradableBackend, Place  # loads when it is used
    from dgent.store.offline.outbox import Outbox

    def place(url: str) -> Place:
        # A replica is one of the preferred store's.
        wanted = {**options, "read_url": options.get("read_url") if url is urls[0] else None}
        backend = backend_for(url, **wanted)  # what is wrong with a later place shows now
        # A relative path means another store in another folder.
        path = getattr(backend, "path", None)
        identity = mask(url) if path is None else f"{backend.name}:{path}"
        return Place(lambda: backend_for(url, **wanted), mask(url), identity)

    if outbox is None:
        from dgent.config.places import outbox_file

        outbox = outbox_file(urls[0])
    path = outbox.removeprefix("sqlite:///")
    if not path or ":" in path.partition("/")[0]:
        raise InputError("an outbox is a SQLite file", hint="give its path", field="outbox")
    kept = Outbox(backend_for(f"sqlite:///{path}", durability="full"), path)
    return DegradableBackend([place(url) for url in urls], kept, optimistic=degrade == "optimistic")


def warn_of_dispute(schema: Schema[Any]) -> None:
    """Warn that two programs have different contracts under one version."""
    warnings.warn(
        f"{schema.name} version {schema.version} was declared with another contract before; two programs"
        " disagree, and each may find the other's records unreadable. A changed contract needs a higher"
        " version.",
        SchemaConflict,
        stacklevel=5,
    )
