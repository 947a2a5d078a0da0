"""Where things are: the only file that reads the home folder and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def data_home(environment: Mapping[str, str] | None = None) -> Path:
    """The folder for dgent's data, by the XDG rules: a relative XDG_DATA_HOME is ignored."""
    env = os.environ if environment is None else environment
    chosen = env.get("XDG_DATA_HOME", "")
    base = Path(chosen) if chosen and Path(chosen).is_absolute() else Path.home() / ".local" / "share"
    return base / "dgent"


def default_url(environment: Mapping[str, str] | None = None) -> str:
    """The URL of the user's default constellation; its folder is made, readable by the user only."""
    folder = data_home(environment) / "constellations" / "default"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return f"sqlite:///{folder / 'membrane.db'}"
