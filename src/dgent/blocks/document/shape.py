"""The shape of a document: which fields, items, entries or sections it has, and what each may hold.

A block's card keeps its shape, so a block stays what it was made as when a template changes later. A document
without a shape takes any plain value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from dgent.blocks import errors
from dgent.blocks.document.document import COUNT, ENTRIES, FIELDS, ITEMS, NODES, TEXT

FieldType = Literal["text", "number", "integer", "boolean", "list", "timestamp", "counter", "any"]
FIELD_TYPES: tuple[str, ...] = get_args(FieldType)
DISPLAY = 20


@dataclass(frozen=True)
class Field:
    """One field: what it holds, whether it must be there, and whether it may change after it was made.

    `items` is the type of what a list holds, `choices` are the only values it may have when there are any.
    """

    name: str
    type: str = "text"
    description: str = ""
    required: bool = False
    default: Any = None
    read_only: bool = False
    items: str = "any"
    max_items: int | None = None
    choices: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Section:
    """A part of a composite, which is a document of its own."""

    name: str
    shape: Shape
    description: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class Shape:
    """What a document looks like.

    `fields` are those of a map, or of each item of a list, entry of a log or node of a tree; without any of
    them everything is taken. `display` is how many of the newest entries of a log are shown, `clip` how many
    characters of each, `keep` how many stay in the document, and `keep_s` for how many seconds.
    """

    document: str = "text"
    fields: tuple[Field, ...] = ()
    items: str = "any"
    max_items: int | None = None
    display: int = DISPLAY
    clip: int | None = None
    keep: int | None = None
    keep_s: float | None = None
    sections: tuple[Section, ...] = ()

    def field(self, name: object) -> Field:
        """The field of a name; TemplateError with the names there are when it is none of them."""
        for each in self.fields:
            if each.name == name:
                return each
        if not self.fields and isinstance(name, str) and name:
            return Field(name, "any")
        raise _unknown("field", name, [each.name for each in self.fields])

    def section(self, name: object) -> Section:
        """The section of a name; TemplateError with the names there are when it is none of them."""
        for each in self.sections:
            if each.name == name:
                return each
        raise _unknown("section", name, [each.name for each in self.sections])


def _unknown(what: str, name: object, known: Sequence[str]) -> errors.TemplateError:
    return errors.TemplateError(
        f"there is no {what} {name!r}", hint=f"there are: {', '.join(known) or 'none'}", known=list(known)
    )


# -- as data ------------------------------------------------------------------------------------


def dump(shape: Shape) -> dict[str, Any]:
    """A shape as plain data, without what is as always."""
    return _small(msgspec.to_builtins(shape), Shape())


def load(document: str, data: Mapping[str, Any]) -> Shape:
    """The shape of a card; one of a newer version may have fields that are not known here."""
    if not data:
        return Shape(document)
    try:
        return msgspec.convert({**data, "document": document}, Shape)
    except msgspec.ValidationError as error:
        raise errors.TemplateError(f"the shape of a block cannot be read: {error}") from None


def _small(data: Any, usual: Shape) -> dict[str, Any]:
    """Only what differs from the usual, at every depth."""
    made = {key: value for key, value in data.items() if value != msgspec.to_builtins(getattr(usual, key))}
    if "fields" in made:
        made["fields"] = [_less(each, _FIELD) for each in made["fields"]]
    if "sections" in made:
        made["sections"] = [
            {**_less(each, _SECTION), "shape": {**_small(each["shape"], usual)}} for each in made["sections"]
        ]
    return made


_FIELD = {key: value for key, value in msgspec.to_builtins(Field("")).items() if key != "name"}
_SECTION = {"description": "", "read_only": False}


def _less(data: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in usual or usual[key] != value}


# -- where things are in the document -------------------------------------------------------------

BODY = {"text": TEXT, "map": FIELDS, "list": ITEMS, "log": ENTRIES, "tree": NODES, "counter": COUNT}


def container(section: str, name: str) -> str:
    """The name of a container: one of a section has the section's name in front."""
    return f"section_{section}_{name}" if section else name


def field_container(section: str, field: Field) -> str:
    """The name of the container of a field that is a list or a counter."""
    return container(section, f"{field.type}_{field.name}")


def containers(shape: Shape, section: str = "") -> Iterator[str]:
    """The names of all containers that a document of a shape has."""
    if shape.document == "composite":
        for each in shape.sections:
            yield from containers(each.shape, each.name)
        return
    yield container(section, BODY[shape.document])
    for field in shape.fields if shape.document == "map" else ():
        if field.type in ("list", "counter"):
            yield field_container(section, field)
