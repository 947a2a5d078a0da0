"""Whether what a block holds fits another shape: a block may get a new template only then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dgent.blocks import checking, errors
from dgent.blocks.document import Document
from dgent.blocks.form import STAMPS, contents
from dgent.blocks.shape import BODY, Field, Shape, container
from dgent.errors import DgentError

APART = {"list", "counter"}
"""The types of fields that a document keeps in a place of their own."""


def check_fit(old: Shape, new: Shape, document: Document, section: str = "") -> None:
    """Refuse a shape that the content of a document, which has the old one, does not fit."""
    where = f"the section {section}" if section else "the block"
    if new.document != old.document:
        raise errors.WrongKind(
            f"{where} is a {old.document}, and the template has a {new.document}",
            hint="make a new block",
        )
    try:
        _CHECKS.get(new.document, _anything)(old, new, document, section)
    except errors.WrongKind:
        raise
    except DgentError as error:
        raise errors.TemplateError(
            f"what {where} holds does not fit: {error.message}",
            hint="change the content first, or the template",
        ) from None


def unlocked(old: Shape, new: Shape) -> list[str]:
    """The fields and sections that were read-only, and would not be any more."""
    found = []
    for before, after in ((old.fields, new.fields), (old.sections, new.sections)):
        locked = {each.name for each in after if each.read_only}
        found += [each.name for each in before if each.read_only and each.name not in locked]
    later = {each.name: each.shape for each in new.sections}
    for section in old.sections:
        found += unlocked(section.shape, later.get(section.name, section.shape))
    return found


def _anything(_old: Shape, _new: Shape, _document: Document, _section: str) -> None:
    """A text or a counter fits any of its kind."""


def _map(old: Shape, new: Shape, document: Document, section: str) -> None:
    found = contents(old, document, section)
    was = {field.name: field.type for field in old.fields}
    empty = {name for name, type_ in was.items() if type_ in APART and not found[name]}
    for field in new.fields or [Field(name, "any") for name in was]:
        if field.required and field.type not in APART and field.name not in found:
            raise errors.TemplateError(f"{field.name} is required, and has no value")
        before = was.get(field.name, "any")
        if found.get(field.name) and before != field.type and {before, field.type} & APART:
            raise errors.TemplateError(f"{field.name}, of the type {before}, cannot become {field.type}")
    checking.record(new, {name: each for name, each in found.items() if name not in empty})


def _list(old: Shape, new: Shape, document: Document, section: str) -> None:
    items = document.items(container(section, BODY["list"]))
    if items and new.fields and not old.fields:
        raise errors.TemplateError("its items have no fields")
    _records(new, items)
    if new.max_items is not None and len(items) > new.max_items:
        raise checking.too_many("the list", len(items), new.max_items)


def _log(_old: Shape, new: Shape, document: Document, section: str) -> None:
    entries = document.entries(container(section, BODY["log"]))
    _records(new, [_unstamped(each) for each in entries])


def _unstamped(entry: Any) -> Any:
    return (
        {key: each for key, each in entry.items() if key not in STAMPS} if isinstance(entry, dict) else entry
    )


def _tree(_old: Shape, new: Shape, document: Document, section: str) -> None:
    _records(new, list(_nodes(document.nodes(container(section, BODY["tree"])))))


def _nodes(nodes: list[dict[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for node in nodes:
        yield node["data"]
        yield from _nodes(node["children"])


def _records(shape: Shape, found: list[Any]) -> None:
    for each in found:
        checking.record(shape, each)


def _composite(old: Shape, new: Shape, document: Document, _section: str) -> None:
    kept = {each.name: each.shape for each in new.sections}
    for each in old.sections:
        if each.name in kept:
            check_fit(each.shape, kept[each.name], document, each.name)
        elif contents(each.shape, document, each.name) != contents(each.shape, Document(), each.name):
            raise errors.TemplateError(f"there is no section {each.name!r}, and it is not empty")


_CHECKS = {"map": _map, "list": _list, "log": _log, "tree": _tree, "composite": _composite}
