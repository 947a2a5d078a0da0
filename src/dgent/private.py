"""Files and folders that are for the user alone; those that exist keep their permissions."""

from __future__ import annotations

import os
from contextlib import suppress

FILE, FOLDER = 0o600, 0o700


def make_file(path: str) -> None:
    """Make an empty file, unless there is one; SQLite gives its log the same permissions.

    It gets its name after it was closed: closing a database in a process drops the locks that SQLite holds
    there. Where it cannot be made, nothing happens: whoever opens it next says why.
    """
    if os.path.lexists(path):
        return
    import tempfile  # only a new store needs it

    folder, name = os.path.split(path)
    with suppress(OSError):
        handle, made = tempfile.mkstemp(dir=folder or ".", prefix=f".{name}.")
        os.close(handle)
        try:
            os.link(made, path)
        except FileExistsError:
            pass  # another process was faster
        except OSError:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE))  # no links on this disk
        finally:
            os.unlink(made)


def make_folder(path: str) -> bool:
    """Make a folder and those above it; False when it is there. OSError says why it cannot be made."""
    if os.path.isdir(path):
        return False
    above = os.path.dirname(os.path.abspath(path))
    if above != path:
        make_folder(above)
    try:
        os.mkdir(path, FOLDER)
    except FileExistsError:
        if os.path.isdir(path):  # another process was faster
            return False
        raise
    return True
