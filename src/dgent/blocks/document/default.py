"""The first content of a block: the given value, and the defaults of its shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dgent.blocks import errors
from dgent.blocks.access import permission
from dgent.blocks.document import validate
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import render_document
from dgent.blocks.document.shape import BODY, Shape, container, dump_shape, field_container, load_shape
from dgent.blocks.document.template import Template
from dgent.blocks.document.value import check_text
from dgent.blocks.record import BlockRecord


def new_header(template: Template, **fields: Any) -> BlockRecord:
    """Build the header of a new block from the given fields, and the template for the rest."""
    header = BlockRecord(
        owner="",
        label="",
        kind=template.kind,
        document=template.shape.document,
        description=template.description,
        template=template.name,
        shape=dump_shape(template.shape),
        limit=template.limit,
        permission=permission.check_permission(template.permission),
    )
    return replace(header, **fields)


def first_content(header: BlockRecord, value: Any) -> tuple[Document, int]:
    """Return the first document of a block, and its length in characters."""
    shape, document = load_shape(header.document, header.shape), Document()
    fill(shape, document, value)
    size = len(render_document(shape, document, header.limit))
    if size > header.limit:
        raise errors.LimitExceeded(f"the content has {size} characters; the limit is {header.limit}")
    document.take_update()  # raises if it is too large, before the block is created
    return document, size


def fill(shape: Shape, document: Document, value: Any = None, section: str = "") -> None:
    """Put content into an empty document; without a value only the defaults."""
    kind = shape.document
    name = container(section, BODY.get(kind, ""))
    if kind == "composite":
        _fill_sections(shape, document, _mapping(value))
    elif kind == "map":
        _fill_fields(shape, document, _mapping(value), section)
    elif value is None:
        return
    elif kind == "text":
        document.splice(0, 0, check_text(value), name)
    elif kind == "counter":
        document.increment(validate.check_count(value), name)
    elif kind == "list":
        for place, each in enumerate(_several(value)):
            made = validate.check_record(shape, each)
            if shape.fields:
                document.insert_map(place, made, name)
            else:
                document.insert_item(place, made, name)
        validate.check_growth({name: (0, 0)}, validate.measure(shape, document, section))
    else:
        raise errors.TemplateError(f"a {kind} begins empty", hint="add to it after creating it")


def _fill_sections(shape: Shape, document: Document, value: Mapping[str, Any]) -> None:
    for name in value:
        shape.section(name)
    for each in shape.sections:
        fill(each.shape, document, value.get(each.name), each.name)


def _fill_fields(shape: Shape, document: Document, value: Mapping[str, Any], section: str) -> None:
    if not shape.fields:
        for key, each in value.items():
            document.set_field(shape.field(key).name, each, container(section, BODY["map"]))
        return
    for name, each in validate.check_record(shape, value).items():
        field = shape.field(name)
        if field.type == "list":
            document.write_items(each, field_container(section, field))
        elif field.type == "counter":
            document.increment(each, field_container(section, field))
        else:
            document.set_field(name, each, container(section, BODY["map"]))


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise errors.TemplateError(f"expected a map by name as the content, got {value!r:.80}")
    return value


def _several(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise errors.TemplateError(f"expected a list of items as the content, got {value!r:.80}")
    return list(value)
