"""Wrappers: the tags around a block in a prompt, which nothing inside can close or imitate."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Whatever stands between the bracket and the word, a reader may take it for a tag.
_TAG = re.compile(r"<(?=[^\w<>]*(?:block|memory)\b)", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w.:/@-]")
_QUOTED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_SPECIAL = re.compile(r"[&<>\"']|[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def escaped(text: str) -> str:
    """A text in which nothing looks like the tag of a wrapper."""
    return _TAG.sub("&lt;", text)


def quoted(text: str) -> str:
    """A text as the value of an attribute: on one line, and without a quote."""
    return _SPECIAL.sub(lambda found: _QUOTED.get(found[0], " "), text)


def tag_name(label: str) -> str:
    """A label as part of a tag: what could end the tag is written as %XX."""
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), label)


def wrapped(tag: str, attributes: Mapping[str, str], body: str) -> str:
    """A body between its tags, escaped."""
    said = "".join(f' {name}="{quoted(value)}"' for name, value in attributes.items())
    return f"<{tag}{said}>\n{escaped(body)}\n</{tag}>"
