"""The page about settings lists the keys there are, with their defaults."""

from __future__ import annotations

import re
from pathlib import Path

from dgent.config import settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "settings.md"


def test_the_page_lists_every_key() -> None:
    text = PAGE.read_text(encoding="utf-8").split("## What can be set", 1)[1]
    rows = re.findall(r"^\| `([\w.]+)` \| (?:`(\w+)`)? ?\| (.*) \|$", text, re.MULTILINE)
    defaults = {name: "" if key.default is None else str(key.default) for name, key in settings.KEYS.items()}
    assert {name: default for name, default, _ in rows} == {
        name: default.lower() if default in ("True", "False") else default
        for name, default in defaults.items()
    }
    for name, _, about in rows:
        assert all(f"`{choice}`" in about for choice in settings.KEYS[name].choices)
