"""Validate shapes, and values against them."""

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
from dgent.blocks.document.value import check_plain, check_unicode
from dgent.blocks.kind import DOCUMENT_KINDS
from dgent.errors import DgentError, InputError

MAX_FIELDS = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_ITEM_TYPES = ("text", "number", "integer", "boolean", "timestamp", "any")

# -- values -------------------------------------------------------------------------------------


def check_value(field: Field, value: Any) -> Any:
    """Return a value as a field stores it, or raise TemplateError."""
    if field.type == "list":
        if not isinstance(value, list | tuple):
            raise _unfit_error(field.name, "a list", value)
        if field.max_items is not None and len(value) > field.max_items:
            raise too_many_error(field.name, len(value), field.max_items)
        return [check_item(field, each) for each in value]
    made = _check_type(field.name, field.type, value)
    if field.choices and made not in field.choices:
        raise errors.TemplateError(
            f"{field.name} cannot be {made!r:.80}", hint=f"use one of {', '.join(map(str, field.choices))}"
        )
    return made


def check_item(field: Field, value: Any) -> Any:
    """Return an item as a list field stores it, or raise TemplateError."""
    made = _check_type(field.name, field.items, value)
    if field.choices and made not in field.choices:
        raise errors.TemplateError(
            f"{field.name} cannot have {made!r:.80}", hint=f"use some of {', '.join(map(str, field.choices))}"
        )
    return made


def check_record(shape: Shape, value: Any, before: Mapping[str, Any] | None = None) -> Any:
    """Return an item, an entry or the fields of a map or a node, complete and with defaults.

    With `before` it is a change of that one: read-only fields must stay as they were.
    """
    if not shape.fields:
        return _check_type("an item", shape.items, value)
    if not isinstance(value, Mapping):
        raise _unfit_error("this", f"a map of {', '.join(each.name for each in shape.fields)}", value)
    made = {shape.field(name).name: check_value(shape.field(name), each) for name, each in value.items()}
    for field in shape.fields:
        if before is not None and field.read_only:
            _keep_read_only(field.name, made, before)
        elif field.name not in made and field.default is not None:
            made[field.name] = check_value(field, field.default)
        if field.required and made.get(field.name) is None:
            raise errors.TemplateError(
                f"{field.name} is required", hint=f"give it a value: it is a {field.type}", field=field.name
            )
    return {field.name: made[field.name] for field in shape.fields if field.name in made}


def _keep_read_only(name: str, made: dict[str, Any], before: Mapping[str, Any]) -> None:
    old = before.get(name)
    if made.get(name, old) != old:
        raise read_only_error(name)
    if old is not None:
        made[name] = old


def check_change(shape: Shape, before: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked values of the given fields of an item or a node; None removes one."""
    old = before if isinstance(before, Mapping) else {}
    whole = {name: each for name, each in {**old, **given}.items() if each is not None}
    if shape.fields:  # unknown fields are of a later version of dgent: they stay
        known = {field.name for field in shape.fields}
        whole = {name: each for name, each in whole.items() if name in known or name in given}
        for name in given:
            shape.field(name)
    made = check_record(shape, whole, old)
    return {name: made.get(name) for name in given}


def check_mapping(value: Any) -> dict[str, Any]:
    """Return a map with names as keys, or raise InputError."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"expected fields, got {value!r:.80}", hint='give a map, as in {"title": "…"}')
    return dict(value)


def _check_type(name: str, type_: str, value: Any) -> Any:
    if type_ == "any":
        return check_plain(value)
    if type_ == "text" and isinstance(value, str):
        return check_unicode(value)
    if type_ == "boolean" and isinstance(value, bool):
        return value
    if type_ == "timestamp":
        return check_time(name, value)
    if isinstance(value, bool):
        raise _unfit_error(name, _ARTICLES[type_], value)
    if type_ == "number" and isinstance(value, int | float):
        return check_plain(value)
    if type_ == "integer" and isinstance(value, int):
        return check_plain(value)
    if type_ == "counter" and isinstance(value, int):
        return check_count(value)
    raise _unfit_error(name, _ARTICLES[type_], value)


_ARTICLES = {
    "text": "a text",
    "number": "a number",
    "boolean": "true or false",
    "integer": "a whole number",
    "counter": "a whole number",
    "timestamp": "a time with its zone, as in 2026-01-31T12:00:00Z",
}


def check_time(name: str, value: Any) -> str:
    """Return a time as it is stored: ISO text in UTC."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime) and value.tzinfo is not None:
            return clock.text(value)
    except (ValueError, OverflowError, InputError):
        pass
    raise _unfit_error(name, _ARTICLES["timestamp"], value)


MAX_COUNT = 2**53
"""Counters are kept as floating point numbers, which are exact up to here."""


def check_count(value: Any) -> int:
    """Return a number that a counter can add, or raise InputError."""
    if type(value) is not int or not -MAX_COUNT < value < MAX_COUNT:
        raise InputError(f"a counter counts in whole numbers below {MAX_COUNT}, not by {value!r:.80}")
    return value


def _unfit_error(name: str, wanted: str, value: Any) -> errors.TemplateError:
    return errors.TemplateError(f"{name} must be {wanted}, not {value!r:.80}", field=name)


def measure(shape: Shape, document: Document, section: str = "") -> dict[str, tuple[int, int]]:
    """Return, for each container with a limit of items, how many it has and its limit."""
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
    """Raise LimitExceeded for a change after which a container is over its limit and larger than before."""
    for name, (count, most) in after.items():
        if count > most and count > before[name][0]:
            raise too_many_error(name, count, most)


def read_only_error(name: str) -> errors.TemplateError:
    """Build the error for a change of something read-only."""
    return errors.TemplateError(
        f"{name} is read-only", hint="it keeps the value that the block was created with", field=name
    )


def too_many_error(name: str, count: int, limit: int) -> errors.LimitExceeded:
    """Build the error for too many items."""
    return errors.LimitExceeded(
        f"{name} would have {count} items; its limit is {limit}",
        hint="remove some first",
        size=count,
        limit=limit,
    )


# -- shapes -------------------------------------------------------------------------------------


def check_shape(shape: Shape, inner: bool = False) -> Shape:
    """Return a valid shape, or raise TemplateError."""
    if shape.document not in DOCUMENT_KINDS:
        raise _shape_error(
            f"{shape.document!r} is not a valid kind of document", f"use one of {', '.join(DOCUMENT_KINDS)}"
        )
    if inner and shape.document == "composite":
        raise _shape_error("a section cannot have sections", "put its parts beside it")
    if shape.sections and shape.document != "composite":
        raise _shape_error(f"a {shape.document} has no sections", 'make it document="composite"')
    if len(shape.fields) + len(shape.sections) > MAX_FIELDS:
        raise _shape_error(f"a shape has at most {MAX_FIELDS} fields", "split it into several blocks")
    _check_counts(shape)
    _check_names([each.name for each in shape.fields] + [each.name for each in shape.sections])
    for field in shape.fields:
        _check_field(field, shape.document == "map")
    for section in shape.sections:
        check_shape(section.shape, inner=True)
    places = list(containers(shape))
    if len(set(places)) != len(places):  # `section_a_list_b_list` may be of section a or of section a_list_b
        raise _shape_error("the names of sections and their fields are ambiguous", "rename one of them")
    return shape


def _check_names(names: list[str]) -> None:
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _shape_error(f"{name!r:.80} is not a valid field name", "use letters, digits, - and _")
    if len(set(names)) != len(names):
        raise _shape_error("two fields or sections have the same name", "rename one of them")


def _check_counts(shape: Shape) -> None:
    for name in ("max_items", "display", "clip", "keep"):
        value = getattr(shape, name)
        if value is not None and (type(value) is not int or value < 1):
            raise _shape_error(
                f"expected a number from 1 for {name}, got {value!r}", "leave it out for no bound"
            )
    if shape.keep_s is not None and not shape.keep_s > 0:
        raise _shape_error(
            f"expected seconds above 0 for keep_s, got {shape.keep_s!r}", "leave it out for ever"
        )
    if shape.items not in _ITEM_TYPES:
        raise _shape_error(
            f"{shape.items!r} is not a valid item type", f"use one of {', '.join(_ITEM_TYPES)}"
        )


def _check_field(field: Field, alone: bool) -> None:
    if field.type not in FIELD_TYPES:
        raise _shape_error(
            f"{field.type!r} is not a valid field type", f"use one of {', '.join(FIELD_TYPES)}"
        )
    if field.type == "counter" and not alone:
        raise _shape_error(f"{field.name!r}: only a map has counters", "use a number")
    if field.items not in _ITEM_TYPES:
        raise _shape_error(
            f"{field.items!r} is not a valid item type", f"use one of {', '.join(_ITEM_TYPES)}"
        )
    if field.max_items is not None and (type(field.max_items) is not int or field.max_items < 1):
        raise _shape_error(
            f"expected a number from 1 for max_items, got {field.max_items!r}", "leave it out for no bound"
        )
    if field.default is not None:
        check_value(field, field.default)


def _shape_error(message: str, hint: str) -> errors.TemplateError:
    return errors.TemplateError(message, hint=hint)


APART = {"list", "counter"}
"""The types of fields that have a container in the document each."""


def check_fit(old: Shape, new: Shape, document: Document, section: str = "") -> None:
    """Raise TemplateError when the content of a document with the old shape does not fit the new one."""
    where = f"the section {section}" if section else "the block"
    if new.document != old.document:
        raise errors.WrongKind(
            f"{where} is a {old.document}, and the template has a {new.document}",
            hint="make a new block",
        )
    try:
        _CHECKS.get(new.document, _check_nothing)(old, new, document, section)
    except errors.WrongKind:
        raise
    except DgentError as error:
        raise errors.TemplateError(
            f"the content of {where} does not fit: {error.message}",
            hint="change the content first, or the template",
        ) from None


def find_unlocked(old: Shape, new: Shape) -> list[str]:
    """Return the fields and sections that were read-only and would no longer be."""
    found = []
    for before, after in ((old.fields, new.fields), (old.sections, new.sections)):
        locked = {each.name for each in after if each.read_only}
        found += [each.name for each in before if each.read_only and each.name not in locked]
    later = {each.name: each.shape for each in new.sections}
    for section in old.sections:
        found += find_unlocked(section.shape, later.get(section.name, section.shape))
    return found


def _check_nothing(_old: Shape, _new: Shape, _document: Document, _section: str) -> None:
    """Accept any text or counter."""


def _check_map(old: Shape, new: Shape, document: Document, section: str) -> None:
    found = contents(old, document, section)
    was = {field.name: field.type for field in old.fields}
    empty = {name for name, type_ in was.items() if type_ in APART and not found[name]}
    for field in new.fields or [Field(name, "any") for name in was]:
        _check_refit(field, was.get(field.name, "any"), found)
    check_record(new, {name: each for name, each in found.items() if name not in empty})


def _check_refit(field: Field, before: str, found: Mapping[str, Any]) -> None:
    """Refuse a field whose value, which had another type before, does not fit it."""
    missing = field.required and field.type not in APART and field.name not in found
    if missing and field.default is None:
        raise errors.TemplateError(f"{field.name} is required, and has no value")
    if found.get(field.name) and before != field.type and {before, field.type} & APART:
        raise errors.TemplateError(f"{field.name}, of the type {before}, cannot become {field.type}")


def _check_list(old: Shape, new: Shape, document: Document, section: str) -> None:
    items = document.items(container(section, BODY["list"]))
    if items and new.fields and not old.fields:
        raise errors.TemplateError("its items have no fields")
    _check_records(new, items)
    if new.max_items is not None and len(items) > new.max_items:
        raise too_many_error("the list", len(items), new.max_items)


def _check_log(_old: Shape, new: Shape, document: Document, section: str) -> None:
    entries = document.entries(container(section, BODY["log"]))
    _check_records(new, [_strip_stamps(each) for each in entries])


def _strip_stamps(entry: Any) -> Any:
    return (
        {key: each for key, each in entry.items() if key not in STAMPS} if isinstance(entry, dict) else entry
    )


def _check_tree(_old: Shape, new: Shape, document: Document, section: str) -> None:
    _check_records(new, list(_iterate_nodes(document.nodes(container(section, BODY["tree"])))))


def _iterate_nodes(nodes: list[dict[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for node in nodes:
        yield node["data"]
        yield from _iterate_nodes(node["children"])


def _check_records(shape: Shape, found: list[Any]) -> None:
    for each in found:
        check_record(shape, each)


def _check_composite(old: Shape, new: Shape, document: Document, _section: str) -> None:
    kept = {each.name: each.shape for each in new.sections}
    for each in old.sections:
        if each.name in kept:
            check_fit(each.shape, kept[each.name], document, each.name)
        elif contents(each.shape, document, each.name) != contents(each.shape, Document(), each.name):
            raise errors.TemplateError(f"the new template has no section {each.name!r}, which is not empty")


_CHECKS = {
    "map": _check_map,
    "list": _check_list,
    "log": _check_log,
    "tree": _check_tree,
    "composite": _check_composite,
}
