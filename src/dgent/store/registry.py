"""The engines, by the URL scheme of each. An engine's module loads when it is used."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from dgent.config.secret import mask
from dgent.errors import InputError, Unsupported
from dgent.store.backend import Backend

_SETTING = re.compile(r"\?([A-Za-z_][A-Za-z0-9_.-]*)=")


class Engine(NamedTuple):
    """An engine by name: its URL scheme, and the function that makes a backend from a URL."""

    name: str
    scheme: str
    example: str
    make: Callable[[str, dict[str, Any]], Backend]


def _memory(rest: str, options: dict[str, Any]) -> Backend:
    if rest:
        raise InputError(f"memory: takes no place, and got {mask(rest)!r}", hint='write "memory:"')
    options.pop("durability", None)
    backend: Backend = import_module("dgent.store.memory.backend").MemoryBackend(**options)
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
    wrap = {"wrap": options.pop("wrap")} if "wrap" in options else {}
    address = import_module("dgent.store.postgres.address").address_of("postgresql:" + rest, **options)
    backend: Backend = module.PostgresBackend(address, **wrap)
    return backend


def _jsonl(rest: str, options: dict[str, Any]) -> Backend:
    path, _, query = rest.partition("?")
    if not path.strip("/"):
        raise InputError(f"jsonl:{path} does not name a folder", hint="write jsonl:path/to/folder")
    options.update(_settings(query))
    if options.pop("durability", None) == "relaxed":
        options.setdefault("sync", "batch")
    backend: Backend = import_module("dgent.store.jsonl.backend").JSONLBackend(path, **options)
    return backend


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


def backend_for(url: str, **options: Any) -> Backend:
    """Return the backend of a URL, not opened yet. No other engine is ever used in its place."""
    if not isinstance(url, str):
        raise InputError(f"a URL is text, not {type(url).__name__}", field="url")
    scheme, colon, rest = url.partition(":")
    for engine in ENGINES:
        if colon and engine.scheme == scheme:
            if "\0" in rest:
                raise InputError("a path must not contain a NUL character", field="url")
            given = {name: value for name, value in options.items() if value is not None}
            if "read_url" in given and engine.name != "postgres":
                raise InputError(
                    f"{engine.name} has no replicas", hint="leave read_url out", field="read_url"
                )
            return engine.make(rest, given)
    known = ", ".join(engine.example for engine in ENGINES)
    raise InputError(f"{scheme!r} is not an engine of this build", hint=f"use one of {known}", field="url")
