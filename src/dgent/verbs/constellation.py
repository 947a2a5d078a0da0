"""Verbs for constellations: the named stores of this machine, each in a folder of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import msgspec

from dgent import config
from dgent.errors import Conflict, InputError, NotFound
from dgent.exchange import backup
from dgent.exchange.manifest import MANIFEST
from dgent.universe.universe import open as open_universe
from dgent.verbs.data import Nothing
from dgent.verbs.desk import Desk
from dgent.verbs.registry import Ask, argument, option, verb


class Constellation(msgspec.Struct, frozen=True):
    """One named store."""

    name: str
    path: str
    size_bytes: int
    current: bool


class Constellations(msgspec.Struct, frozen=True):
    """The named stores of this machine."""

    items: list[Constellation]


Name = Annotated[str, argument("its name", complete="constellation")]


class Deleted(msgspec.Struct, frozen=True):
    """A named store that is gone."""

    name: str
    path: str
    size_bytes: int
    dry_run: bool = False


class Named(Ask):
    """What `constellation.create` takes."""

    name: Annotated[str, argument("its name: small letters, digits, - _ and .")]


class Delete(Ask):
    """What `constellation.delete` takes."""

    name: Name
    dry_run: Annotated[bool, option("say what would go, and change nothing")] = False


class Copy(Ask):
    """What `constellation.copy` takes."""

    name: Name
    to: Annotated[str, argument("the name of the copy")]


@verb("constellation.list", effect="read", local=True)
async def list_(desk: Desk, ask: Nothing) -> Constellations:
    """List the constellations of this machine."""
    places = desk.settings.places
    return Constellations([_told(desk, name) for name in config.constellations(places)])


@verb("constellation.create", effect="append", errors=(InputError, Conflict), local=True)
async def create(desk: Desk, ask: Named) -> Constellation:
    """Make a new, empty constellation."""
    folder = config.constellation_folder(desk.settings.places, ask.name)
    _check_free(folder, ask.name)
    config.make_private(folder)
    async with open_universe(_url(folder)):
        pass
    return _told(desk, ask.name)


@verb("constellation.copy", effect="append", errors=(InputError, NotFound, Conflict), local=True)
async def copy(desk: Desk, ask: Copy) -> Constellation:
    """Copy a constellation, as it is at one moment, to a new name."""
    source = _folder(desk, ask.name)
    target = config.constellation_folder(desk.settings.places, ask.to)
    _check_free(target, ask.to)
    unfinished = target.with_name(f".{target.name}.copying-{os.getpid()}")
    try:
        # A backup is a whole, proven copy; only its manifest has no business in a constellation.
        async with open_universe(_url(source)) as u:
            await backup.backup(u, source, unfinished, progress=desk.report)
        (unfinished / MANIFEST).unlink()
        unfinished.rename(target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return _told(desk, ask.to)


@verb("constellation.delete", effect="destroy", errors=(NotFound, Conflict), local=True)
async def delete(desk: Desk, ask: Delete) -> Deleted:
    """Delete a constellation with everything in it."""
    folder = _folder(desk, ask.name)
    told = _told(desk, ask.name)
    if not ask.dry_run:
        backup.refuse_live(folder)
        # Out of the way in one step: whoever opens the name meanwhile finds nothing, never half.
        doomed = folder.with_name(f".{folder.name}.deleting-{os.getpid()}")
        folder.rename(doomed)
        shutil.rmtree(doomed)
    return Deleted(told.name, told.path, told.size_bytes, ask.dry_run)


def _folder(desk: Desk, name: str) -> Path:
    folder = config.constellation_folder(desk.settings.places, name)
    if not (folder / "membrane.db").exists():
        known = ", ".join(config.constellations(desk.settings.places)) or "none yet"
        raise NotFound(f"there is no constellation {name!r}", hint=f"there is {known}", name=name)
    return folder


def _check_free(folder: Path, name: str) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"the constellation {name!r} exists already", hint="choose another name")


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'membrane.db'}"


def _told(desk: Desk, name: str) -> Constellation:
    folder = config.constellation_folder(desk.settings.places, name)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return Constellation(name, str(folder), size, name == desk.settings.constellation)
