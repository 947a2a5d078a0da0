"""URLs of stores: other spellings of one place, and paths relative to a folder."""

from __future__ import annotations

import os
from pathlib import Path


def spell_url(url: str) -> str:
    """Return a URL as dgent writes it: `postgresql:` for `postgres:`, `memory:` for `sqlite:///:memory:`."""
    if url.startswith("postgres:"):
        return "postgresql:" + url.removeprefix("postgres:")
    return "memory:" if url == "sqlite:///:memory:" else url


def resolve_url(url: str, base: Path, *, inside: bool) -> str:
    """Return the URL with a path relative to `base` made absolute; with `inside` it must stay below it."""
    url = spell_url(url)
    for start in ("sqlite:///", "jsonl:"):
        path = url.removeprefix(start)
        if path and path != url:
            full = os.path.join(base, path)
            if inside and Path(os.path.realpath(base)) not in Path(os.path.realpath(full)).parents:
                raise ValueError("leads out of the project, which only your own settings may do")
            return start + full
    if inside and url != "memory:":  # a shared name could be that of another project
        raise ValueError("leads out of the project, which only your own settings may do")
    return url
