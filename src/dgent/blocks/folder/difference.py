"""What was edited in a file, done to a copy of the document that the file was written from.

The copy is then joined with the document as it is now: so what the file's edits and those of others have to
do with each other is decided by the document, as for any edits made at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgent.blocks import checking, errors
from dgent.blocks.document import Document
from dgent.blocks.editable import check_text
from dgent.blocks.folder import nodes
from dgent.blocks.folder.content import same
from dgent.blocks.folder.held import Held, HeldField, HeldItem
from dgent.blocks.folder.matching import matched, steps
from dgent.blocks.folder.wording import splices
from dgent.blocks.shape import BODY, Field, Shape, container, field_container
from dgent.errors import InputError

_WEIGHT = ("append", "overwrite", "delete")


class Difference:
    """The edits of a file: the copy they were done to, what leave they need, and which values they give."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.held: list[Held] = []
        self._needs: set[str] = set()

    @property
    def operation(self) -> str:
        """The operation that the edits are to the gate: the heaviest of them."""
        return max(self._needs, key=_WEIGHT.index, default="append")

    def needs(self, operation: str) -> None:
        """The edits need leave for this, too."""
        self._needs.add(operation)

    def apply(self, shape: Shape, before: Any, wanted: Any, section: str = "") -> None:
        """Make the copy hold what is wanted instead of what it holds; InputError when it may not."""
        name = container(section, BODY.get(shape.document, ""))
        if shape.document == "composite":
            self._sections(shape, before, checking.mapping(wanted))
        elif shape.document == "map":
            self._fields(shape, before, checking.mapping(wanted), section)
        elif shape.document == "text":
            self._text(before, check_text(wanted), name)
        elif shape.document == "counter":
            self._count(before, checking.whole(wanted), name)
        elif shape.document == "list":
            self._items(shape, before, _listed(wanted), name)
        elif shape.document == "tree":
            nodes.apply(self, shape, before, _listed(wanted), name)
        else:
            raise errors.WrongKind(f"a {shape.document} cannot be changed here")

    def _sections(self, shape: Shape, before: Any, wanted: Mapping[str, Any]) -> None:
        for name in wanted:
            shape.section(name)
        for section in shape.sections:
            if section.name not in wanted:
                raise errors.TemplateError(
                    f"the section {section.name} is missing", hint="a section can only be emptied"
                )
            if same(before[section.name], wanted[section.name]):
                continue
            if section.read_only:
                raise checking.read_only(f"the section {section.name}")
            self.apply(section.shape, before[section.name], wanted[section.name], section.name)

    def _text(self, before: str, wanted: str, name: str) -> None:
        self.needs("append" if wanted.startswith(before) else "overwrite")
        for each in reversed(splices(before, wanted)):
            self.document.splice(each.start, each.length, each.text, name)

    def _count(self, before: int, wanted: int, name: str) -> None:
        self.needs("append" if wanted > before else "overwrite")
        self.document.increment(wanted - before, name)

    # -- fields ---------------------------------------------------------------------------------

    def _fields(
        self, shape: Shape, before: Mapping[str, Any], wanted: Mapping[str, Any], section: str
    ) -> None:
        for name in sorted(before.keys() | wanted.keys()):
            if name in before and name in wanted and same(before[name], wanted[name]):
                continue
            field = shape.field(name)
            if field.read_only:
                raise checking.read_only(name)
            self._field(field, before.get(name), _given(field, wanted.get(name)), section)

    def _field(self, field: Field, before: Any, wanted: Any, section: str) -> None:
        where = field_container(section, field)
        if field.type == "list":
            self._plain_items(before or [], wanted or [], where)
        elif field.type == "counter":
            self._count(before or 0, wanted or 0, where)
        elif before is not None or wanted is not None:
            self.needs("overwrite")
            title = f"{section}.{field.name}" if section else field.name
            held = HeldField(title, before, wanted, field.name, container(section, BODY["map"]))
            self.held.append(held)
            held.write(self.document)

    # -- items ----------------------------------------------------------------------------------

    def _items(self, shape: Shape, before: list[Any], wanted: list[Any], name: str) -> None:
        if not shape.fields:
            self._plain_items(before, [checking.record(shape, each) for each in wanted], name)
            return
        source = matched(before, wanted)
        new: dict[int, Any] = {}
        for place, old in enumerate(source):
            if old is None:
                new[place] = checking.record(shape, wanted[place])
            elif not same(before[old], wanted[place]):
                given = _changed(before[old], checking.mapping(wanted[place]))
                made = checking.change(shape, before[old], given)
                self._item(old, before[old], made, place, name)
        self._arrange(len(before), source, new, name, True)

    def _item(self, number: int, before: Any, made: dict[str, Any], place: int, name: str) -> None:
        """Change fields of an item, before any of them is moved."""
        self.needs("overwrite")
        item = self.document.item_key(number, name)
        self.document.set_fields_of(item, made)
        title = next(
            (before[key] for key in ("title", "name") if isinstance(before.get(key), str)), number + 1
        )
        old = {key: before.get(key) for key in made}
        whole = {key: each for key, each in {**before, **made}.items() if each is not None}
        self.held.append(HeldItem(f"the item {title!r:.40}", old, made, item, whole, place, name))

    def _plain_items(self, before: list[Any], wanted: list[Any], name: str) -> None:
        """A changed item is a new one at its place: so no edit of another can take its place."""
        source = matched(before, wanted)
        new = {
            place: wanted[place]
            for place, old in enumerate(source)
            if old is None or not same(before[old], wanted[place])
        }
        if any(source[place] is not None for place in new):
            self.needs("overwrite")
        gone = len(before) - sum(old is not None for old in source)
        if gone:
            self.needs("delete")
        self._arrange(
            len(before), [None if place in new else old for place, old in enumerate(source)], new, name, False
        )

    def _arrange(
        self, count: int, source: list[int | None], new: Mapping[int, Any], name: str, fields: bool
    ) -> None:
        """Delete the items that are not wanted, put the new ones in, and bring all in order."""
        stay = {old for old in source if old is not None}
        for place in reversed(range(count)):
            if place not in stay:
                if fields:
                    self.needs("delete")
                self.document.delete_item(place, name)
        order = [("new", place) if old is None else ("old", old) for place, old in enumerate(source)]
        for step in steps([("old", old) for old in sorted(stay)], order):
            if step.start is not None:
                self.needs("overwrite")
                self.document.move_item(step.start, step.to, name)
                continue
            self.needs("append")
            value = new[step.item[1]]  # type: ignore[index]
            if fields:
                self.document.insert_map(step.to, value, name)
            else:
                self.document.insert_item(step.to, value, name)


def _given(field: Field, value: Any) -> Any:
    """A field's value from a file, as it is kept; one that is left out gets its default."""
    if value is None:
        value = field.default
    if value is None and field.required:
        raise errors.TemplateError(f"{field.name} is required", hint="give it a value", field=field.name)
    return None if value is None else checking.checked(field, value)


def _changed(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an item that are another, None for those that were taken away."""
    names = sorted(before.keys() | wanted.keys())
    return {name: wanted.get(name) for name in names if not same(before.get(name), wanted.get(name))}


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"a list is needed, not {value!r:.80}", hint="put it into [ ]")
    return value
