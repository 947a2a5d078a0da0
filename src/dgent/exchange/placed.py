"""Contents of blobs and telemetry that the settings place elsewhere, in backups.

A backup holds them like those of a constellation's folder. A restore unpacks them there first, so that what
was forgotten since is removed from them too, and sends what is left to where the settings say now.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dgent.config.places import BLOBS, DATABASE, TELEMETRY
from dgent.errors import Corrupt
from dgent.exchange import folders
from dgent.exchange.telemetry import send_events
from dgent.store.port.blob import BlobContents, Content, check_parts, make_damage_error
from dgent.store.port.telemetry import Retention
from dgent.store.registry import contents_for, telemetry_for
from dgent.system.files import sync
from dgent.system.progress import ProgressReporter
from dgent.system.threads import in_thread
from dgent.universe.blob import open_blobs
from dgent.universe.universe import Universe, open

HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
PAGE = 500

Storage = Mapping[str, Mapping[str, Any]]
"""The settings of each port, as `dgent.open` takes them."""


def place_of(storage: Storage, port: str) -> str | None:
    """Return the URL of a port that is placed elsewhere than beside the store; None where it is not."""
    found: str | None = storage.get(port, {}).get("url")
    return found


# -- backup -------------------------------------------------------------------------------


async def fetch_contents(
    universe: Universe, new: Path, known: Collection[str], pace: ProgressReporter
) -> dict[str, tuple[int, str]]:
    """Write the contents placed elsewhere as files of a backup, but the names in `known`.

    Returns size and hash of each by its name. A damaged content is written as it is, as its hash shows.
    """
    found: dict[str, tuple[int, str]] = {}
    if place_of(universe._life.storage, "blob") is None:
        return found
    here = open_blobs(universe).contents
    contents: BlobContents = getattr(here, "inner", here)  # without those in the database itself
    after = ""
    while page := await contents.list(after, PAGE):
        after = page[-1]
        for sha256 in page:
            name = f"{BLOBS}/{sha256[:2]}/{sha256}"
            if name not in known:
                size = await contents.size(sha256)
                try:
                    found[name] = await _fetch(contents, sha256, new / name, pace)
                except Corrupt:
                    if size is not None and await contents.size(sha256) is not None:
                        raise
                    (new / name).unlink(missing_ok=True)
                    # Collected meanwhile, so nothing refers to it any more.
    return found


async def _fetch(contents: BlobContents, sha256: str, path: Path, pace: ProgressReporter) -> tuple[int, str]:
    hashed, size = hashlib.sha256(), 0
    folders.make_folders(path.parent)
    with folders.translate_errors(path):
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            async for part in contents.read(sha256):
                await in_thread(partial(_write, handle, part))
                hashed.update(part)
                size += len(part)
                pace.total = (pace.total or 0) + len(part)
                pace.add(len(part))
            await in_thread(lambda _: os.fsync(handle))
        finally:
            os.close(handle)
    return size, hashed.hexdigest()


def _write(handle: int, part: bytes, _stopped: object) -> None:
    folders.write_all(handle, part)


# -- restore ------------------------------------------------------------------------------


class Sent(NamedTuple):
    """The hashes of contents that a restore sent elsewhere, and whether it sent telemetry."""

    hashes: list[str]
    events: bool


async def send_back(new: Path, storage: Storage) -> Sent:
    """Send what a restored folder holds to the places in the settings; it stays in the folder until later.

    A content that is there already is compared, and replaced if it is damaged; an event that is there stays.
    """
    hashes: list[str] = []
    url, events = place_of(storage, "blob"), place_of(storage, "telemetry")
    if url is not None and (new / BLOBS).is_dir():
        hashes = await _send_contents(contents_for(f"files:{new / BLOBS}"), contents_for(url))
    if events is not None and (new / TELEMETRY).is_file():
        here, there = (
            telemetry_for(each, Retention(None, None)) for each in (f"sqlite:///{new / TELEMETRY}", events)
        )
        try:
            await send_events(here, there)
        finally:
            await here.close()
            await there.close()
    return Sent(hashes, events is not None and (new / TELEMETRY).is_file())


async def _send_contents(here: BlobContents, there: BlobContents) -> list[str]:
    sent: list[str] = []
    try:
        after = ""
        while page := await here.list(after, PAGE):
            after = page[-1]
            for sha256 in page:
                with suppress(Corrupt):  # damaged in the backup, which names it; it stays in the folder
                    await send_content(here, there, sha256)
                    sent.append(sha256)
    finally:
        await there.close()
    return sent


async def send_content(here: BlobContents, there: BlobContents, sha256: str) -> None:
    """Copy one content; raises Corrupt if it is damaged or missing."""
    size = await here.size(sha256)
    if size is None:
        raise make_damage_error(sha256, "it is missing")
    async with there.upload() as upload:
        async for part in check_parts(here.read(sha256), Content(sha256, size)):
            await upload.write(part)
        await upload.publish()


async def finish_sending(folder: Path, storage: Storage, sent: Sent, forgotten: bool) -> None:
    """Remove from a restored folder what was sent elsewhere, once the folder has its place.

    A collection may have removed a content there while no store in its place referred to it; that is sent
    again. `forgotten` says that more was forgotten after the sending.
    """
    if sent.hashes:
        here, url = contents_for(f"files:{folder / BLOBS}"), place_of(storage, "blob")
        assert url is not None
        there = contents_for(url)
        try:
            for sha256 in sent.hashes:
                if await here.size(sha256) is not None and await there.size(sha256) is None:
                    await send_content(here, there, sha256)
        finally:
            await there.close()
        if forgotten:
            async with open(f"sqlite:///{folder / DATABASE}", storage=storage) as universe:
                await open_blobs(universe).drop(sent.hashes)
        await in_thread(lambda _: _remove_files(folder / BLOBS, sent.hashes))
    if sent.events:
        for tail in ("-wal", "-shm", ""):
            (folder / f"{TELEMETRY}{tail}").unlink(missing_ok=True)
    sync(str(folder))


def _remove_files(blobs: Path, hashes: list[str]) -> None:
    for sha256 in hashes:
        (blobs / sha256[:2] / sha256).unlink(missing_ok=True)
    for place, _folders, _files in os.walk(blobs, topdown=False):
        with suppress(OSError):  # it holds something else
            os.rmdir(place)
