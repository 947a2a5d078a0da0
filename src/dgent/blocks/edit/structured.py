"""Edits of fields, items, entries, nodes and counters, each by the rules of the shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgent import clock
from dgent.blocks import errors
from dgent.blocks.document import validate
from dgent.blocks.document.document import Document
from dgent.blocks.document.entries import count_expired
from dgent.blocks.document.render import STAMPS, entry_line
from dgent.blocks.document.shape import Field, field_container
from dgent.blocks.edit.edit import Edit, Part

# -- maps and counters ----------------------------------------------------------------------------


def set_field(part: Part, name: str, value: Any) -> Edit:
    """Build the edit that sets a field of a map; in a list field only the items that differ are changed."""
    field = _writable_field(part, name, "set_field")
    return _write_field("set_field", part, field, validate.check_value(field, value))


def clear_field(part: Part, name: str) -> Edit:
    """Build the edit that resets a field to its default, or empties it when it has none."""
    field = _writable_field(part, name, "clear_field")
    wanted = None if field.default is None else validate.check_value(field, field.default)
    if wanted is None and field.required:
        raise errors.TemplateError(f"{name} is required", hint="give it another value", field=name)
    return _write_field("clear_field", part, field, wanted)


def _write_field(op: str, part: Part, field: Field, value: Any) -> Edit:
    """Build the edit that writes a field; None empties it."""
    where, fields = field_container(part.section, field), part.body

    def change(document: Document) -> None:
        if field.type == "list":
            document.write_items([] if value is None else value, where)
        elif field.type == "counter":
            document.increment((0 if value is None else value) - document.count(where), where)
        elif value is None:
            document.delete_field(field.name, fields)
        else:
            document.set_field(field.name, value, fields)

    return Edit(op, "overwrite", change, sequence=where if field.type == "list" else "")


def append_to_field(part: Part, name: str, value: Any) -> Edit:
    """Build the edit that adds an item to the end of a list field."""
    field = _list_field(part, name, "append_to_field")
    wanted, where = validate.check_item(field, value), field_container(part.section, field)

    def change(document: Document) -> None:
        document.insert_item(document.count_items(where), wanted, where)

    return Edit("append_to_field", "append", change)


def remove_from_field(part: Part, name: str, place: int) -> Edit:
    """Build the edit that removes the item at a place of a list field."""
    field = _list_field(part, name, "remove_from_field")
    item = _Item(place, field_container(part.section, field))

    def change(document: Document) -> None:
        document.delete_item(item.find(document), item.list)

    return Edit("remove_from_field", "delete", change)


def increment(part: Part, name: str | None, amount: int) -> Edit:
    """Build the edit that adds to a counter or a counter field."""
    if name is None:
        part.require_kind("counter", "increment")
        where = part.body
    else:
        field = _writable_field(part, name, "increment")
        if field.type != "counter":
            raise errors.WrongKind(f"increment is for counters; {name} is a {field.type}")
        where = field_container(part.section, field)
    wanted = validate.check_count(amount)

    def change(document: Document) -> None:
        validate.check_count(document.count(where) + wanted)
        document.increment(wanted, where)

    return Edit("increment", "append" if wanted >= 0 else "overwrite", change)


def _writable_field(part: Part, name: str, operation: str) -> Field:
    part.require_kind("map", operation)
    field = part.shape.field(name)
    if field.read_only:
        raise validate.read_only_error(name)
    return field


def _list_field(part: Part, name: str, operation: str) -> Field:
    field = _writable_field(part, name, operation)
    if field.type != "list":
        raise errors.WrongKind(f"{operation} is for lists; {name} is a {field.type}")
    return field


# -- lists ------------------------------------------------------------------------------------


def insert_item(part: Part, value: Any, place: int | None = None) -> Edit:
    """Build the edit that inserts an item into a list, at the end when `place` is not given."""
    part.require_kind("list", "insert_item")
    wanted, name = validate.check_record(part.shape, value), part.body
    target = None if place is None else _Target(place)

    def change(document: Document) -> None:
        count = document.count_items(name)
        where = count if target is None else target.find(count + 1)
        if part.shape.fields:
            document.insert_map(where, wanted, name)
        else:
            document.insert_item(where, wanted, name)

    return Edit("insert_item", "append", change)


def set_item(part: Part, place: int, value: Any) -> Edit:
    """Build the edit that replaces an item; of one with fields only the given fields."""
    part.require_kind("list", "set_item")
    shape, name, item = part.shape, part.body, _Item(place, part.body)
    wanted = validate.check_mapping(value) if shape.fields else validate.check_record(shape, value)

    def change(document: Document) -> None:
        where = item.find(document)
        if shape.fields:
            before = document.items(name)[where]
            document.set_item_fields(where, validate.check_change(shape, before, wanted), name)
        else:
            document.set_item(where, wanted, name)

    return Edit("set_item", "overwrite", change)


def move_item(part: Part, place: int, to: int) -> Edit:
    """Build the edit that moves an item of a list to another place."""
    part.require_kind("list", "move_item")
    item, target = _Item(place, part.body), _Target(to)

    def change(document: Document) -> None:
        where = item.find(document)
        document.move_item(where, target.find(document.count_items(item.list)), item.list)

    return Edit("move_item", "overwrite", change)


def delete_item(part: Part, place: int) -> Edit:
    """Build the edit that removes an item of a list."""
    part.require_kind("list", "delete_item")
    item = _Item(place, part.body)

    def change(document: Document) -> None:
        document.delete_item(item.find(document), item.list)

    return Edit("delete_item", "delete", change)


class _Item:
    """The item that an edit means: the one at a place when the edit is first made.

    An edit that is made again, because the history it built on was compacted, finds the same one.
    """

    def __init__(self, place: int, list: str) -> None:
        self.list = list
        self._place, self._id = place, ""

    def find(self, document: Document) -> int:
        """Return the place of the item in a document; raises NoMatch when it is not there."""
        count = document.count_items(self.list)
        if not self._id:
            where = _check_index(self._place, count)
            self._id = document.item_id(where, self.list)
            return where
        for where in range(count):
            if document.item_id(where, self.list) == self._id:
                return where
        raise errors.NoMatch(
            f"the item at {self._place} was moved or removed meanwhile", hint="read the block again"
        )


class _Target:
    """The place that an edit puts an item at; the last one, if there are fewer when it is made again."""

    def __init__(self, place: int) -> None:
        self._place, self._found = place, -1

    def find(self, count: int) -> int:
        """Return the place among `count`; raises NoMatch when it was not valid at first."""
        if self._found < 0:
            self._found = _check_index(self._place, count)
        return min(self._found, count - 1)


def _check_index(place: object, count: int) -> int:
    """Return a place among `count` items, counted from the end below 0; raises NoMatch."""
    if type(place) is not int or not -count <= place < count:
        raise errors.NoMatch(f"{place!r} is not a valid place among {count}")
    return place % count


# -- logs -------------------------------------------------------------------------------------


def build_entry(part: Part, value: Any, agent: str) -> dict[str, Any]:
    """Return an entry of a log, checked and stamped with the time and the agent."""
    part.require_kind("log", "log")
    first = part.shape.fields[0].name if part.shape.fields else "message"
    given = dict(value) if isinstance(value, Mapping) else {first: value}
    if not given.keys().isdisjoint(STAMPS):
        raise errors.TemplateError("an entry is stamped with at and agent, so it cannot have them")
    stamped = {**validate.check_record(part.shape, given), "at": clock.text(clock.now()), "agent": agent}
    size = len(entry_line(stamped, part.shape.clip))
    if size > part.limit:
        raise errors.LimitExceeded(
            f"the entry has {size} characters; the limit of {part.title} is {part.limit}",
            size=size,
            limit=part.limit,
        )
    return stamped


def append_entry(part: Part, entry: dict[str, Any], op: str = "log") -> Edit:
    """Build the edit that adds an entry to the end of a log."""
    name = part.body

    def change(document: Document) -> None:
        document.append_entry(entry, name)
        document.add_to_tally(len(entry_line(entry)), 0)

    return Edit(op, "append", change)


def trim(part: Part) -> Edit:
    """Build the edit that removes expired entries.

    It is a consequence of an append, so it needs no further permission.
    """
    name = part.body

    def change(document: Document) -> None:
        many = count_expired(part.shape, document, name)
        if many:
            old = [entry_line(document.entry(place, name)) for place in range(many)]
            document.trim_entries(many, name)
            document.add_to_tally(0, sum(map(len, old)))

    return Edit("trim", "append", change, message="by rule")


# -- trees ------------------------------------------------------------------------------------


def add_node(
    part: Part, data: Mapping[str, Any], parent: str | None, place: int | None, made: list[str]
) -> Edit:
    """Build the edit that adds a node below another one or at the top; its id is added to `made`."""
    part.require_kind("tree", "add_node")
    wanted, name = validate.check_record(part.shape, validate.check_mapping(data)), part.body

    def change(document: Document) -> None:
        made.append(document.add_node(parent, wanted, name, place))

    return Edit("add_node", "append", change)


def set_node(part: Part, id: str, data: Mapping[str, Any]) -> Edit:
    """Build the edit that changes the given fields of a node; None removes one."""
    part.require_kind("tree", "set_node")
    shape, name = part.shape, part.body
    given = validate.check_mapping(data)

    def change(document: Document) -> None:
        document.set_node(id, validate.check_change(shape, document.node_data(id, name), given), name)

    return Edit("set_node", "overwrite", change)


def move_node(part: Part, id: str, parent: str | None, place: int | None) -> Edit:
    """Build the edit that moves a node, with everything below it."""
    part.require_kind("tree", "move_node")
    name = part.body
    return Edit("move_node", "overwrite", lambda document: document.move_node(id, parent, name, place))


def delete_node(part: Part, id: str) -> Edit:
    """Build the edit that deletes a node with everything below it."""
    part.require_kind("tree", "delete_node")
    name = part.body
    return Edit("delete_node", "delete", lambda document: document.delete_node(id, name))
