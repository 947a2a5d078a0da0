"""The shape of a document: its fields, items, entries or sections, and what each may hold.

A block's header stores its shape, so a block does not change when its template changes later. A document
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
    """A field: its type, whether it is required, and whether it may change after the block was created.

    `items` is the type of the items of a list, `choices` are the only allowed values if there are any.
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
class SectionShape:
    """A section of a composite, with a shape of its own."""

    name: str
    shape: Shape
    description: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class Shape:
    """The shape of a document.

    `fields` are those of a map, or of each item of a list, entry of a log or node of a tree; without any,
    every field is allowed. `display` is how many of the newest entries of a log are shown, `clip` how many
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
    sections: tuple[SectionShape, ...] = ()

    def field(self, name: object) -> Field:
        """Return the field with a name; raises TemplateError with the known names."""
        for each in self.fields:
            if each.name == name:
                return each
        if not self.fields and isinstance(name, str) and name:
            return Field(name, "any")
        raise _unknown("field", name, [each.name for each in self.fields])

    def section(self, name: object) -> SectionShape:
        """Return the section with a name; raises TemplateError with the known names."""
        for each in self.sections:
            if each.name == name:
                return each
        raise _unknown("section", name, [each.name for each in self.sections])


def _unknown(what: str, name: object, known: Sequence[str]) -> errors.TemplateError:
    return errors.TemplateError(
        f"there is no {what} {name!r}", hint=f"there are: {', '.join(known) or 'none'}", known=list(known)
    )


# -- as data ------------------------------------------------------------------------------------


def dump_shape(shape: Shape) -> dict[str, Any]:
    """Return a shape as plain data, without defaults."""
    return _small(msgspec.to_builtins(shape), Shape())


def load_shape(document: str, data: Mapping[str, Any]) -> Shape:
    """Build the shape of a header; fields of a newer version of dgent are ignored."""
    if not data:
        return Shape(document)
    try:
        return msgspec.convert({**data, "document": document}, Shape)
    except msgspec.ValidationError as error:
        raise errors.TemplateError(f"the shape of a block cannot be read: {error}") from None


def _small(data: Any, usual: Shape) -> dict[str, Any]:
    """Return only what differs from the defaults, at every depth."""
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
    """Return the name of a container; that of a section starts with the section's name."""
    return f"section_{section}_{name}" if section else name


def field_container(section: str, field: Field) -> str:
    """Return the name of the container of a list or counter field."""
    return container(section, f"{field.type}_{field.name}")


def containers(shape: Shape, section: str = "") -> Iterator[str]:
    """Yield the names of all containers of a shape."""
    if shape.document == "composite":
        for each in shape.sections:
            yield from containers(each.shape, each.name)
        return
    yield container(section, BODY[shape.document])
    for field in shape.fields if shape.document == "map" else ():
        if field.type in ("list", "counter"):
            yield field_container(section, field)
