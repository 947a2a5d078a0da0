"""Verbs for constellations: the named stores of this machine, each in a folder of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec

from dgent.config import settings
from dgent.errors import Conflict, InputError, NotFound, StorageError
from dgent.exchange import backup, folders
from dgent.universe.universe import open as open_universe
from dgent.verbs.context import Desk
from dgent.verbs.data.record import Nothing
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
    return Constellations([told_of(desk, name) for name in settings.constellations(places)])


@verb("constellation.create", effect="append", errors=(InputError, Conflict), local=True)
async def create(desk: Desk, ask: Named) -> Constellation:
    """Make a new, empty constellation."""
    folder = settings.constellation_folder(desk.settings.places, ask.name)
    check_free(folder, ask.name)
    with making(folder, ask.name) as new:
        async with open_universe(url_of(new)):
            pass
        folders.publish_folder(new, folder)
    return told_of(desk, ask.name)


@verb("constellation.copy", effect="append", errors=(InputError, NotFound, Conflict), local=True)
async def copy(desk: Desk, ask: Copy) -> Constellation:
    """Copy a constellation, as it is at one moment, to a new name."""
    source = folder_of(desk, ask.name)
    target = settings.constellation_folder(desk.settings.places, ask.to)
    check_free(target, ask.to)
    with making(target, ask.to) as new:
        try:
            async with open_universe(url_of(source)) as u:
                await backup.copy_into(u, source, new, progress=desk.report)
        except StorageError:
            folder_of(desk, ask.name)  # deleted meanwhile: say that
            raise
        folders.publish_folder(new, target)
    return told_of(desk, ask.to)


@contextmanager
def making(folder: Path, name: str) -> Iterator[Path]:
    """A folder beside its place until it is whole; Conflict when somebody else makes one of that name."""
    with folders.translate_errors(folder):
        settings.make_private(folder.parent)
        with folders.build_folder(folder.with_name(f".{name}{folders.MAKING}"), Conflict) as new:
            yield new


@verb("constellation.delete", effect="destroy", errors=(NotFound, Conflict), local=True)
async def delete(desk: Desk, ask: Delete) -> Deleted:
    """Delete a constellation with everything in it."""
    folder_of(desk, ask.name)
    told = told_of(desk, ask.name)
    if not ask.dry_run:
        remove(desk, ask.name)
    return Deleted(told.name, told.path, told.size_bytes, ask.dry_run)


def remove(desk: Desk, name: str) -> None:
    """Take a constellation away with everything in it; Busy when anyone has it open."""
    folder = folder_of(desk, name)
    # Out of the way in one step: whoever opens the name meanwhile finds nothing, never half.
    doomed = folder.with_name(f".{name}{folders.DELETING}")
    with folders.translate_errors(folder), folders.build_folder(doomed, Conflict):
        folder_of(desk, name)
        with backup.lock_folder(folder):
            folder.rename(doomed / name)
        shutil.rmtree(doomed / name)


def folder_of(desk: Desk, name: str) -> Path:
    """The folder of a constellation that is there."""
    folder = settings.constellation_folder(desk.settings.places, name)
    with folders.translate_errors(folder):
        there = (folder / settings.DATABASE).exists()
    if not there:
        known = ", ".join(settings.constellations(desk.settings.places)) or "none yet"
        raise NotFound(f"there is no constellation {name!r}", hint=f"there is {known}", name=name)
    return folder


def check_free(folder: Path, name: str) -> None:
    """Refuse a name that is taken."""
    with folders.translate_errors(folder):
        if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
            raise Conflict(f"the constellation {name!r} exists already", hint="choose another name")


def url_of(folder: Path) -> str:
    """The URL of the store in a folder."""
    return f"sqlite:///{folder / settings.DATABASE}"


def told_of(desk: Desk, name: str) -> Constellation:
    """A constellation as it is listed."""
    folder = settings.constellation_folder(desk.settings.places, name)
    return Constellation(name, str(folder), _size(folder), name == desk.settings.constellation)


def _size(folder: Path) -> int:
    """The bytes of a folder; files come and go while a store is in use."""
    size = 0
    for inside, _, names in os.walk(folder):
        for each in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(inside, each)).st_size
    return size
