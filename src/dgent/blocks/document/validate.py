"""Whether a shape is one, and whether values fit it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from dgent import clock
from dgent.blocks import errors
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import STAMPS, contents
from dgent.blocks.document.shape import (
    BODY,
    FIELD_TYPES,
    Field,
    Shape,
    container,
    containers,
    field_container,
)
from dgent.blocks.document.value import plain
from dgent.blocks.kind import DOCUMENT_KINDS
from dgent.errors import DgentError, InputError

MAX_FIELDS = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_ITEM_TYPES = ("text", "number", "integer", "boolean", "timestamp", "any")

# -- values -------------------------------------------------------------------------------------


def checked(field: Field, value: Any) -> Any:
    """A value as the field holds it, or what is wrong with it."""
    if field.type == "list":
        if not isinstance(value, list | tuple):
            raise _unfit(field.name, "a list", value)
        if field.max_items is not None and len(value) > field.max_items:
            raise too_many(field.name, len(value), field.max_items)
        return [item(field, each) for each in value]
    made = _typed(field.name, field.type, value)
    if field.choices and made not in field.choices:
        raise errors.TemplateError(
            f"{field.name} cannot be {made!r:.80}", hint=f"use one of {', '.join(map(str, field.choices))}"
        )
    return made


def item(field: Field, value: Any) -> Any:
    """A value as the field, which is a list, holds it."""
    made = _typed(field.name, field.items, value)
    if field.choices and made not in field.choices:
        raise errors.TemplateError(
            f"{field.name} cannot have {made!r:.80}", hint=f"use some of {', '.join(map(str, field.choices))}"
        )
    return made


def record(shape: Shape, value: Any, before: Mapping[str, Any] | None = None) -> Any:
    """An item of a list, an entry of a log or the fields of a map or a node, whole and with its defaults.

    With `before` it is a change of that one: fields that are read-only stay as they were.
    """
    if not shape.fields:
        return _typed("an item", shape.items, value)
    if not isinstance(value, Mapping):
        raise _unfit("this", f"a map of {', '.join(each.name for each in shape.fields)}", value)
    made = {shape.field(name).name: checked(shape.field(name), each) for name, each in value.items()}
    for field in shape.fields:
        if before is not None and field.read_only:
            old = before.get(field.name)
            if made.get(field.name, old) != old:
                raise read_only(field.name)
            if old is not None:
                made[field.name] = old
        elif field.name not in made and field.default is not None:
            made[field.name] = checked(field, field.default)
        if field.required and made.get(field.name) is None:
            raise errors.TemplateError(
                f"{field.name} is required", hint=f"give it a value: it is a {field.type}", field=field.name
            )
    return {field.name: made[field.name] for field in shape.fields if field.name in made}


def change(shape: Shape, before: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a change of some fields of an item or a node makes of them; None where one is taken away."""
    old = before if isinstance(before, Mapping) else {}
    whole = {name: each for name, each in {**old, **given}.items() if each is not None}
    if shape.fields:  # what is there and not known is of a later version: it stays
        known = {field.name for field in shape.fields}
        whole = {name: each for name, each in whole.items() if name in known or name in given}
        for name in given:
            shape.field(name)
    made = record(shape, whole, old)
    return {name: made.get(name) for name in given}


def mapping(value: Any) -> dict[str, Any]:
    """A map by name, or what is wrong with it."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"fields are needed, not {value!r:.80}", hint='give a map, as in {"title": "…"}')
    return dict(value)


def _typed(name: str, type_: str, value: Any) -> Any:
    if type_ == "any":
        return plain(value)
    if type_ == "text" and isinstance(value, str):
        return _text(value)
    if type_ == "boolean" and isinstance(value, bool):
        return value
    if type_ == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return plain(value)
    if type_ == "integer" and isinstance(value, int) and not isinstance(value, bool):
        return plain(value)
    if type_ == "counter" and isinstance(value, int) and not isinstance(value, bool):
        return whole(value)
    if type_ == "timestamp":
        return moment(name, value)
    raise _unfit(name, _ARTICLES[type_], value)


_ARTICLES = {
    "text": "a text",
    "number": "a number",
    "boolean": "true or false",
    "integer": "a whole number",
    "counter": "a whole number",
    "timestamp": "a time with its zone, as in 2026-01-31T12:00:00Z",
}


def moment(name: str, value: Any) -> str:
    """A time as it is kept: ISO text in UTC."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime) and value.tzinfo is not None:
            return clock.text(value)
    except (ValueError, OverflowError, InputError):
        pass
    raise _unfit(name, _ARTICLES["timestamp"], value)


MAX_COUNT = 2**53
"""Counters are kept as floating point numbers, which are exact up to here."""


def whole(value: Any) -> int:
    """What may be added to a counter."""
    if type(value) is not int or not -MAX_COUNT < value < MAX_COUNT:
        raise InputError(f"a counter counts in whole numbers below {MAX_COUNT}, not by {value!r:.80}")
    return value


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError("the text is not valid Unicode") from None
    return value


def _unfit(name: str, wanted: str, value: Any) -> errors.TemplateError:
    return errors.TemplateError(f"{name} must be {wanted}, not {value!r:.80}", field=name)


def measure(shape: Shape, document: Document, section: str = "") -> dict[str, tuple[int, int]]:
    """How many items there are in each container that may have only so many, and how many those are."""
    found: dict[str, tuple[int, int]] = {}
    for each in shape.sections:
        found |= measure(each.shape, document, each.name)
    if shape.document == "list" and shape.max_items is not None:
        name = container(section, BODY["list"])
        found[name] = (document.count_items(name), shape.max_items)
    for field in shape.fields if shape.document == "map" else ():
        if field.type == "list" and field.max_items is not None:
            name = field_container(section, field)
            found[name] = (document.count_items(name), field.max_items)
    return found


def check_growth(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> None:
    """Refuse a change after which something has more items than it may have and than it had."""
    for name, (count, most) in after.items():
        if count > most and count > before[name][0]:
            raise too_many(name, count, most)


def read_only(name: str) -> errors.TemplateError:
    """The error for a change of what may not change."""
    return errors.TemplateError(
        f"{name} is read-only", hint="it has the value that the block was made with", field=name
    )


def too_many(name: str, count: int, limit: int) -> errors.LimitExceeded:
    """The error for more items than there may be."""
    return errors.LimitExceeded(
        f"{name} would have {count} items; its limit is {limit}",
        hint="remove some first",
        size=count,
        limit=limit,
    )


# -- shapes -------------------------------------------------------------------------------------


def check_shape(shape: Shape, inner: bool = False) -> Shape:
    """The shape itself, or what is wrong with it."""
    if shape.document not in DOCUMENT_KINDS:
        raise _wrong(f"{shape.document!r} is no kind of document", f"use one of {', '.join(DOCUMENT_KINDS)}")
    if inner and shape.document == "composite":
        raise _wrong("a section cannot have sections", "put its parts beside it")
    if shape.sections and shape.document != "composite":
        raise _wrong(f"a {shape.document} has no sections", 'make it document="composite"')
    if len(shape.fields) + len(shape.sections) > MAX_FIELDS:
        raise _wrong(f"a shape has at most {MAX_FIELDS} fields", "split it into several blocks")
    _check_counts(shape)
    _check_names([each.name for each in shape.fields] + [each.name for each in shape.sections])
    for field in shape.fields:
        _check_field(field, shape.document == "map")
    for section in shape.sections:
        check_shape(section.shape, inner=True)
    places = list(containers(shape))
    if len(set(places)) != len(places):  # `section_a_list_b_list` may be of section a or of section a_list_b
        raise _wrong("the names of sections and their fields run into each other", "rename one of them")
    return shape


def _check_names(names: list[str]) -> None:
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _wrong(f"{name!r:.80} is no name of a field", "use letters, digits, - and _")
    if len(set(names)) != len(names):
        raise _wrong("two fields or sections have the same name", "rename one of them")


def _check_counts(shape: Shape) -> None:
    for name in ("max_items", "display", "clip", "keep"):
        value = getattr(shape, name)
        if value is not None and (type(value) is not int or value < 1):
            raise _wrong(f"{name} is a number from 1, not {value!r}", "leave it out for no bound")
    if shape.keep_s is not None and not shape.keep_s > 0:
        raise _wrong(f"keep_s is a number of seconds above 0, not {shape.keep_s!r}", "leave it out for ever")
    if shape.items not in _ITEM_TYPES:
        raise _wrong(f"{shape.items!r} is no type of an item", f"use one of {', '.join(_ITEM_TYPES)}")


def _check_field(field: Field, alone: bool) -> None:
    if field.type not in FIELD_TYPES:
        raise _wrong(f"{field.type!r} is no type of a field", f"use one of {', '.join(FIELD_TYPES)}")
    if field.type == "counter" and not alone:
        raise _wrong(f"{field.name!r}: only a map has counters", "use a number")
    if field.items not in _ITEM_TYPES:
        raise _wrong(f"{field.items!r} is no type of an item", f"use one of {', '.join(_ITEM_TYPES)}")
    if field.max_items is not None and (type(field.max_items) is not int or field.max_items < 1):
        raise _wrong(f"max_items is a number from 1, not {field.max_items!r}", "leave it out for no bound")
    if field.default is not None:
        checked(field, field.default)


def _wrong(message: str, hint: str) -> errors.TemplateError:
    return errors.TemplateError(message, hint=hint)


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
    record(new, {name: each for name, each in found.items() if name not in empty})


def _list(old: Shape, new: Shape, document: Document, section: str) -> None:
    items = document.items(container(section, BODY["list"]))
    if items and new.fields and not old.fields:
        raise errors.TemplateError("its items have no fields")
    _records(new, items)
    if new.max_items is not None and len(items) > new.max_items:
        raise too_many("the list", len(items), new.max_items)


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
        record(shape, each)


def _composite(old: Shape, new: Shape, document: Document, _section: str) -> None:
    kept = {each.name: each.shape for each in new.sections}
    for each in old.sections:
        if each.name in kept:
            check_fit(each.shape, kept[each.name], document, each.name)
        elif contents(each.shape, document, each.name) != contents(each.shape, Document(), each.name):
            raise errors.TemplateError(f"there is no section {each.name!r}, and it is not empty")


_CHECKS = {"map": _map, "list": _list, "log": _log, "tree": _tree, "composite": _composite}
