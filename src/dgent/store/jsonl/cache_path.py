"""Where the cache of a folder is: in the folder, if this user's dgent made it there, else a private one.

A cache is believed over the lines, so one that came with a folder must not be used. Ours is proven by a file
beside it: a hash, keyed by a secret of this user on this machine, over what no copy of the files keeps.
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
from dgent.store.jsonl.folder import Folder
from dgent.system import files

NAME, PROOF = "cache.db", "proof"
SUFFIXES = ("", "-wal", "-shm")
LOOK_S = 3.0  # so long a reader waits for the folder's lock before it reads on its own
# SQLite allocates its shared memory by one byte for each 4 KiB. Where blocks are smaller, the rest of them
# is allocated when it is first used; on a full disk that ends the process.
SAFE_BLOCK = 4096
_SHARED_MEMORY = "/dev/shm"
_PRIVATE = "dgent-cache-"


def proven_cache(folder: Folder, place: str) -> str | None:
    """The path of our cache in a place, made anew where there is none; None when none can be used there."""
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
        return _proven(folder, place, key)
    except (OSError, Busy):
        return None


def _proven(folder: Folder, place: str, key: bytes) -> str:
    path = os.path.join(place, NAME)
    if not _is_proven(folder, place, key):
        folder.lock.acquire(LOOK_S)
        try:
            if not _is_proven(folder, place, key):  # another process may have made it meanwhile
                _make_anew(folder, place, key)
        finally:
            folder.lock.release()
    return path


def discard_cache(place: str) -> None:
    """Have the cache of a place made anew by the next one who opens it."""
    with suppress(OSError):
        os.unlink(os.path.join(place, PROOF))


def _make_anew(folder: Folder, place: str, key: bytes) -> None:
    """Put an empty cache in the place of another; whoever has that one open goes on with it."""
    path, proof = os.path.join(place, NAME), os.path.join(place, PROOF)
    for name in (proof, *(path + suffix for suffix in SUFFIXES)):
        with suppress(FileNotFoundError):
            os.unlink(name)
    make = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    os.close(os.open(path, make, files.FILE))
    handle = os.open(proof, make, files.FILE)
    try:
        os.write(handle, _proof(handle, path, folder, key))
    finally:
        os.close(handle)


def _is_proven(folder: Folder, place: str, key: bytes) -> bool:
    try:
        handle = os.open(os.path.join(place, PROOF), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        expected = _proof(handle, os.path.join(place, NAME), folder, key)
        return hmac.compare_digest(os.read(handle, 256), expected)
    except OSError:
        return False
    finally:
        os.close(handle)


def _proof(handle: int, path: str, folder: Folder, key: bytes) -> bytes:
    """What proves a cache: which files it and its proof are on this disk, and which store it is of.

    By `lstat`: to open and close the cache's own file would drop SQLite's locks on it.
    """
    parts = (os.fstat(handle).st_ino, files.generation(handle), os.lstat(path).st_ino)
    told = " ".join([*map(str, parts), folder.format.universe_id])
    return hmac.new(key, told.encode(), hashlib.sha256).hexdigest().encode()


# -- private caches -----------------------------------------------------------------------


def make_private() -> str:
    """A new folder for a cache of this process alone, in memory where the system has such a place."""
    place = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else tempfile.gettempdir()
    _sweep(place)
    return tempfile.mkdtemp(prefix=f"{_PRIVATE}{os.getpid()}-", dir=place)


def remove_private(folder: str) -> None:
    """Remove a private cache."""
    shutil.rmtree(folder, ignore_errors=True)


def _sweep(place: str) -> None:
    """Remove what killed processes of this user left."""
    for name in os.listdir(place):
        found = re.fullmatch(_PRIVATE + r"(\d+)-\w+", name)
        path = os.path.join(place, name)
        if found is not None and not files.is_alive(int(found[1])):
            with suppress(OSError):
                if os.lstat(path).st_uid == os.getuid():
                    remove_private(path)
