"""From places to a backend: the engines by their URL schemes. An engine's module loads when it is used."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dgent.config.secret import mask
from dgent.config.url import spell_url
from dgent.errors import InputError, NoBackendAvailable, Unavailable, Unsupported
from dgent.ids import check_name
from dgent.store.backend import Backend

if TYPE_CHECKING:
    from dgent.store.port.blob import BlobContents
    from dgent.store.port.relational import IRelationalStore
    from dgent.store.port.telemetry import ITelemetryStore, Retention

Degrade = bool | Literal["optimistic"] | None

_SETTING = re.compile(r"\?([A-Za-z_][A-Za-z0-9_.-]*)=")


class Engine(NamedTuple):
    """An engine by name: its URL scheme, and the function that makes a backend from a URL."""

    name: str
    scheme: str
    example: str
    make: Callable[[str, dict[str, Any]], Backend]


def _memory(rest: str, options: dict[str, Any]) -> Backend:
    if rest.startswith("/"):
        raise InputError(
            f"memory: takes a name or nothing, and got {mask(rest)!r}",
            hint='write "memory:", or "memory:name" for a store that this process shares',
        )
    for name in ("durability", "upgrade"):
        options.pop(name, None)
    backend: Backend = import_module("dgent.store.memory.backend").MemoryBackend(
        **options, shared=check_name(rest, "url") if rest else None
    )
    return backend


def _sqlite(rest: str, options: dict[str, Any]) -> Backend:
    if not rest.startswith("///") or len(rest) == 3:
        raise InputError(
            f"{mask('sqlite:' + rest)} names no file",
            hint="write sqlite:///relative/path or sqlite:////absolute/path",
        )
    if found := _SETTING.search(rest):
        # As a part of the name it would mean another, empty file.
        raise InputError(
            f"sqlite: takes no settings, and got {found[1]!r}",
            hint="leave out the ? and the rest",
            field="url",
        )
    backend: Backend = import_module("dgent.store.sqlite.backend").SQLiteBackend(rest[3:], **options)
    return backend


def _postgres(rest: str, options: dict[str, Any]) -> Backend:
    try:
        module = import_module("dgent.store.postgres.backend")
    except ModuleNotFoundError as error:
        if error.name not in ("asyncpg", "greenlet"):
            raise
        raise Unsupported(
            f"the postgres engine needs {error.name}", hint="pip install 'dgent[postgres]'"
        ) from None
    own = {name: options.pop(name) for name in ("wrap", "upgrade") if name in options}
    address = import_module("dgent.store.postgres.address").address_of("postgresql:" + rest, **options)
    backend: Backend = module.PostgresBackend(address, **own)
    return backend


def _jsonl(rest: str, options: dict[str, Any]) -> Backend:
    path, _, query = rest.partition("?")
    if not path.strip("/"):
        raise InputError(f"jsonl:{path} does not name a folder", hint="write jsonl:path/to/folder")
    options.update(_settings(query))
    options.pop("upgrade", None)  # its lines never change, and its cache is built anew
    if options.pop("durability", None) == "relaxed":
        options.setdefault("sync", "batch")
    backend: Backend = import_module("dgent.store.jsonl.backend").JSONLBackend(path, **options)
    return backend


def _remote(scheme: str) -> Callable[[str, dict[str, Any]], Backend]:
    def make(rest: str, options: dict[str, Any]) -> Backend:
        for name in ("durability", "upgrade"):
            options.pop(name, None)  # the server decides
        address = import_module("dgent.store.remote.address").address_of(f"{scheme}:{rest}", **options)
        backend: Backend = import_module("dgent.store.remote.backend").RemoteBackend(address)
        return backend

    return make


_SETTINGS: dict[str, Callable[[str], Any]] = {
    "sync": str,
    "sync_every": int,
    "sync_interval": float,
    "cache": str,
}


def _settings(query: str) -> dict[str, Any]:
    """Return the settings in the query part of a folder's URL."""
    from urllib.parse import parse_qsl  # only a URL with settings needs it

    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _SETTINGS:
            raise InputError(f"jsonl: has no setting {name!r}", hint=f"it has {', '.join(_SETTINGS)}")
        try:
            found[name] = _SETTINGS[name](value)
        except ValueError:
            raise InputError(f"{name} is {value!r}, which is not a number", field=name) from None
    return found


ENGINES: tuple[Engine, ...] = (
    Engine("memory", "memory", "memory:", _memory),
    Engine("sqlite", "sqlite", "sqlite:///path/to/file.db", _sqlite),
    Engine("postgres", "postgresql", "postgresql://user@host/database", _postgres),
    Engine("jsonl", "jsonl", "jsonl:path/to/folder", _jsonl),
)

SERVERS: tuple[Engine, ...] = (
    Engine("remote", "https", "https://host/constellation", _remote("https")),
    Engine("remote", "http", "http://127.0.0.1:8730", _remote("http")),
)
"""Stores of other engines, behind a dgent server."""


def relational_for(url: str) -> IRelationalStore:
    """Return the tables at a URL, which open when they are first used; nothing else is at that place."""
    backend: Any = backend_for(url)  # checks the URL; nothing is opened
    made: IRelationalStore
    if backend.name in ("memory", "sqlite"):
        path = ":memory:" if backend.name == "memory" else backend.path
        made = import_module("dgent.store.sqlite.relational").SQLiteRelational(path)
    elif backend.name == "postgres":
        made = import_module("dgent.store.postgres.relational").PostgresRelational(backend.address, None)
    else:
        raise Unsupported(
            f"tables cannot be kept at {mask(url)}", hint="memory:, sqlite: and postgresql: can keep them"
        )
    return made


def telemetry_for(url: str, retention: Retention | None = None) -> ITelemetryStore:
    """Return the telemetry store of a URL, which opens when it is first used.

    The URL is the place of the events themselves: see `telemetry_beside` for those of a store.
    """
    backend: Any = backend_for(url)  # checks the URL; nothing is opened
    if backend.name == "sqlite":
        return _telemetry_file(backend.path, retention)
    if backend.name not in ("memory", "postgres"):
        raise Unsupported(
            f"telemetry cannot be kept at {mask(url)}", hint="memory:, sqlite: and postgresql: can keep it"
        )
    return telemetry_beside(backend, retention)


def telemetry_beside(backend: Backend, retention: Retention | None = None) -> ITelemetryStore:
    """Return the telemetry store that belongs to a store: in its folder, beside its file, or in its tables.

    It opens when it is first used.
    """
    from dgent.config.places import DATABASE, TELEMETRY  # loads when it is used

    reached: Any = getattr(backend, "reachable_store", backend)
    if reached.name == "postgres":
        made = import_module("dgent.store.postgres.telemetry").PostgresTelemetry(reached.address, retention)
        store: ITelemetryStore = made
        return store
    if reached.name == "memory":
        return _telemetry_file(":memory:", retention)
    if reached.name == "jsonl":
        return _telemetry_file(os.path.join(reached.folder, TELEMETRY), retention)
    if reached.name == "sqlite":
        folder, name = os.path.split(reached.path)
        beside = os.path.join(folder, TELEMETRY) if name == DATABASE else f"{reached.path}.{TELEMETRY}"
        return _telemetry_file(beside, retention)
    raise Unsupported(
        f"the {reached.name} engine has no place for telemetry",
        hint="set storage.telemetry.url, or call the verbs of the server",
    )


def _telemetry_file(path: str, retention: Retention | None) -> ITelemetryStore:
    made: ITelemetryStore = import_module("dgent.store.sqlite.telemetry").SQLiteTelemetry(path, retention)
    return made


def backend_for(url: str, **options: Any) -> Backend:
    """Return the backend of a URL, not opened yet. No other engine is ever used in its place."""
    if not isinstance(url, str):
        raise InputError(f"a URL is text, not {type(url).__name__}", field="url")
    scheme, colon, rest = spell_url(url).partition(":")
    for engine in (*ENGINES, *SERVERS):
        if colon and engine.scheme == scheme:
            if "\0" in rest:
                raise InputError("a path must not contain a NUL character", field="url")
            given = {name: value for name, value in options.items() if value is not None}
            if "read_url" in given and engine.name != "postgres":
                raise InputError(
                    f"{engine.name} has no replicas", hint="leave read_url out", field="read_url"
                )
            if "token" in given and engine.name != "remote":
                raise InputError(
                    f"{engine.name} takes no token",
                    hint="it is for https://host/constellation",
                    field="token",
                )
            if not given.pop("read_only", False):
                return engine.make(rest, given)
            return _make_read_only(engine, rest, given)
    known = ", ".join(engine.example for engine in (*ENGINES, *SERVERS[:1]))
    raise InputError(f"{scheme!r} is not an engine of this build", hint=f"use one of {known}", field="url")


def _make_read_only(engine: Engine, rest: str, options: dict[str, Any]) -> Backend:
    if engine.name == "jsonl":
        raise Unsupported(
            "a folder of lines cannot be opened read-only: reading it takes its lock",
            hint="copy the folder and open the copy, or leave read_only out",
        )
    if engine.name in ("sqlite", "postgres"):
        options["read_only"] = True
    return read_only(engine.make(rest, options))


def read_only(backend: Backend) -> Backend:
    """Return a backend that refuses writes."""
    made: Backend = import_module("dgent.store.read_only").ReadOnlyBackend(backend)
    return made


# -- blobs ---------------------------------------------------------------------------------


def contents_for(url: str) -> BlobContents:
    """Return the place for contents of blobs that a URL names."""
    scheme, _, rest = spell_url(url).partition(":")
    made: BlobContents
    if scheme == "files" and rest and "\0" not in rest:
        made = import_module("dgent.store.files.blob").FileContents(rest.removeprefix("//"))
    elif scheme == "memory" and not rest:
        made = import_module("dgent.store.memory.blob").MemoryContents()
    elif scheme == "postgresql":
        made = contents_beside(backend_for(url))
    else:
        raise InputError(
            f"{mask(url)} is not a place for blobs",
            hint="use files:path/to/folder, postgresql://user@host/database or memory:",
            field="url",
        )
    return made


def contents_beside(backend: Backend) -> BlobContents:
    """Return the place for contents of blobs that belongs to a store."""
    reached: Any = getattr(backend, "reachable_store", backend)
    made: BlobContents | None = getattr(reached, "blobs", None)
    if made is not None:
        return made
    if reached.name == "postgres":
        made = import_module("dgent.store.postgres.blob").PostgresContents(reached.address)
    elif folder := blob_folder(backend):
        made = import_module("dgent.store.files.blob").FileContents(folder)
    else:
        raise Unsupported(f"the {reached.name} engine has no place for blobs")
    assert made is not None
    return made


def blob_folder(backend: Backend) -> str | None:
    """Return the folder for blobs of a local store: inside a constellation or a folder of lines, or beside
    the file of the database; None for other stores."""
    from dgent.config.places import BLOBS, DATABASE  # loads when it is used

    reached: Any = getattr(backend, "reachable_store", backend)
    if reached is None:
        return None  # a store that is unavailable
    if reached.name == "jsonl":
        return os.path.join(reached.folder, BLOBS)
    path: str | None = reached.path if reached.name == "sqlite" else None
    if path is None:
        return None
    folder, name = os.path.split(path)
    return os.path.join(folder, BLOBS) if name == DATABASE else f"{path}.{BLOBS}"


# -- places ---------------------------------------------------------------------------------


class OpenState:
    """The open state of a handle on a store, shared with the views that rooms have of it."""

    __slots__ = (
        *(
            "adapters",
            "blobs",
            "choices",
            "closed",
            "loop",
            "machine",
            "others",
            "provider",
            "storage",
            "tail",
            "telemetry",
        ),
    )

    def __init__(self) -> None:
        self.others: tuple[str, ...] = ()  # the caller's other places, which were not tried
        self.choices: tuple[Backend, ...] = ()  # of which the first that answers is opened
        self.loop: asyncio.AbstractEventLoop | None = None
        self.closed = False
        self.adapters: Any = None  # the tables that are registered, once one was
        self.blobs: Any = None  # the place of blobs, once one was used
        self.storage: Mapping[str, Mapping[str, Any]] = {}  # the settings of ports, by their names
        self.telemetry: ITelemetryStore | None = None  # once it was used
        self.machine: Any = None  # the state of the ports, once one was used
        self.provider: Any = None  # of all stores beside the records, once it was used
        self.tail: Any = None  # the newest commits, once somebody asked what changed


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


async def open_first(backends: Sequence[Backend]) -> Backend:
    """Open the first backend that answers, and return it; raises with the reasons of all if none does."""
    reasons = []
    for backend in backends:
        try:
            await open_store(backend, ())
            return backend
        except Unavailable as error:
            reasons.append(error.message)
    raise NoBackendAvailable(
        f"none of {len(reasons)} places can be opened: {'; '.join(reasons)}",
        hint="start one of them, or add a place that is there",
    )


def backends_at(
    url: str | Sequence[str] | None,
    choose: str,
    backend: Backend | None,
    degrade: Degrade,
    **options: Any,
) -> tuple[Backend, ...]:
    """Return the backends of a list of places, the preferred one first."""
    if choose != "priority":
        raise InputError(f"choose is {choose!r}; it is 'priority' or left out", field="choose")
    if backend is not None or isinstance(url, str) or not isinstance(url, Sequence) or not url:
        raise InputError("choose needs a list of places", hint='open(["postgresql://…", "sqlite:///…"], …)')
    if degrade:
        raise InputError("choose and degrade cannot be combined", hint="give one of them")
    return tuple(backend_for(each, **_options_of(each, url, options)) for each in url)


def _options_of(url: str, urls: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of one of several places: a replica is one of the first, a token is for servers."""
    own = {**options, "read_url": options.get("read_url") if url is urls[0] else None}
    if len(urls) > 1 and not is_server(url):
        own["token"] = None
    return own


def is_server(url: str) -> bool:
    """Return whether a URL is that of a dgent server."""
    return isinstance(url, str) and url.partition(":")[0] in ("http", "https")


def backend_at(
    url: str | Sequence[str] | None, degrade: Degrade, outbox: str | None, **options: Any
) -> tuple[Backend, tuple[str, ...]]:
    """Return the backend for the named places, and the places that this backend does not stand for."""
    if degrade not in (None, False, True, "optimistic"):
        raise InputError(f"degrade is {degrade!r}; it is True, False or 'optimistic'", field="degrade")
    if url is None:
        from dgent.config import settings  # the only reader of home and environment, and only when asked

        urls, degrade, outbox = settings.default_places(degrade, outbox)
        if options.get("token") is None and is_server(urls[0]):
            options["token"] = settings.load().token
    elif isinstance(url, str) or not isinstance(url, Sequence):
        urls = [url]  # what is neither is refused with its type below
    else:
        urls = list(url)
    if not urls:
        raise InputError("the list of places is empty", field="url")
    if degrade and options.get("read_only"):
        raise InputError("read_only and degrade cannot be combined", hint="give one of them")
    if not degrade:
        if outbox is not None:
            raise InputError("an outbox needs a store that may be unavailable", hint="pass degrade=True")
        return backend_for(urls[0], **_options_of(urls[0], urls, options)), tuple(map(mask, urls[1:]))
    return _degradable(urls, degrade, outbox, options), ()


def _degradable(
    urls: Sequence[str], degrade: Degrade, outbox: str | None, options: dict[str, Any]
) -> Backend:
    from dgent.store.offline.backend import DegradableBackend, Place  # loads when it is used
    from dgent.store.offline.outbox import Outbox

    def place(url: str) -> Place:
        wanted = _options_of(url, urls, options)
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
