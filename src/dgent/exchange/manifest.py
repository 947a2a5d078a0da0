"""The manifest of a backup: what it is of, and size and SHA-256 of each of its files."""

from __future__ import annotations

import hashlib
import os
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from dgent import clock
from dgent.config import DATABASE
from dgent.errors import Corrupt, FormatTooNew, NotFound
from dgent.exchange import place
from dgent.store.sqlite.upkeep import Stopped
from dgent.store.upkeep import Contents, Pace

FORMAT = 1
TELEMETRY, BLOBS, MANIFEST = "telemetry.db", "blobs", "manifest.json"
MAX_MANIFEST_BYTES = 256 * 1024 * 1024


class File(msgspec.Struct, frozen=True):
    """A file as it was written."""

    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What `manifest.json` says; `sum` is the SHA-256 of all of it with an empty `sum`."""

    dgent: str
    format: int
    version: str
    universe: str
    seq: int
    records: int
    created_at: datetime
    files: tuple[File, ...]
    sum: str = ""
    # Left out where there are none, as in every backup before this was written down.
    damaged: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


def manifest_of(contents: Contents, files: tuple[File, ...], damaged: tuple[str, ...]) -> Manifest:
    """What is to be written down of a backup."""
    seq, records = contents.seq, contents.records
    made = Manifest("backup", FORMAT, _version(), contents.universe_id, seq, records, clock.now(), files)
    return msgspec.structs.replace(made, damaged=damaged) if damaged else made


def write(path: Path, made: Manifest) -> None:
    """Write it down, sealed with its own sum, and wait until it is on the disk."""
    whole = msgspec.structs.replace(made, sum=_sum(made))
    with place.translated(path):
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            place.write(handle, msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)


def _sum(made: Manifest) -> str:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(made, sum=""))).hexdigest()


def _version() -> str:
    try:
        return version("dgent")
    except PackageNotFoundError:
        return "unknown"


def checked(source: Path, pace: Pace, stopped: Stopped, passes: int = 1) -> Manifest:
    """The manifest of a backup whose every byte is what was written."""
    with place.translated(source):
        made = _read_manifest(source)
        pace.total = passes * sum(file.size for file in made.files)
        for file in made.files:
            path = source / safe(file.name)
            if not path.is_file():
                raise Corrupt(f"{file.name} is missing from the backup {source}", hint="take another backup")
            if path.stat().st_size != file.size or place.digest(path, pace, stopped)[1] != file.sha256:
                raise damaged(source, file.name)
    return made


def damaged(source: Path, name: str) -> Corrupt:
    """The error for a file that is not what was written."""
    return Corrupt(f"{name} in the backup {source} is not what was written", hint="take another backup")


def _read_manifest(source: Path) -> Manifest:
    path = source / MANIFEST
    if not path.is_file():
        raise NotFound(f"{source} is not a backup: it has no {MANIFEST}", hint="give the folder of a backup")
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise damaged(source, MANIFEST)
    raw = path.read_bytes()
    try:
        rough: Any = msgspec.json.decode(raw)
        if rough["dgent"] == "backup" and type(rough["format"]) is int and rough["format"] > FORMAT:
            raise FormatTooNew(f"{source} has backup format {rough['format']}; this dgent reads {FORMAT}")
        made = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, RecursionError):
        raise damaged(source, MANIFEST) from None
    for file in made.files:
        safe(file.name)
    names = [file.name for file in made.files]
    if made.dgent != "backup" or made.sum != _sum(made) or DATABASE not in names:
        raise damaged(source, MANIFEST)
    return made


def safe(name: str) -> PurePosixPath:
    """A name from a manifest as a path that cannot leave the folder."""
    parts = name.split("/")
    odd = any(part in ("", ".", "..") or "\\" in part or "\0" in part or ":" in part for part in parts)
    if odd or not (name in (DATABASE, TELEMETRY) or (parts[0] == BLOBS and len(parts) > 1)):
        raise Corrupt(f"the manifest names {name!r}, which no backup holds", hint="do not restore it")
    return PurePosixPath(*parts)
