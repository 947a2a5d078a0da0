"""What is left of an update when what it says is taken out, and what it said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MARK = "[redacted]"
_INNER = "\N{PARROT}:cid:"  # names a part of the document, which is no text
LINE_ENDS = "\n\r"
TRACE = 4  # a text that is shorter is found anywhere, and says nothing


@dataclass(frozen=True)
class Redaction:
    """What was redacted: which versions, and the version that says so.

    `elsewhere` are other versions that brought some of the same text: they still say it. `erased` is whether
    the bytes are gone from the disk already; where they are not, redacting again tries again. `messages` are
    the redacted versions whose messages are still there; redacting again with `clear_messages` clears them.
    """

    version: int
    versions: tuple[int, ...]
    elsewhere: tuple[int, ...]
    erased: bool
    messages: tuple[int, ...] = ()


def filled(blank: str, told: str) -> str:
    """An update whose values were blanked, with something to be shown in their place.

    A text keeps the ends of its lines, by the update as it was told before: else redacting would join lines.
    """
    update = json.loads(blank)
    pairs = zip(_operations(update), _operations(json.loads(told)), strict=True)
    for operation, before in pairs:
        content = operation["content"]
        if operation["container"].endswith(":Counter") or content["type"] not in ("insert", "set"):
            continue
        if "text" in content:
            content["text"] = _lines_kept(content["text"], before["content"]["text"])
        elif isinstance(content.get("value"), list):
            # The entries of a log are maps, whatever becomes of them.
            mark = {"redacted": True} if operation["container"].endswith(":List") else MARK
            content["value"] = [mark if each is None else each for each in content["value"]]
        elif "value" in content and content["value"] is None:
            content["value"] = MARK
    return json.dumps(update)


def _lines_kept(blank: str, text: str) -> str:
    return "".join(new if new in LINE_ENDS else old for old, new in zip(blank, text, strict=True))


def sayings(told: str) -> Iterator[tuple[int, int, str]]:
    """The texts in an update: by whom, as which of its operations, and what."""
    update = json.loads(told)
    for change in update["changes"]:
        peer = int(update["peers"][int(change["id"].partition("@")[2])])
        for operation in change["ops"]:
            content = operation["content"]
            for text in _texts((content.get("text"), content.get("value"))):
                yield peer, operation["counter"], text


def traces(said: list[str]) -> frozenset[str]:
    """Those of some texts that can be looked for."""
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
