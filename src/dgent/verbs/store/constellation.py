"""Verbs for constellations: the named stores of this machine, each in its folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec

from dgent.config.places import DATABASE, constellation_folder, constellations, make_private
from dgent.errors import Conflict, InputError, NotFound, StorageError
from dgent.exchange import backup, folders
from dgent.universe.universe import open as open_universe
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, Items, NoInput, argument, option, verb


class Constellation(msgspec.Struct, frozen=True):
    """One named store."""

    name: str
    path: str
    size_bytes: int
    current: bool


Name = Annotated[str, argument("its name", complete="constellation")]


class ConstellationDeletion(msgspec.Struct, frozen=True):
    """A named store that is gone."""

    name: str
    path: str
    size_bytes: int
    dry_run: bool = False


class OneConstellation(Ask):
    """Input of `constellation.create`."""

    name: Annotated[str, argument("its name: small letters, digits, - _ and .")]


class DeleteConstellation(Ask):
    """Input of `constellation.delete`."""

    name: Name
    dry_run: Annotated[bool, option("say what would go, and change nothing")] = False


class CopyConstellation(Ask):
    """Input of `constellation.copy`."""

    name: Name
    to: Annotated[str, argument("the name of the copy")]


@verb("constellation.list", effect="read", local=True)
async def list_(context: Context, ask: NoInput) -> Items[Constellation]:
    """List the constellations of this machine."""
    places = context.settings.places
    return Items([describe(context, name) for name in constellations(places)])


@verb("constellation.create", effect="append", errors=(InputError, Conflict), local=True)
async def create(context: Context, ask: OneConstellation) -> Constellation:
    """Make a new, empty constellation."""
    folder = constellation_folder(context.settings.places, ask.name)
    check_free(folder, ask.name)
    with making(folder, ask.name) as new:
        async with open_universe(url_of(new)):
            pass
        folders.publish_folder(new, folder)
    return describe(context, ask.name)


@verb("constellation.copy", effect="append", errors=(InputError, NotFound, Conflict), local=True)
async def copy(context: Context, ask: CopyConstellation) -> Constellation:
    """Copy a constellation, as it is at one moment, to a new name."""
    source = folder_of(context, ask.name)
    target = constellation_folder(context.settings.places, ask.to)
    check_free(target, ask.to)
    with making(target, ask.to) as new:
        try:
            async with open_universe(url_of(source)) as u:
                await backup.copy_into(u, source, new, progress=context.report)
        except StorageError:
            folder_of(context, ask.name)  # deleted meanwhile: say that
            raise
        folders.publish_folder(new, target)
    return describe(context, ask.to)


@contextmanager
def making(folder: Path, name: str) -> Iterator[Path]:
    """Yield a temporary folder to fill; raises Conflict when another process makes one of that name."""
    with folders.translate_errors(folder):
        make_private(folder.parent)
        with folders.build_folder(folder.with_name(f".{name}{folders.MAKING}"), Conflict) as new:
            yield new


@verb("constellation.delete", effect="destroy", errors=(NotFound, Conflict), local=True)
async def delete(context: Context, ask: DeleteConstellation) -> ConstellationDeletion:
    """Delete a constellation with everything in it."""
    folder_of(context, ask.name)
    deleted = describe(context, ask.name)
    if not ask.dry_run:
        remove(context, ask.name)
    return ConstellationDeletion(deleted.name, deleted.path, deleted.size_bytes, ask.dry_run)


def remove(context: Context, name: str) -> None:
    """Delete a constellation with everything in it; raises Busy when any process has it open."""
    folder = folder_of(context, name)
    # Renamed in one step: who opens the name meanwhile finds nothing, never half.
    doomed = folder.with_name(f".{name}{folders.DELETING}")
    with folders.translate_errors(folder), folders.build_folder(doomed, Conflict):
        folder_of(context, name)
        with backup.lock_folder(folder):
            folder.rename(doomed / name)
        shutil.rmtree(doomed / name)


def folder_of(context: Context, name: str) -> Path:
    """Return the folder of an existing constellation."""
    folder = constellation_folder(context.settings.places, name)
    with folders.translate_errors(folder):
        there = (folder / DATABASE).exists()
    if not there:
        known = ", ".join(constellations(context.settings.places)) or "none yet"
        raise NotFound(f"there is no constellation {name!r}", hint=f"there is {known}", name=name)
    return folder


def check_free(folder: Path, name: str) -> None:
    """Raise Conflict when the name is taken."""
    with folders.translate_errors(folder):
        if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
            raise Conflict(f"the constellation {name!r} exists already", hint="choose another name")


def url_of(folder: Path) -> str:
    """Return the URL of the store in a folder."""
    return f"sqlite:///{folder / DATABASE}"


def describe(context: Context, name: str) -> Constellation:
    """Return a constellation as it is listed."""
    folder = constellation_folder(context.settings.places, name)
    return Constellation(name, str(folder), _size(folder), name == context.settings.constellation)


def _size(folder: Path) -> int:
    """Return the bytes of a folder; files may vanish meanwhile while the store is in use."""
    size = 0
    for inside, _, names in os.walk(folder):
        for each in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(inside, each)).st_size
    return size
