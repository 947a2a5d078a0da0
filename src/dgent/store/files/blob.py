"""Contents of blobs as files: `<folder>/ab/abcd…`, each named by the SHA-256 of its bytes.

An upload writes to a file in `<folder>/tmp`, links it to its name, and waits until file and name are on the
disk, both at once. It holds a shared lock on the file until its key is stored too; a collection needs the
file alone to remove it. A power cut may leave a torn file that no key names yet: the next upload replaces it.
The system ends the locks of a process with the process, so nothing has to be tidied up after a kill but the
file in `tmp`.
"""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import os
import queue
import secrets
import stat
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, BinaryIO

from dgent.errors import Busy, DgentError, InputError
from dgent.store.backend import Op
from dgent.store.port.blob import CHUNK, Content, check_part, is_gone, make_damage_error
from dgent.system import files
from dgent.system.threads import Stopped, in_thread

TEMPORARY, USERS = "tmp", "users"
BEHIND = 4  # times `AT_ONCE` that hashing may be behind writing
AT_ONCE = 4 * CHUNK  # bytes that are handed to threads together: a hand-over takes as long as some 100 KiB
BUFFERS = 4  # parts of a file that may be read before they are hashed
WAIT_S, PAUSE_S = 10.0, 0.005
_HEX = frozenset("0123456789abcdef")
# A link is not followed, and the open of a pipe does not wait for who writes to it.
_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))


class FileContents:
    """Keeps contents in a folder, which is made with the first of them."""

    def __init__(self, folder: str) -> None:
        self.place = os.path.abspath(folder)

    def path_of(self, sha256: str) -> str:
        """Return the path of a content, which need not be there."""
        if len(sha256) != 64 or not _HEX.issuperset(sha256):
            raise InputError(f"{sha256!r} is not a valid hash", field="sha256")  # nothing else becomes a path
        return os.path.join(self.place, sha256[:2], sha256)

    @asynccontextmanager
    async def upload(self) -> AsyncIterator[FileUpload]:
        """Begin an upload; it ends with the context, and so does its hold on the content."""
        made = FileUpload(self)
        try:
            yield made
        finally:
            with suppress(DgentError):  # the caller has it already, or does not want it any more
                await made.finish()
            if made.published:
                made.release()  # closes the file, which takes no time
            else:
                await in_thread(lambda _: made.release())

    @asynccontextmanager
    async def hold(self, contents: Sequence[Content]) -> AsyncIterator[dict[str, Sequence[Op]]]:
        """Keep contents that are stored here from being removed until the context ends."""
        with ExitStack() as held:
            found: dict[str, Sequence[Op]] = {}
            for each in contents:
                path = self.path_of(each.sha256)
                with files.disk_errors(path):
                    handle = _lock(path, shared=True)
                if handle is None:
                    continue
                if os.fstat(handle).st_size == each.size:
                    held.callback(os.close, handle)
                    found[each.sha256] = ()
                else:
                    os.close(handle)  # damaged: whoever replaces it needs the lock
            yield found

    async def read(self, sha256: str, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes]:
        """Yield the bytes from `start` to before `end`; Corrupt where there are none."""
        handle, part = await in_thread(
            lambda _: self._open(sha256, start, end), lambda opened: os.close(opened[0])
        )
        try:
            while part:
                yield part
                start += len(part)
                if len(part) < CHUNK and (end is None or start >= end):
                    return
                part = await in_thread(partial(self._read, handle, start, end))
        finally:
            os.close(handle)

    def _open(self, sha256: str, start: int, end: int | None) -> tuple[int, bytes]:
        """Open a file and read its first part at once: most blobs have no other."""
        path = self.path_of(sha256)
        with files.disk_errors(path):
            try:
                handle = _open_file(path)
            except FileNotFoundError:
                raise make_damage_error(sha256, f"{path} is missing") from None
            if handle is None:
                raise make_damage_error(sha256, f"{path} is not a file")
            try:
                return handle, self._read(handle, start, end)
            except BaseException:
                os.close(handle)
                raise

    def _read(self, handle: int, start: int, end: int | None, stopped: object = None) -> bytes:
        with files.disk_errors(self.place):
            return os.pread(handle, CHUNK if end is None else max(0, min(CHUNK, end - start)), start)

    async def size(self, sha256: str) -> int | None:
        """Return how many bytes a content has; None where it is missing."""
        try:
            return os.stat(self.path_of(sha256)).st_size
        except OSError:
            return None

    async def stamp(self, sha256: str) -> object:
        """Return inode, time and size of the file; None where it is missing."""
        try:
            found = os.stat(self.path_of(sha256))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    async def list(self, after: str = "", limit: int = 500) -> list[str]:
        """Return hashes after one, in order; reads one of 256 folders at a time."""
        return await in_thread(lambda _: self._list(after, limit))

    def _list(self, after: str, limit: int) -> builtins.list[str]:
        found: builtins.list[str] = []
        for name in _names(self.place):
            if len(name) != 2 or name < after[:2]:
                continue
            held = (each for each in _names(os.path.join(self.place, name)) if each > after)
            found += (each for each in held if len(each) == 64 and _HEX.issuperset(each))
            if len(found) >= limit:
                break
        return found[:limit]

    async def remove(self, sha256: str, is_used: Callable[[], Awaitable[bool]]) -> bool:
        """Remove a content unless an upload holds it, or it is used."""
        path = self.path_of(sha256)
        handle = await in_thread(lambda _: _lock(path, shared=False), _unlock)
        if handle is None:
            return False
        try:
            if await is_used():
                return False
            with files.disk_errors(path):
                await in_thread(lambda _: os.unlink(path))
            return True
        finally:
            os.close(handle)

    async def sweep(self) -> int:
        """Remove files of uploads whose process ended."""
        return await in_thread(lambda _: self._sweep())

    def _sweep(self) -> int:
        folder, removed = os.path.join(self.place, TEMPORARY), 0
        for name in _names(folder):
            path = os.path.join(folder, name)
            handle = _lock(path, shared=False)
            if handle is not None:
                with suppress(OSError):
                    os.unlink(path)
                    removed += 1
                os.close(handle)
        return removed

    async def note_user(self, user: str) -> builtins.list[str]:
        """Note that a store keeps contents here, in a file of its own; return the others that do.

        A store of this machine whose file is gone is forgotten.
        """
        return await in_thread(lambda _: self._note_user(user))

    def _note_user(self, user: str) -> builtins.list[str]:
        folder, others = os.path.join(self.place, USERS), []
        with files.disk_errors(folder):
            files.make_folder(folder)
            mine = hashlib.sha256(user.encode()).hexdigest()[:32]
            known = [name for name in _names(folder) if len(name) == len(mine)]
            if mine not in known:
                _write_synced(os.path.join(folder, mine), user)
            for name in known:
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    found = file.read()
                if found != user and is_gone(found):
                    os.unlink(path)
                elif found != user:
                    others.append(found)
        return sorted(others)

    async def close(self) -> None:
        """Do nothing: no file stays open."""


class FileUpload:
    """One upload; little data is written when it is published, so that one thread does it all at once."""

    ops: Sequence[Op] = ()

    def __init__(self, contents: FileContents) -> None:
        self._contents = contents
        self._hash, self._size = hashlib.sha256(), 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._written = self._on_its_way = 0  # bytes, to the file and from there to the disk
        self._unhashed: deque[list[bytes]] = deque()
        self._hashing: asyncio.Future[None] | None = None  # the thread that hashes
        self._writing: asyncio.Future[None] | None = None  # the thread that writes
        self._synced = self.published = False
        self._path = ""  # of the temporary file
        self._handle: int | None = None  # whose lock keeps the file

    async def write(self, part: bytes) -> None:
        """Add bytes; two threads hash and write them when there are enough, while more may come."""
        self._waiting.append(part)
        self._waiting_bytes += len(part)
        if self._waiting_bytes >= AT_ONCE:
            await self.finish(hashing=len(self._unhashed) >= BEHIND)
            parts = self._take()
            self._start_hashing(parts)
            self._writing = asyncio.get_running_loop().run_in_executor(None, self._write, parts)

    async def take_file(self, file: BinaryIO) -> None:
        """Add a file, up to its end: one thread reads and writes it, and another one hashes it meanwhile."""
        await self.finish()
        await in_thread(partial(self._take_file, self._take(), file))

    def _take_file(self, parts: list[bytes], file: BinaryIO, stopped: Stopped) -> None:
        self._write(parts)
        self._add(parts)
        with _HashThread(self._hash) as hashing:
            for part in hashing.read(file):
                self._size += len(part)
                self._write([part])
                if stopped():
                    return
            self._start_writing_back()

    def _start_hashing(self, parts: list[bytes]) -> None:
        """Hash in order, and on one thread only; it may be some parts behind the one that writes."""
        self._unhashed.append(parts)
        if self._hashing is None or self._hashing.done():
            self._hashing = asyncio.get_running_loop().run_in_executor(None, self._hash_waiting)

    def _hash_waiting(self) -> None:
        while self._unhashed:
            self._add(self._unhashed.popleft())

    async def finish(self, hashing: bool = True) -> None:
        """Wait for the threads; raises what went wrong there."""
        running = [each for each in (self._writing, self._hashing if hashing else None) if each is not None]
        self._writing = None
        if running:
            done = asyncio.gather(*running, return_exceptions=True)
            try:
                found = await asyncio.shield(done)
            except asyncio.CancelledError:
                await done  # they use the file
                raise
            for each in found:
                if isinstance(each, BaseException):
                    raise each
        if hashing and self._unhashed:  # the thread ended just before they came
            self._hash_waiting()

    def _take(self) -> list[bytes]:
        parts, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return parts

    def _add(self, parts: list[bytes]) -> None:
        for part in parts:
            self._hash.update(part)
            self._size += len(part)

    def _write(self, parts: Sequence[bytes | memoryview]) -> None:
        with files.disk_errors(self._contents.place):
            if self._handle is None:
                self._begin()
            assert self._handle is not None
            for part in parts:
                view = memoryview(part)
                while view:
                    view = view[os.write(self._handle, view) :]
                self._written += len(part)
            if self._written - self._on_its_way >= AT_ONCE:
                self._start_writing_back()

    def _start_writing_back(self) -> None:
        """Have the system begin to write to the disk, without waiting for it."""
        if self._handle is not None and hasattr(os, "posix_fadvise"):
            length = self._written - self._on_its_way
            # Pages that are not on the disk yet are not dropped by this, they are sent there.
            with suppress(OSError):
                os.posix_fadvise(self._handle, self._on_its_way, length, os.POSIX_FADV_DONTNEED)
        self._on_its_way = self._written

    def _write_rest(self, parts: list[bytes]) -> None:
        self._write(parts)
        assert self._handle is not None
        with files.disk_errors(self._path):
            os.fsync(self._handle)
        self._synced = True

    def _begin(self) -> None:
        """Make the temporary file and lock it; a sweep may have removed it in between."""
        folder = os.path.join(self._contents.place, TEMPORARY)
        if files.make_folder(folder):
            files.sync(self._contents.place)
            files.sync(os.path.dirname(self._contents.place))
        while True:
            self._path = os.path.join(folder, secrets.token_hex(16))
            handle = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | _FLAGS, files.FILE)
            if files.try_lock(handle, shared=True) and files.is_at(handle, self._path):
                self._handle = handle
                return
            os.close(handle)

    async def publish(self) -> tuple[Content, bool]:
        """Give the file its name, once it is on the disk; True if there was one."""
        await self.finish(hashing=False)
        parts, loop = self._take(), asyncio.get_running_loop()
        if self._handle is not None and (parts or self._unhashed or self._hashing is not None):
            # The disk needs no processor: the rest is hashed while it is waited for.
            self._start_hashing(parts)
            self._writing = loop.run_in_executor(None, self._write_rest, parts)
            await self.finish()
            parts = []
        end = loop.time() + WAIT_S
        while True:
            found = await in_thread(partial(self._publish, parts))
            if found is not None:
                self.published = True
                return Content(self._hash.hexdigest(), self._size), found
            if loop.time() >= end:
                raise Busy(f"a collection of blobs held {self._hash.hexdigest()} for {WAIT_S:g} s")
            parts = []
            await asyncio.sleep(PAUSE_S)

    def _publish(self, parts: list[bytes], stopped: object) -> bool | None:
        """Return whether the content was there; None while somebody is about to remove it."""
        if parts or self._handle is None:
            self._write(parts)
            self._start_writing_back()
        self._add(parts)
        path = self._contents.path_of(self._hash.hexdigest())
        folder = os.path.dirname(path)
        with files.disk_errors(path):
            assert self._handle is not None
            if os.path.lexists(path) and not _is_file(path):
                os.unlink(path)  # a link or a pipe that somebody left there
            if not os.path.lexists(path):
                # Each of the 256 folders is new once.
                names = [folder, *([self._contents.place] if files.make_folder(folder) else [])]
                if _link(self._path, path):
                    self._sync(self._handle, names)
                    return False
            held = _lock(path, shared=True)
            if held is None:
                return None
            if not self._is_whole(held):
                return self._replace(held, path)
            self._drop()
            self._handle, self._synced = held, False
            # The process that linked it may not have come so far.
            self._sync(held, [folder, self._contents.place])
            return True

    def _sync(self, handle: int, names: list[str]) -> None:
        """Wait until a file and the folders with its name are on the disk.

        The file first: most file systems write its name along with it, by one commit of their journal, and
        then have nothing to do for the folders.
        """
        if not self._synced:
            os.fsync(handle)
        for name in names:
            files.sync(name)

    def _is_whole(self, handle: int) -> bool:
        """Return whether the bytes that are there are those of this upload."""
        found, at = hashlib.sha256(), 0
        if os.fstat(handle).st_size != self._size:
            return False
        while part := os.pread(handle, CHUNK, at):
            found.update(part)
            at += len(part)
        return found.digest() == self._hash.digest()

    def _replace(self, damaged: int, path: str) -> bool | None:
        """Put this file in the place of a damaged one that nobody else holds."""
        assert self._handle is not None
        try:
            if not files.try_lock(damaged) or not files.is_at(damaged, path):
                return None
            os.fsync(self._handle)
            os.replace(self._path, path)
            files.sync(os.path.dirname(path))
            return False
        finally:
            os.close(damaged)

    def _drop(self) -> None:
        if self._handle is not None:
            if not self.published:
                with suppress(OSError):
                    os.unlink(self._path)
            os.close(self._handle)
            self._handle = None

    def release(self) -> None:
        """Remove what was not published, and end the hold on what was."""
        self._drop()


class _HashThread:
    """A thread that hashes parts of a file in order, begun with the second one.

    The parts are in a few buffers that are used again: new memory for each takes as long as the copy.
    """

    def __init__(self, hashed: Any) -> None:
        self._hashed = hashed
        self._free: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
        self._parts: queue.SimpleQueue[tuple[bytearray, memoryview] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._buffers = 0

    def __enter__(self) -> _HashThread:
        return self

    def read(self, file: BinaryIO) -> Iterator[memoryview]:
        """Yield a file part by part, each of which is being hashed; it is good until the next one."""
        while True:
            if self._buffers < BUFFERS:
                self._buffers += 1
                self._free.put(bytearray(CHUNK))
            buffer = self._free.get()
            size = _read_into(file, buffer)
            if not size:
                return
            part = memoryview(buffer)[:size]
            self._parts.put((buffer, part))
            if self._buffers > 1 and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dgent-hash", daemon=True)
                self._thread.start()
            yield part

    def _run(self) -> None:
        while (given := self._parts.get()) is not None:
            self._hashed.update(given[1])
            self._free.put(given[0])

    def __exit__(self, *_error: object) -> None:
        self._parts.put(None)
        if self._thread is None:
            self._run()
        else:
            self._thread.join()


def _read_into(file: BinaryIO, buffer: bytearray) -> int:
    """Read a part of a file; return how many bytes, 0 at its end."""
    if hasattr(file, "readinto"):
        return file.readinto(buffer) or 0
    part = check_part(file.read(len(buffer)))
    buffer[: len(part)] = part
    return len(part)


def _write_synced(path: str, text: str) -> None:
    """Write a small file whole, and wait until it is on the disk."""
    new = f"{path}.{os.getpid()}.new"
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    files.sync(os.path.dirname(path))
    files.sync(os.path.dirname(os.path.dirname(path)))


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError:
        with files.disk_errors(folder):
            raise


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _open_file(path: str) -> int | None:
    """Open a file to read it; None for a link, a pipe or a folder, which nobody here made."""
    try:
        handle = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError:
        if os.path.lexists(path) and not _is_file(path):
            return None
        raise
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    return None


def _lock(path: str, *, shared: bool) -> int | None:
    """Return an open file that is locked and still at its path; None if it is missing, or others hold it."""
    try:
        handle = _open_file(path)
    except FileNotFoundError:
        return None
    if handle is None:
        return None
    if files.try_lock(handle, shared=shared) and files.is_at(handle, path):
        return handle
    os.close(handle)
    return None


def _unlock(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _link(path: str, name: str) -> bool:
    """Give a file another name, which replaces its own; False when there is a file of that name."""
    try:
        os.link(path, name)
    except FileExistsError:
        return False
    except OSError:
        if os.path.lexists(name):
            return False
        os.rename(path, name)  # no links on this disk
        return True
    with suppress(OSError):
        os.unlink(path)
    return True
