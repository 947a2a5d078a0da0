"""The path of a folder's cache: in the folder, if this user's dgent made it there, else a private one.

A cache is trusted over the lines, so one that came with a folder must not be used. A file beside it
proves that it is ours: a hash, keyed by a secret of this user on this machine, over inode numbers, which
no copy preserves.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import shutil
import tempfile
from contextlib import suppress

from dgent.config.places import machine_key
from dgent.errors import Busy
from dgent.store.jsonl.folder import StoreFolder
from dgent.store.sqlite.connection import SAFE_BLOCK
from dgent.system import files

NAME, PROOF = "cache.db", "proof"
SUFFIXES = ("", "-wal", "-shm")
LOOK_S = 3.0  # so long a reader waits for the folder's lock before it uses a private cache
_SHARED_MEMORY = "/dev/shm"
_PRIVATE = "dgent-cache-"


def find_cache(folder: StoreFolder, place: str) -> str | None:
    """Return the path of our cache in a place, created if missing; None if none can be used there."""
    key = machine_key()
    if key is None:
        return None
    try:
        if not os.path.lexists(place):
            files.make_folder(place)
        if os.path.islink(place) or os.statvfs(place).f_frsize < SAFE_BLOCK:
            return None
        ignore = os.path.join(place, ".gitignore")
        if not os.path.lexists(ignore):
            files.make_file(ignore)
            with open(ignore, "w", encoding="ascii") as opened:
                opened.write("*\n")
        return _ensure_proven(folder, place, key)
    except (OSError, Busy):
        return None


def _ensure_proven(folder: StoreFolder, place: str, key: bytes) -> str:
    path = os.path.join(place, NAME)
    if not _is_proven(folder, place, key):
        folder.lock.acquire(LOOK_S)
        try:
            if not _is_proven(folder, place, key):  # another process may have made it meanwhile
                _recreate_cache(folder, place, key)
        finally:
            folder.lock.release()
    return path


def discard_cache(place: str) -> None:
    """Invalidate the cache of a place, so that the next process to open it creates it again."""
    with suppress(OSError):
        os.unlink(os.path.join(place, PROOF))


def _recreate_cache(folder: StoreFolder, place: str, key: bytes) -> None:
    """Replace the cache by an empty one; processes that have the old one open keep using it."""
    path, proof = os.path.join(place, NAME), os.path.join(place, PROOF)
    for name in (proof, *(path + suffix for suffix in SUFFIXES)):
        with suppress(FileNotFoundError):
            os.unlink(name)
    make = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    os.close(os.open(path, make, files.FILE))
    handle = os.open(proof, make, files.FILE)
    try:
        os.write(handle, _compute_proof(handle, path, folder, key))
    finally:
        os.close(handle)


def _is_proven(folder: StoreFolder, place: str, key: bytes) -> bool:
    try:
        handle = os.open(os.path.join(place, PROOF), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        expected = _compute_proof(handle, os.path.join(place, NAME), folder, key)
        return hmac.compare_digest(os.read(handle, 256), expected)
    except OSError:
        return False
    finally:
        os.close(handle)


def _compute_proof(handle: int, path: str, folder: StoreFolder, key: bytes) -> bytes:
    """Return the proof of a cache: a keyed hash of its inode, the proof's own, and the store's id.

    Uses `lstat`: opening and closing the cache's own file would drop SQLite's locks on it.
    """
    parts = (os.fstat(handle).st_ino, files.generation(handle), os.lstat(path).st_ino)
    identity = " ".join([*map(str, parts), folder.format.universe_id])
    return hmac.new(key, identity.encode(), hashlib.sha256).hexdigest().encode()


# -- private caches -----------------------------------------------------------------------


def make_private() -> str:
    """Create a folder for a cache of this process alone, in memory if the system has /dev/shm."""
    place = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else tempfile.gettempdir()
    _remove_stale(place)
    return tempfile.mkdtemp(prefix=f"{_PRIVATE}{os.getpid()}-", dir=place)


def remove_private(folder: str) -> None:
    """Remove a private cache."""
    shutil.rmtree(folder, ignore_errors=True)


def _remove_stale(place: str) -> None:
    """Remove private caches that killed processes of this user left."""
    for name in os.listdir(place):
        found = re.fullmatch(_PRIVATE + r"(\d+)-\w+", name)
        path = os.path.join(place, name)
        if found is not None and not files.is_alive(int(found[1])):
            with suppress(OSError):
                if os.lstat(path).st_uid == os.getuid():
                    remove_private(path)
