"""Passwords and keys in texts that are shown."""

from __future__ import annotations


def mask(text: str) -> str:
    """Return the text with every password inside a URL as `***`."""
    import re

    # A text that is one URL may have anything in its password; a URL within a text ends at a space.
    scheme = r"[A-Za-z][A-Za-z0-9+.-]{0,30}://"
    text = re.sub(rf"(?s)\A({scheme}[^/?#@:]*):.*@", r"\1:***@", text)
    text = re.sub(rf"({scheme}[^\s/?#@:]*):\S*@", r"\1:***@", text)
    # What only looks like a part of one, such as a URL with its scheme cut off.
    text = re.sub(r"([^\s/@:'\"]+):[^\s@:/*][^\s@]*@", r"\1:***@", text)
    return re.sub(r"(?i)([?&;][^\s=&;]*(?:pass|pwd|token|secret|key)[^\s=&;]*=)[^\s&;]+", r"\1***", text)
