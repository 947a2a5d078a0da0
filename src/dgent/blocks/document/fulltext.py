"""The words of a document: all its texts and numbers."""

from __future__ import annotations

from typing import Any

from dgent.blocks.document.document import Document
from dgent.blocks.document.entries import list_trimmed
from dgent.blocks.document.render import contents, entry_line
from dgent.blocks.document.shape import BODY, Shape, container


def fulltext(shape: Shape, document: Document, _limit: int | None = None, section: str = "") -> str:
    """Return the texts and numbers of a document, one per line; of a log the entries, newest first."""
    if shape.document == "composite":
        return "\n".join(fulltext(each.shape, document, None, each.name) for each in shape.sections)
    if shape.document != "log":
        return _values(contents(shape, document, section))
    name = container(section, BODY["log"])
    every = [*document.newest_entries(name), *list_trimmed(document, name)]
    return "\n".join(entry_line(entry) for entry in every)


def _values(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(_values(each) for each in value.values())
    if isinstance(value, list | tuple):
        return "\n".join(_values(each) for each in value)
    return "" if value is None or isinstance(value, bool) else str(value)
