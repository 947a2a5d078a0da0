"""Templates: the purpose, shape, limit and permission of new blocks.

The shape may be custom, read from a dataclass or a JSON schema. A constraint that cannot be enforced is
refused: the schema would promise too much.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, is_dataclass, replace
from datetime import datetime
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dgent.blocks import errors
from dgent.blocks.document.shape import Field, SectionShape, Shape
from dgent.blocks.document.validate import check_shape

LIMIT = 20_000  # characters
_TEXT = Shape()


@dataclass(frozen=True)
class Template:
    """The defaults of a new block; each can be overridden when the block is created."""

    name: str
    shape: Shape = _TEXT
    description: str = ""
    kind: str = "working"
    limit: int = LIMIT
    permission: str = "read_write"


PERSONA = Template(
    "persona",
    description="Who I am: my character, how I speak, and what I hold to.",
    kind="core",
)
HUMAN = Template(
    "human",
    description="What I know about the human I work with: name, wishes, habits, and what matters to them.",
    kind="core",
)
SCRATCHPAD = Template(
    "scratchpad",
    description="Notes on what I am doing now. It may be emptied at any time.",
)
ORGANIZATION = Template(
    "organization",
    Shape(
        "map",
        (
            Field("name", description="what it is called", required=True),
            Field("policies", "list", "the rules that everybody keeps to", items="text"),
        ),
    ),
    description="The organization I work for and its rules. I cannot change them.",
    kind="core",
    permission="read_only",
)
PARTNER_PROFILE = Template(
    "partner_profile",
    Shape(
        "map",
        (
            Field("name", description="what they are called", required=True),
            Field("preferences", "list", "what they like and do not like", items="text"),
            Field("energy_level", "counter", "from 0 to 10", default=5),
            Field("current_focus", description="what they are busy with"),
            Field("last_interaction", "timestamp", "when we last spoke"),
        ),
    ),
    description="My partner: how they are, what they prefer, and what they are busy with.",
    kind="core",
)
TASK_LIST = Template(
    "task_list",
    Shape(
        "list",
        (
            Field("title", description="what is to be done", required=True),
            Field("done", "boolean", required=True, default=False),
            Field("priority", "number", "from 1, the highest, to 5", default=3),
            Field("due", "timestamp", "when it should be done"),
        ),
    ),
    description="What is to be done, and what has been.",
)
OBSERVATION_LOG = Template(
    "observation_log",
    Shape("log", (Field("observation", required=True), Field("context"))),
    description="What I noticed, newest first.",
    kind="log",
    permission="append",
)
ROLLING_LOG = Template(
    "rolling_log",
    Shape("log", clip=500),
    description="What happened, newest first. It is written by the system; I can only read it.",
    kind="log",
    permission="read_only",
)

TEMPLATES: Mapping[str, Template] = {
    each.name: each
    for each in (
        PERSONA,
        HUMAN,
        SCRATCHPAD,
        ORGANIZATION,
        PARTNER_PROFILE,
        TASK_LIST,
        OBSERVATION_LOG,
        ROLLING_LOG,
    )
}

TemplateLike = str | Template | type[Any] | Mapping[str, Any] | None
"""A template by its name, itself, a dataclass or a JSON schema."""


def find_template(given: TemplateLike, document: str | None = None) -> Template:
    """Return a template by name, dataclass or schema; without one that of a plain document."""
    if given is None or given == "":
        return Template("", check_shape(Shape("text" if document is None else document)))
    made = _resolve(given)
    if document is not None and document != made.shape.document:
        raise errors.TemplateError(
            f"the template {made.name!r} is a {made.shape.document}, not a {document}",
            hint="leave out document=",
        )
    return replace(made, shape=check_shape(made.shape))


def _resolve(given: TemplateLike) -> Template:
    if isinstance(given, Template):
        return given
    if isinstance(given, str):
        if given not in TEMPLATES:
            raise errors.TemplateError(
                f"{given!r:.80} is not a known template", hint=f"use one of {', '.join(TEMPLATES)}"
            )
        return TEMPLATES[given]
    if isinstance(given, type) and is_dataclass(given):
        return Template(given.__name__, of_dataclass(given), doc_of(given))
    if isinstance(given, Mapping):
        description = given.get("description")
        return Template(
            str(given.get("title", "custom")),
            of_schema(given),
            description if isinstance(description, str) else "",
        )
    raise errors.TemplateError(
        f"{given!r:.80} is not a valid template", hint="give a name, a Template, a dataclass or a JSON schema"
    )


# -- dataclasses --------------------------------------------------------------------------------

_TYPES: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    datetime: "timestamp",
    Any: "any",
}


def of_dataclass(kind: type[Any]) -> Shape:
    """Return the map that a dataclass describes, or a composite if all its fields are dataclasses.

    `field(metadata={"description": …, "read_only": True, "counter": True, "max_items": 9})` sets the rest.
    """
    try:
        hints = get_type_hints(kind)
    except (NameError, TypeError) as error:
        raise errors.TemplateError(f"the types of {kind.__name__} cannot be read: {error}") from None
    fields = dataclasses.fields(kind)
    if fields and all(is_dataclass(hints[each.name]) for each in fields):
        return Shape("composite", sections=tuple(_section(each, hints[each.name]) for each in fields))
    return Shape("map", tuple(_field(each, hints[each.name]) for each in fields))


def doc_of(kind: type[Any]) -> str:
    """Return the first line of a dataclass's docstring, unless Python generated it."""
    doc = (kind.__doc__ or "").strip()
    return "" if doc.startswith(f"{kind.__name__}(") else doc.partition("\n")[0]


def _section(field: dataclasses.Field[Any], kind: Any) -> SectionShape:
    return SectionShape(
        field.name, of_dataclass(kind), doc_of(kind), bool(field.metadata.get("read_only", False))
    )


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    type_, items, choices = _type_of(field.name, hint)
    said = field.metadata
    if said.get("counter"):
        if hint is not int:
            raise errors.TemplateError(f"{field.name} is a counter, so it must be an int")
        type_ = "counter"
    default = field.default
    if field.default_factory is not MISSING:
        default = field.default_factory()
    has_default = default is not MISSING
    return Field(
        field.name,
        type_,
        str(said.get("description", "")),
        required=not has_default,
        default=(default or None if type_ == "list" else default) if has_default else None,
        read_only=bool(said.get("read_only", False)),
        items=items,
        max_items=said.get("max_items"),
        choices=choices,
    )


def _strip_none(hint: Any) -> Any:
    """Return `T` for a hint of `T | None`, and any other hint as it is."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    rest = [each for each in get_args(hint) if each is not type(None)]
    return _strip_none(rest[0]) if len(rest) == 1 else hint


def _type_of(name: str, hint: Any) -> tuple[str, str, tuple[Any, ...]]:
    """Return the type of a field, the type of its items, and its choices."""
    hint = _strip_none(hint)
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Literal and len({type(each) for each in inside}) == 1 and type(inside[0]) in _TYPES:
        return _TYPES[type(inside[0])], "any", inside
    if hint is list or (origin is list and len(inside) == 1):
        type_, _, choices = _type_of(name, inside[0]) if inside else ("any", "", ())
        if type_ != "list":
            return "list", type_, choices
    if (isinstance(hint, type) or hint is Any) and hint in _TYPES:
        return _TYPES[hint], "any", ()
    raise errors.TemplateError(
        f"{name} cannot be of the type {hint!r:.80}",
        hint="use str, int, float, bool, datetime, Literal, a list of one of them, or one of them | None",
    )


# -- JSON schemas -------------------------------------------------------------------------------

_JSON = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean", "array": "list"}
_SAID = ("title", "description", "examples", "$schema", "$id")
_CHECKED = ("type", "default", "readOnly", "enum", "items", "maxItems", "format", "properties", "required")
_KNOWN = frozenset((*_SAID, *_CHECKED, "additionalProperties"))


def of_schema(schema: Mapping[str, Any]) -> Shape:
    """Return the shape that a JSON schema describes: an object is a map, an array a list, a string a text.

    An object of nothing but objects is a composite of sections.
    """
    _only_known(schema, "the schema")
    kind = schema.get("type", "object" if "properties" in schema else None)
    if kind == "string":
        return Shape("text")
    if kind == "array":
        return _list(schema)
    if kind != "object":
        raise errors.TemplateError(
            f"a block cannot be of the type {kind!r:.80}", hint="use object, array or string"
        )
    properties = _object(schema)
    if properties and all(each.get("type") == "object" for each in properties.values()):
        return Shape("composite", sections=tuple(_part(name, each) for name, each in properties.items()))
    return Shape("map", _properties(schema))


def _list(schema: Mapping[str, Any]) -> Shape:
    items = schema.get("items", {})
    most = schema.get("maxItems")
    if not isinstance(items, Mapping):
        raise errors.TemplateError("items must be one schema for all of them")
    if items.get("type") == "object":
        return Shape("list", _properties(items), max_items=most)
    return Shape("list", items=_property("items", items, False).type if items else "any", max_items=most)


def _part(name: str, schema: Mapping[str, Any]) -> SectionShape:
    return SectionShape(
        name, Shape("map", _properties(schema)), _description(schema), _flag(schema, "readOnly")
    )


def _properties(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    required = schema.get("required", ())
    properties = _object(schema)
    missing = [name for name in required if name not in properties]
    if missing:
        raise errors.TemplateError(f"{missing[0]!r:.80} is required, but is not one of the properties")
    return tuple(_property(name, each, name in required) for name, each in properties.items())


def _object(schema: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    _only_known(schema, "the schema")
    found = schema.get("properties", {})
    if not isinstance(found, Mapping) or not all(isinstance(each, Mapping) for each in found.values()):
        raise errors.TemplateError("properties must be a map of schemas")
    if not isinstance(schema.get("required", ()), list | tuple):
        raise errors.TemplateError("required must be a list of names")
    return found


def _property(name: str, schema: Mapping[str, Any], required: bool) -> Field:
    _only_known(schema, name)
    kind = schema.get("type")
    if kind is not None and (not isinstance(kind, str) or kind not in _JSON):
        raise errors.TemplateError(
            f"{name} cannot be of the type {kind!r:.80}", hint=f"use one of {', '.join(_JSON)}"
        )
    type_ = "any" if kind is None else _JSON[kind]
    if type_ == "text" and schema.get("format") == "date-time":
        type_ = "timestamp"
    items = schema.get("items", {})
    if not isinstance(items, Mapping):
        raise errors.TemplateError(f"items of {name} must be one schema for all of them")
    of = _property(f"{name} items", items, False) if items else Field(name, "any")
    choices = of.choices if type_ == "list" else tuple(schema.get("enum", ()))
    return Field(
        name,
        type_,
        _description(schema),
        required,
        schema.get("default"),
        _flag(schema, "readOnly"),
        of.type,
        schema.get("maxItems"),
        choices,
    )


def _description(schema: Mapping[str, Any]) -> str:
    found = schema.get("description", "")
    return found if isinstance(found, str) else ""


def _flag(schema: Mapping[str, Any], name: str) -> bool:
    return schema.get(name) is True


def _only_known(schema: Mapping[str, Any], where: str) -> None:
    unknown = sorted(key for key in schema if key not in _KNOWN)
    if unknown or schema.get("format", "date-time") != "date-time":
        raise errors.TemplateError(
            f"{where} has {unknown[0] if unknown else 'format'!r}, which a block cannot check",
            hint="leave it out, or check it before you write",
        )
