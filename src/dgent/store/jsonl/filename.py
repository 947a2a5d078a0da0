"""Which file the records of a schema are in: names that any file system takes, one for each schema."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

SUFFIX = ".jsonl"
COMMITS, SCHEMAS, DELETED, NONE = (name + SUFFIX for name in ("_commits", "_schemas", "_deleted", "_none"))
FORMAT = "dgent.json"

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*")
_MAX = 100  # bytes of a plain name; most file systems take 255
_READABLE = 60
# Names that some systems give to devices, whatever follows the first dot.
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}


@lru_cache(4096)
def file_of(schema: str) -> str:
    """The file of a schema; "" is the one of records without a schema.

    A name that is not plain gets a hash, so that names which differ in case, or in what cannot be in
    a file's name, have files of their own.
    """
    if not schema:
        return NONE
    if len(schema) <= _MAX and _PLAIN.fullmatch(schema) and schema.partition(".")[0] not in _DEVICES:
        return schema + SUFFIX
    readable = re.sub(r"[^a-z0-9_-]+", "-", schema.lower())[:_READABLE].strip("-_") or "x"
    return f"{readable}~{hashlib.sha256(schema.encode()).hexdigest()[:12]}{SUFFIX}"


def is_data(name: str) -> bool:
    """Whether a file of the folder has lines that belong to the store."""
    return name.endswith(SUFFIX) and not name.startswith(".")


def holds_records(name: str) -> bool:
    """Whether a file has lines of records."""
    return is_data(name) and name not in (COMMITS, SCHEMAS)
