"""The environment of commands that an agent runs: what programs need to work, and no secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping

KEPT = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR", "SHELL", "VIRTUAL_ENV")
)


def command_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that commands are given: a short list, and the language settings."""
    env = os.environ if environment is None else environment
    return {name: value for name, value in env.items() if name in KEPT or name.startswith("LC_")}
