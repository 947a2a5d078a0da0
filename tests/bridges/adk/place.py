"""Places for tests of ADK's services."""

from __future__ import annotations

from pathlib import Path

from tests.postgres.lease import url_for

ENGINES = ("memory", "sqlite", "jsonl", "postgres")
NAMES = (
    "ann",
    "bob",
    "a/b",
    "../..",
    ".",
    "~",
    "~u",
    "~h",
    "é\u202e",
    "a\0b",
    "x" * 600,
    "y" * 64,
    "a%2Fb",
    "user",
)


def place(engine: str, folder: Path) -> str:
    """Return the URL of a new store."""
    if engine == "postgres":
        return url_for(folder)
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{folder}/s.db", "jsonl": f"jsonl:{folder}/store"}
    return urls[engine]
