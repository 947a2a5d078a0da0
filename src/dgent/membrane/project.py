"""The project that a record belongs to, as a short digest of its folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def project_hash(folder: str | Path) -> str:
    """Return the first 8 hex digits of the SHA-256 of a folder's resolved path."""
    return hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:8]
