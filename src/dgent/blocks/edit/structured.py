"""Edits of fields, items, entries, nodes and counters, each by the rules of the shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgent.blocks import errors
from dgent.blocks.document import validate
from dgent.blocks.document.document import Document
from dgent.blocks.document.entries import count_expired
from dgent.blocks.document.render import STAMPS, entry_line
from dgent.blocks.document.shape import Field, field_container
from dgent.blocks.edit.editable import Change, Editable, check_index
from dgent.blocks.history.version import Version


class FieldEdits(Editable):
    """The edits of a map and of a counter."""

    async def set_field(
        self, name: str, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Set a field of a map; in a list field only the items that differ are changed."""
        field = self._writable_field(name, "set_field")
        wanted = validate.check_value(field, value)
        return await self._edit(
            "set_field", "overwrite", self._build_field_change(field, wanted), by, message, expect
        )

    async def clear_field(
        self, name: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Reset a field to its default, or empty it when it has none."""
        field = self._writable_field(name, "clear_field")
        wanted = None if field.default is None else validate.check_value(field, field.default)
        if wanted is None and field.required:
            raise errors.TemplateError(f"{name} is required", hint="give it another value", field=name)
        return await self._edit(
            "clear_field", "overwrite", self._build_field_change(field, wanted), by, message, expect
        )

    async def append_to_field(
        self, name: str, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Add an item to the end of a list field."""
        field = self._list_field(name, "append_to_field")
        wanted, place = validate.check_item(field, value), field_container(self._part, field)

        def change(document: Document) -> None:
            document.insert_item(document.count_items(place), wanted, place)

        return await self._edit("append_to_field", "append", change, by, message, expect)

    async def remove_from_field(
        self, name: str, place: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Remove the item at a place of a list field."""
        field = self._list_field(name, "remove_from_field")
        where = field_container(self._part, field)

        def change(document: Document) -> None:
            document.delete_item(check_index(place, document.count_items(where)), where)

        return await self._edit("remove_from_field", "delete", change, by, message, expect)

    async def increment(
        self,
        name: str | None = None,
        amount: int = 1,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Add to a counter or a counter field; concurrent increments add up.

        Counting up is an append; counting down removes something and is an overwrite.
        """
        if name is None:
            self._require_kind("counter", "increment")
            where = self._body()
        else:
            field = self._writable_field(name, "increment")
            if field.type != "counter":
                raise errors.WrongKind(f"increment is for counters; {name} is a {field.type}")
            where = field_container(self._part, field)
        wanted = validate.check_count(amount)

        def change(document: Document) -> None:
            validate.check_count(document.count(where) + wanted)
            document.increment(wanted, where)

        return await self._edit(
            "increment", "append" if wanted >= 0 else "overwrite", change, by, message, expect
        )

    def _writable_field(self, name: str, operation: str) -> Field:
        self._require_kind("map", operation)
        field = self._shape.field(name)
        if field.read_only:
            raise validate.read_only_error(name)
        return field

    def _list_field(self, name: str, operation: str) -> Field:
        field = self._writable_field(name, operation)
        if field.type != "list":
            raise errors.WrongKind(f"{operation} is for lists; {name} is a {field.type}")
        return field

    def _build_field_change(self, field: Field, value: Any) -> Change:
        """Build the change that sets a field; None empties it."""
        where, fields = field_container(self._part, field), self._body()

        def change(document: Document) -> None:
            if field.type == "list":
                document.write_items([] if value is None else value, where)
            elif field.type == "counter":
                document.increment((0 if value is None else value) - document.count(where), where)
            elif value is None:
                document.delete_field(field.name, fields)
            else:
                document.set_field(field.name, value, fields)

        return change


class ItemEdits(Editable):
    """The edits of a list and of a log."""

    async def insert_item(
        self,
        value: Any,
        place: int | None = None,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Insert an item into a list, at the end when `place` is not given."""
        self._require_kind("list", "insert_item")
        wanted, name = validate.check_record(self._shape, value), self._body()

        def change(document: Document) -> None:
            count = document.count_items(name)
            where = count if place is None else check_index(place, count + 1)
            if self._shape.fields:
                document.insert_map(where, wanted, name)
            else:
                document.insert_item(where, wanted, name)

        return await self._edit("insert_item", "append", change, by, message, expect)

    async def set_item(
        self, place: int, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Replace an item; of an item with fields only the given fields, and None removes one."""
        self._require_kind("list", "set_item")
        shape, name = self._shape, self._body()
        wanted = validate.check_mapping(value) if shape.fields else validate.check_record(shape, value)

        def change(document: Document) -> None:
            where = check_index(place, document.count_items(name))
            if shape.fields:
                before = document.items(name)[where]
                document.set_item_fields(where, validate.check_change(shape, before, wanted), name)
            else:
                document.set_item(where, wanted, name)

        return await self._edit("set_item", "overwrite", change, by, message, expect)

    async def move_item(
        self, place: int, to: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Move an item of a list to another place."""
        self._require_kind("list", "move_item")
        name = self._body()

        def change(document: Document) -> None:
            count = document.count_items(name)
            document.move_item(check_index(place, count), check_index(to, count), name)

        return await self._edit("move_item", "overwrite", change, by, message, expect)

    async def delete_item(
        self, place: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Remove an item of a list."""
        self._require_kind("list", "delete_item")
        name = self._body()

        def change(document: Document) -> None:
            document.delete_item(check_index(place, document.count_items(name)), name)

        return await self._edit("delete_item", "delete", change, by, message, expect)

    async def log(self, entry: Any, *, by: str | None = None, message: str = "") -> Version:
        """Add an entry to a log, stamped with the time and the agent."""
        return await self._log("log", entry, by, message)

    async def _log(self, op: str, entry: Any, by: str | None, message: str) -> Version:
        self._require_kind("log", "log")
        given = dict(entry) if isinstance(entry, Mapping) else {self._first_field(): entry}
        if not given.keys().isdisjoint(STAMPS):
            raise errors.TemplateError("an entry is stamped with at and agent, so it cannot have them")
        stamped, name = self._stamp(validate.check_record(self._shape, given), by), self._body()
        size = len(entry_line(stamped, self._shape.clip))
        if size > self.limit:
            raise errors.LimitExceeded(
                f"the entry has {size} characters; the limit of {self._title()} is {self.limit}",
                size=size,
                limit=self.limit,
            )

        def change(document: Document) -> None:
            document.append_entry(stamped, name)
            document.add_to_tally(len(entry_line(stamped)), 0)

        done = await self._edit(op, "append", change, by, message, None)
        if count_expired(self._shape, self._get_document(), name):
            await self._trim(name, by)
        return done

    async def _trim(self, name: str, by: str | None) -> None:
        """Remove expired entries; a consequence of the append, so it needs no further permission."""

        def change(document: Document) -> None:
            many = count_expired(self._shape, document, name)
            if many:
                old = [entry_line(document.entry(place, name)) for place in range(many)]
                document.trim_entries(many, name)
                document.add_to_tally(0, sum(map(len, old)))

        await self._edit("trim", "append", change, by, "by rule", None)

    def _first_field(self) -> str:
        return self._shape.fields[0].name if self._shape.fields else "message"


class NodeEdits(Editable):
    """The edits of a tree."""

    async def add_node(
        self,
        data: Mapping[str, Any],
        parent: str | None = None,
        place: int | None = None,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> str:
        """Add a node below another one or at the top, last when `place` is not given; returns its id."""
        self._require_kind("tree", "add_node")
        wanted, name = validate.check_record(self._shape, validate.check_mapping(data)), self._body()
        made: list[str] = []

        def change(document: Document) -> None:
            made.append(document.add_node(parent, wanted, name, place))

        await self._edit("add_node", "append", change, by, message, expect)
        return made[-1]

    async def set_node(
        self,
        id: str,
        data: Mapping[str, Any],
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Change the given fields of a node; None removes one."""
        self._require_kind("tree", "set_node")
        shape, name = self._shape, self._body()
        given = validate.check_mapping(data)

        def change(document: Document) -> None:
            document.set_node(id, validate.check_change(shape, document.node_data(id, name), given), name)

        return await self._edit("set_node", "overwrite", change, by, message, expect)

    async def move_node(
        self,
        id: str,
        parent: str | None = None,
        place: int | None = None,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Move a node below another one or to the top, with everything below it."""
        self._require_kind("tree", "move_node")
        name = self._body()
        return await self._edit(
            "move_node",
            "overwrite",
            lambda document: document.move_node(id, parent, name, place),
            by,
            message,
            expect,
        )

    async def delete_node(
        self, id: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Delete a node with everything below it."""
        self._require_kind("tree", "delete_node")
        name = self._body()
        return await self._edit(
            "delete_node", "delete", lambda document: document.delete_node(id, name), by, message, expect
        )
