"""The user's folders for dgent, with the constellations, the machine key and other private files in them.

Every start of the command line loads this module, so modules that only some starts need are imported where
they are used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from dgent.config.secret import mask
from dgent.errors import ConfigError, InputError
from dgent.system import files

DATABASE, TELEMETRY, BLOBS = "membrane.db", "telemetry.db", "blobs"
NAME_RULE = (
    "1 to 63 of a-z, 0-9, '.', '_' and '-', from a letter or digit on, with no '..' and no '.' at the end"
)
KEY_FILE, KEY_BYTES = "machine.key", 32

_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}


class Places(NamedTuple):
    """The user's folders for dgent: settings, data, and what can be made again."""

    config: Path
    data: Path
    cache: Path


def find_places(environment: Mapping[str, str] | None = None) -> Places:
    """Return the user's folders by the XDG rules; ignores relative paths in XDG variables. Makes nothing."""
    env = os.environ if environment is None else environment

    def folder(variable: str, *usual: str) -> Path:
        chosen = env.get(variable, "")
        if chosen and os.path.isabs(chosen):
            return Path(chosen) / "dgent"
        home = home_folder(environment)
        if home is None:
            raise ConfigError("no home folder is set", hint=f"set HOME or {variable} to an absolute path")
        return home.joinpath(*usual) / "dgent"

    return Places(
        folder("XDG_CONFIG_HOME", ".config"),
        folder("XDG_DATA_HOME", ".local", "share"),
        folder("XDG_CACHE_HOME", ".cache"),
    )


def home_folder(environment: Mapping[str, str] | None) -> Path | None:
    """Return the user's home folder by the environment; of this process also by the list of users."""
    env = os.environ if environment is None else environment
    for variable in ("HOME", "USERPROFILE"):
        if os.path.isabs(env.get(variable, "")):
            return Path(env[variable])
    if environment is None:
        with suppress(RuntimeError):  # nobody by this number in the list of users
            return Path.home()
    return None


def constellation_folder(places: Places, name: str) -> Path:
    """Return a constellation's folder, which may not exist; InputError for a name that leads elsewhere."""
    fault = name_fault(name)
    if fault:
        raise InputError(f"a constellation's name {fault}", field="constellation")
    return places.data / "constellations" / name


def constellations(places: Places) -> list[str]:
    """Return the names of the constellations that exist."""
    try:
        names = os.listdir(places.data / "constellations")
    except OSError:
        return []
    return sorted(
        name
        for name in names
        if name_fault(name) is None and os.path.isfile(places.data / "constellations" / name / DATABASE)
    )


def database_url(folder: Path) -> str:
    """Return the URL of the database in a constellation's folder."""
    return f"sqlite:///{folder / DATABASE}"


def constellation_of(url: str, places: Places) -> str | None:
    """Return the constellation that a URL means, if it is the database of one."""
    if not url.startswith("sqlite:///"):
        return None
    path = Path(os.path.normpath(url.removeprefix("sqlite:///")))
    inside = path.name == DATABASE and path.parent.parent == places.data / "constellations"
    return path.parent.name if inside and name_fault(path.parent.name) is None else None


def name_fault(value: object) -> str | None:
    """Return why a value is not a valid name of a constellation; None if it is."""
    import re

    if not isinstance(value, str):
        return "must be text"
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,62}", value) or ".." in value or value.endswith("."):
        return f"must be {NAME_RULE}"
    return "must not be the name of a device" if value.split(".")[0] in _DEVICES else None


def outbox_file(url: str, where: Places | None = None) -> str:
    """Return the default outbox of a store; its folder is made, private."""
    import hashlib

    for start in ("sqlite:///", "jsonl:"):
        if url.startswith(start):  # a relative path means another store in another folder
            url = start + os.path.abspath(url.removeprefix(start))
    name = hashlib.blake2b(mask(url).encode(errors="backslashreplace"), digest_size=8).hexdigest()
    folder = (find_places() if where is None else where).data / "outbox"
    make_private(folder)
    return str(folder / f"{name}.db")


def machine_key(environment: Mapping[str, str] | None = None) -> bytes | None:
    """Return a secret of this user on this machine, made on first use; None where none can be stored."""
    try:
        folder = find_places(environment).cache
        make_private(folder)
        found = _read_key(folder / KEY_FILE)
        if found is None:
            _make_key(folder)
            found = _read_key(folder / KEY_FILE)
        return found
    except (OSError, ConfigError):
        return None


def _read_key(path: Path) -> bytes | None:
    """Return the key of a file that only its owner may read; None when there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(handle)
        if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077):
            raise ConfigError(f"{path} belongs to another user, or other users may read it")
        key = os.read(handle, KEY_BYTES)
    finally:
        os.close(handle)
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{path} is damaged", hint="remove it")
    return key


def _make_key(folder: Path) -> None:
    """Make the key, unless another process is faster."""
    temporary = folder / f"{KEY_FILE}.{os.urandom(8).hex()}"
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(handle, os.urandom(KEY_BYTES))
        with suppress(FileExistsError):
            os.link(temporary, folder / KEY_FILE)
    finally:
        os.close(handle)
        os.unlink(temporary)


def make_private(folder: Path) -> bool:
    """Make a folder and those above it, for the user only. True if it was made.

    Folders that exist keep their permissions.
    """
    try:
        return files.make_folder(str(folder))
    except FileExistsError as error:
        raise ConfigError(f"{error.filename} is in the way: it is not a folder") from None
    except OSError as error:
        raise ConfigError(f"{error.filename or folder} cannot be made: {error.strerror}") from None


@contextmanager
def private_files() -> Iterator[None]:
    """Let everything made inside be for the user only: files 0600, folders 0700.

    It sets the umask, which is one for the whole process, so it is for programs and not for libraries:
    the command line wraps its whole run in it, once, on the main thread.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
