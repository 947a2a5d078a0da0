"""A workspace: files below one root, which no name, link or race leads out of.

Each step of a name is opened relative to the descriptor of the folder above it, and no link is followed, also
not one that leads back inside. What changes a file writes a new one beside it and moves it into place.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import msgspec

from dgent.errors import Conflict, InputError, NotFound, StorageFull, Unavailable
from dgent.runtime.code.ignore import Ignored
from dgent.system.directory import LINK, NO_LINK, Directory, LinkInside

MAX_BYTES = 2 * 1024 * 1024  # of a file that is read or written
MAX_NAME = 4096
MAX_ENTRIES = 50_000  # files and folders that one walk looks at
MAX_DEPTH = 64
OWN = ".dgent"  # what dgent knows of a workspace; no tool reads or writes it
MARK = f"{OWN}/workspace"
SKIPPED = frozenset((".git", ".hg", ".svn", OWN))
_PLAIN = NO_LINK | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)


class FileState(msgspec.Struct, frozen=True):
    """A file at one moment: its text, and the mode it has; `text` is None where there is no file."""

    text: str | None
    mode: int | None = None

    @property
    def digest(self) -> str | None:
        """The digest of its bytes; None where there is no file."""
        return None if self.text is None else hashlib.sha256(self.text.encode()).hexdigest()


class Walk(msgspec.Struct):
    """The files that a walk found, in order, and whether it stopped before the end."""

    names: list[str] = msgspec.field(default_factory=list)
    stopped: bool = False


class Workspace:
    """The files below a root: `with Workspace("project") as workspace: ...`."""

    def __init__(self, root: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> None:
        try:
            self.root = Path(root).resolve(strict=True)
            self._inside = Directory(self.root, mode=0o777)
            self._inside.open()
        except (OSError, ValueError) as error:
            raise InputError(
                f"{str(root)!r} cannot be the root of a workspace: {error}", hint="name a folder that exists"
            ) from None
        self.max_bytes = max_bytes

    def close(self) -> None:
        """Close it; calls that still run fail."""
        self._inside.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- names ------------------------------------------------------------------------------

    def name(self, path: str) -> str:
        """Return the name of a file below the root, with /; InputError for what could lead outside.

        An absolute path is taken if it begins with the root. The root itself is the empty name.
        """
        if not isinstance(path, str) or len(path) > MAX_NAME:
            raise InputError(f"a path is a text of at most {MAX_NAME} characters", field="path")
        if not _is_plain(path):
            readable = path.encode("utf-8", "backslashreplace").decode()
            raise InputError(
                f"the path {readable!r} has characters that are not allowed", hint="no control characters"
            )
        if path.startswith("/") or Path(path).is_absolute():
            root = f"{self.root.as_posix().rstrip('/')}/"
            if not f"{path.rstrip('/')}/".startswith(root):
                raise self._outside(path)
            path = path[len(root) :]
        steps = [step for step in path.split("/") if step not in ("", ".")]
        if ".." in steps:
            raise self._outside(path)
        if steps and steps[0].casefold() == OWN:
            raise InputError(f"{OWN} is dgent's own folder", hint="use another path", field="path")
        return "/".join(steps)

    def _outside(self, path: str) -> InputError:
        return InputError(
            f"{path!r} is not inside of the workspace", hint="use a path relative to its root", field="path"
        )

    def file_name(self, path: str) -> str:
        """Return the name of a file; InputError for the root itself."""
        name = self.name(path)
        if not name or path.endswith("/"):
            raise InputError(f"{path!r} is not the path of a file", field="path")
        return name

    # -- reading ----------------------------------------------------------------------------

    def read(self, name: str) -> FileState:
        """Return the text of a file, None for one that does not exist; InputError if it is not a text.

        Refused for links, folders, devices, binary files and files over the limit.
        """
        with _explain(name):
            try:
                with self._inside.at(name) as (at, last):
                    handle = os.open(last, os.O_RDONLY | _PLAIN | _NO_WAIT, dir_fd=at)
            except FileNotFoundError:
                return FileState(None)
            with os.fdopen(_check_file(handle, name), "rb", buffering=0) as file:
                mode = stat.S_IMODE(os.fstat(handle).st_mode)
                # One read may give less than was asked for.
                content = bytearray()
                while len(content) <= self.max_bytes and (
                    part := file.read(self.max_bytes + 1 - len(content))
                ):
                    content += part
        if len(content) > self.max_bytes:
            raise InputError(
                f"{name!r} has more than {self.max_bytes} bytes", hint="search it, or run a command on it"
            )
        return FileState(decode(bytes(content), name), mode)

    def read_text(self, name: str) -> FileState:
        """Return the text of a file; NotFound if it does not exist."""
        state = self.read(name)
        if state.text is None:
            raise NotFound(f"there is no file {name!r}", hint="find it with glob")
        return state

    def walk(self, below: str = "", *, ignored: bool = False) -> Walk:
        """Return the names of the files below a folder, in order; links are left out.

        Files that `.gitignore` names are left out too, unless `ignored` asks for them, as are the folders of
        version control.
        """
        found = Walk()
        rules = Ignored()
        if not ignored:
            steps = below.split("/") if below else []
            for depth in range(len(steps)):
                self._add_rules(rules, "/".join(steps[:depth]))
        with _explain(below or "."):
            seen = self._walk(below, 0, found, rules, ignored, 0)
        found.stopped = found.stopped or seen > MAX_ENTRIES
        return found

    def _walk(self, below: str, depth: int, found: Walk, rules: Ignored, ignored: bool, seen: int) -> int:
        if not ignored:
            self._add_rules(rules, below)
        with self._inside.entries(below) as listed:
            entries = []
            for each in listed:
                seen += 1
                if seen > MAX_ENTRIES:
                    found.stopped = True
                    break
                entries.append(
                    (each.name, each.is_dir(follow_symlinks=False), each.is_file(follow_symlinks=False))
                )
        for name, is_folder, is_file in sorted(entries):
            if not _is_plain(name):
                continue  # no tool takes such a name
            path = f"{below}/{name}" if below else name
            if name in SKIPPED or (not ignored and rules.covers(path, is_folder)):
                continue
            if is_folder and depth < MAX_DEPTH and seen <= MAX_ENTRIES:
                with suppress(FileNotFoundError, NotADirectoryError, PermissionError, LinkInside):
                    seen = self._walk(path, depth + 1, found, rules, ignored, seen)
            elif is_folder:
                found.stopped = True
            elif is_file:
                found.names.append(path)
        return seen

    def _add_rules(self, rules: Ignored, folder: str) -> None:
        with suppress(InputError, NotFound, Unavailable):
            text = self.read(f"{folder}/.gitignore" if folder else ".gitignore").text
            if text:
                rules.add(folder, text)

    @contextmanager
    def folder(self, name: str) -> Iterator[int | None]:
        """Yield the descriptor of a folder; None on systems that have none. InputError if it is not one."""
        with _explain(name or "."), self._inside.at(f"{name}/." if name else ".") as (at, _):
            yield at

    # -- writing ----------------------------------------------------------------------------

    def check_text(self, name: str, text: str) -> None:
        """Raise InputError if a text cannot become the content of a file here."""
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise InputError(f"the text for {name!r} is not valid Unicode") from None
        if size > self.max_bytes:
            raise InputError(f"the text for {name!r} has {size} bytes, more than {self.max_bytes}")
        if "\0" in text:
            raise InputError(f"the text for {name!r} contains NUL, which only binary files do")

    def stage(self, name: str, state: FileState) -> str:
        """Write what a file is to become beside it, on the disk; returns the name of that file."""
        assert state.text is not None
        self.check_text(name, state.text)
        folder, _, last = name.rpartition("/")
        part = f".{last[:40]}.{secrets.token_hex(6)}.part"
        part = f"{folder}/{part}" if folder else part
        with _explain(name):
            with self._inside.at(part, make=True) as (at, temporary):
                handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, 0o666, dir_fd=at)
            try:
                with os.fdopen(handle, "wb") as file:
                    if state.mode is not None:
                        os.chmod(handle, state.mode & 0o777)
                    file.write(state.text.encode())
                    file.flush()
                    os.fsync(handle)
            except BaseException:
                self.discard(part)
                raise
        return part

    def discard(self, part: str) -> None:
        """Remove a staged file, if it is there."""
        with suppress(OSError), self._inside.at(part) as (at, last):
            os.unlink(last, dir_fd=at)

    def place(self, part: str | None, name: str, expected: str | None) -> None:
        """Move a staged file into place, or remove the file for None; Conflict unless it is as expected.

        `expected` is the digest that the file has now, None for a file that must not exist.
        """
        if self.read(name).digest != expected:
            raise Conflict(f"{name!r} was changed meanwhile by others", hint="read it again and decide")
        with _explain(name), self._inside.at(name) as (at, last):
            if part is None:
                os.unlink(last, dir_fd=at)
            elif expected is None:
                self._link(part, name)
            else:
                os.replace(part.rpartition("/")[2], last, src_dir_fd=at, dst_dir_fd=at)
        self._inside.sync(name.rpartition("/")[0])

    def _link(self, part: str, name: str) -> None:
        """Give a staged file its name, which must be free: a link fails where a rename would replace."""
        with self._inside.at(name) as (at, last):
            temporary = part.rpartition("/")[2] if at is not None else part
            try:
                try:
                    os.link(temporary, last, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
                    os.unlink(temporary, dir_fd=at)
                except PermissionError:  # no links on this disk: take the name first, then replace it
                    os.close(os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, 0o600, dir_fd=at))
                    os.replace(temporary, last, src_dir_fd=at, dst_dir_fd=at)
            except FileExistsError:
                raise Conflict(f"{name!r} was made meanwhile by others", hint="read it first") from None

    # -- the workspace itself ---------------------------------------------------------------

    def identity(self, make: bool = False) -> str | None:
        """Return the id of this workspace, from a file that only this root has; None if it has none."""
        with suppress(InputError, NotFound):
            text = self.read(MARK).text
            if text and text.strip().isalnum():
                return text.strip()
        if not make:
            return None
        for name, text in ((f"{OWN}/.gitignore", "*\n"), (MARK, secrets.token_hex(16) + "\n")):
            if self.read(name).text is None:
                part = self.stage(name, FileState(text, 0o600))
                with suppress(Conflict):  # another process was faster
                    self.place(part, name, None)
                self.discard(part)
        return self.identity()


def decode(content: bytes, name: str) -> str:
    """Return bytes as text; InputError for a binary file."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InputError(
            f"{name!r} is a binary file, or not UTF-8", hint="run a command that knows its format"
        )
    return text


def _is_plain(name: str) -> bool:
    """Check that a name is valid Unicode without control characters."""
    control = any(ord(sign) < 32 or ord(sign) == 127 for sign in name)
    return not control and name.encode("utf-8", "backslashreplace").decode() == name


def _check_file(handle: int, name: str) -> int:
    """Return the descriptor of a file; one of anything else is closed and refused."""
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{name!r} is not a file")
    return handle


@contextmanager
def _explain(name: str) -> Iterator[None]:
    """Translate errors of the file system into those that name the file."""
    try:
        yield
    except LinkInside:
        raise InputError(f"{name!r}: a step of the path is a link, which is not followed") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise InputError(f"{name!r}: {LINK}") from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"no space left for {name!r}") from None
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.EIO):
            raise Unavailable(f"{name!r}: {error.strerror}") from None
        if isinstance(error, FileNotFoundError):
            raise NotFound(f"there is no file or folder {name!r}", hint="find it with glob") from None
        raise InputError(f"{name!r}: {error.strerror or error}") from None
