"""Blank the texts of an update, and list them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MARK = "[redacted]"
_INNER = "\N{PARROT}:cid:"  # prefix of the name of a part of the document, which is not a text
LINE_ENDS = "\n\r"
TRACE = 4  # a shorter text is found anywhere


@dataclass(frozen=True)
class Redaction:
    """A redaction: the redacted versions, and the number of the version that records it.

    `elsewhere` are other versions that brought some of the same text: they still have it. `erased` is whether
    the bytes are gone from the disk already; if not, redacting again tries again, and `doctor` names
    lines of a folder that may still hold them. `messages` are the redacted
    versions whose messages are still there; redacting again with `clear_messages` clears them.
    """

    version: int
    versions: tuple[int, ...]
    elsewhere: tuple[int, ...]
    erased: bool
    messages: tuple[int, ...] = ()


def fill_blanks(blank: str, original: str) -> str:
    """Put visible marks into an update whose values were blanked.

    A text keeps the line ends it had in the `original` update: else redacting would join lines.
    """
    update = json.loads(blank)
    pairs = zip(_operations(update), _operations(json.loads(original)), strict=True)
    for operation, before in pairs:
        content = operation["content"]
        if operation["container"].endswith(":Counter") or content["type"] not in ("insert", "set"):
            continue
        if "text" in content:
            content["text"] = _keep_line_ends(content["text"], before["content"]["text"])
        elif isinstance(content.get("value"), list):
            # The entries of a log must stay maps.
            mark = {"redacted": True} if operation["container"].endswith(":List") else MARK
            content["value"] = [mark if each is None else each for each in content["value"]]
        elif "value" in content and content["value"] is None:
            content["value"] = MARK
    return json.dumps(update)


def _keep_line_ends(blank: str, text: str) -> str:
    return "".join(new if new in LINE_ENDS else old for old, new in zip(blank, text, strict=True))


def iterate_texts(update_json: str) -> Iterator[tuple[int, int, str]]:
    """Yield the texts in an update: the peer, the counter of the operation, and the text."""
    update = json.loads(update_json)
    for change in update["changes"]:
        peer = int(update["peers"][int(change["id"].partition("@")[2])])
        for operation in change["ops"]:
            content = operation["content"]
            for text in _texts((content.get("text"), content.get("value"))):
                yield peer, operation["counter"], text


def select_traceable(said: list[str]) -> frozenset[str]:
    """Return the texts that are long enough to be searched for."""
    return frozenset(text.strip() for text in said if len(text.strip()) >= TRACE)


def _operations(update: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for change in update["changes"]:
        yield from change["ops"]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if not value.startswith(_INNER):
            yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
