"""Find what was edited in a file, and apply it to a copy of the document that the file was written from.

The copy is then joined with the current document: so the document decides how the file's edits and those of
others merge, as for any concurrent edits.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgent.blocks import errors
from dgent.blocks.block import Block
from dgent.blocks.document import validate
from dgent.blocks.document.diff import equality_key, match_items, plan_moves
from dgent.blocks.document.document import Document
from dgent.blocks.document.shape import BODY, Field, Shape, container, field_container
from dgent.blocks.document.splice import find_splices
from dgent.blocks.document.value import check_text
from dgent.blocks.edit import structured
from dgent.blocks.folder.format import is_same
from dgent.blocks.folder.state import LogLine
from dgent.errors import InputError

# -- entries of a log -------------------------------------------------------------------------


def find_added(before: Sequence[Any], wanted: Sequence[Any], taken: Sequence[LogLine]) -> list[Any]:
    """Return the entries that are new in a file, without those already applied from it.

    Raises PermissionDenied when an entry was changed or removed.
    """
    left, right = [equality_key(each) for each in before], [equality_key(each) for each in wanted]
    done = [equality_key(each.given) for each in taken]
    found = []
    for tag, _, _, start, end in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag in ("delete", "replace"):
            raise errors.PermissionDenied("entries of a log are never changed or removed")
        if tag == "insert":
            found += [(right[place], wanted[place]) for place in range(start, end)]
    fresh = []
    for key, entry in found:
        if key in done:
            done.remove(key)
        else:
            fresh.append(entry)
    return fresh


def build_entries(block: Block, given: Sequence[Any]) -> list[LogLine]:
    """Build the entries of a log from new ones: checked, and stamped with the time and the agent."""
    part, agent = block._part(), block._permissions.agent
    return [LogLine(each, structured.build_entry(part, each, agent)) for each in given]


def select_present(document: Document, taken: Sequence[LogLine]) -> list[LogLine]:
    """Return the entries that are in a log; the others were about to be added, and were not."""
    there = {equality_key(each) for each in document.entries()}
    return [each for each in taken if equality_key(each.kept) in there]


def append(document: Document, new: Sequence[LogLine]) -> None:
    """Append entries to a log."""
    for each in new:
        document.append_entry(each.kept)


# -- single values ----------------------------------------------------------------------------
# If somebody else has set another value since, the file's value wins. Texts, lists and counters merge; a
# single value cannot, so it is written again after the merge. The other one is reported, and still in the
# block's history.

GONE = object()


@dataclass(frozen=True)
class FileValue(ABC):
    """A value that a file sets at one place; None removes it. `where` names the place for people."""

    where: str
    before: Any
    wanted: Any

    @abstractmethod
    def now(self, document: Document) -> Any:
        """Return the current value; GONE when the place does not exist any more."""

    @abstractmethod
    def write(self, document: Document) -> None:
        """Set the wanted value."""

    def find_conflict(self, document: Document) -> str | None:
        """Describe what somebody else has set at the same place since; None if there is no conflict."""
        now = self.now(document)
        if now is GONE:
            return f"{self.where} was deleted in the database, and changed to {self.wanted!r:.60} in the file"
        if is_same(now, self.before) or is_same(now, self.wanted):
            return None
        return _describe_conflict(self.where, now, self.wanted)

    def settle(self, document: Document) -> bool:
        """Make the file's value win; False when its place is gone."""
        now = self.now(document)
        if now is GONE:
            return False
        if not is_same(now, self.wanted):
            self.write(document)
        return True


@dataclass(frozen=True)
class FileField(FileValue):
    """A field of a map."""

    key: str
    container: str

    def now(self, document: Document) -> Any:
        """Return the current value of the field."""
        return document.fields(self.container).get(self.key)

    def write(self, document: Document) -> None:
        """Set or remove the field."""
        if self.wanted is None:
            document.delete_field(self.key, self.container)
        else:
            document.set_field(self.key, self.wanted, self.container)


@dataclass(frozen=True)
class FileItem(FileValue):
    """Fields of an item of a list, which may have moved; a deleted item is inserted again."""

    item: str
    whole: dict[str, Any]
    place: int
    container: str

    def now(self, document: Document) -> Any:
        """Return the current values of the fields."""
        found = document.item_fields(self.item)
        return GONE if found is None else {key: found.get(key) for key in self.wanted}

    def find_conflict(self, document: Document) -> str | None:
        """Describe what somebody else has set in the same fields since; None if there is no conflict."""
        now = self.now(document)
        if now is GONE:
            return f"{self.where} was deleted in the database; it is there again, as the file has it"
        conflicts = [
            _describe_conflict(f"{key} of {self.where}", each, self.wanted[key])
            for key, each in now.items()
            if not is_same(each, self.before[key]) and not is_same(each, self.wanted[key])
        ]
        return "; ".join(conflicts) or None

    def settle(self, document: Document) -> bool:
        """Make the file's values win; a deleted item is inserted again."""
        if self.now(document) is GONE:
            place = min(self.place, document.count_items(self.container))
            document.insert_map(place, self.whole, self.container)
            return True
        return super().settle(document)

    def write(self, document: Document) -> None:
        """Set the fields."""
        document.set_fields_of(self.item, self.wanted)


@dataclass(frozen=True)
class FileNode(FileValue):
    """A field of a node of a tree."""

    key: str
    node: str
    container: str

    def now(self, document: Document) -> Any:
        """Return the current value of the field."""
        if not document.has_node(self.node, self.container):
            return GONE
        return document.node_data(self.node, self.container).get(self.key)

    def write(self, document: Document) -> None:
        """Set or remove the field."""
        document.set_node(self.node, {self.key: self.wanted}, self.container)


def _describe_conflict(where: str, now: Any, wanted: Any) -> str:
    return f"{where} became {now!r:.60} in the database; the file's {wanted!r:.60} counts"


# -- all edits of a file ----------------------------------------------------------------------

_WEIGHT = ("append", "overwrite", "delete")


class FileEdits:
    """The edits of a file: the edited copy, the permission they need, and the single values they set."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.values: list[FileValue] = []
        self._needs: set[str] = set()

    @property
    def operation(self) -> str:
        """The operation to check permission for: the one that needs most."""
        return max(self._needs, key=_WEIGHT.index, default="append")

    def needs(self, operation: str) -> None:
        """Add an operation that the edits need permission for."""
        self._needs.add(operation)

    def apply(self, shape: Shape, before: Any, wanted: Any, section: str = "") -> None:
        """Change the copy from one content to another; raises InputError when that is not allowed."""
        name = container(section, BODY.get(shape.document, ""))
        if shape.document == "composite":
            self._sections(shape, before, validate.check_mapping(wanted))
        elif shape.document == "map":
            self._fields(shape, before, validate.check_mapping(wanted), section)
        elif shape.document == "text":
            self._text(before, check_text(wanted), name)
        elif shape.document == "counter":
            self._count(before, validate.check_count(wanted), name)
        elif shape.document == "list":
            self._items(shape, before, _check_list(wanted), name)
        elif shape.document == "tree":
            apply_tree(self, shape, before, _check_list(wanted), name)
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
            if is_same(before[section.name], wanted[section.name]):
                continue
            if section.read_only:
                raise validate.read_only_error(f"the section {section.name}")
            self.apply(section.shape, before[section.name], wanted[section.name], section.name)

    def _text(self, before: str, wanted: str, name: str) -> None:
        self.needs("append" if wanted.startswith(before) else "overwrite")
        for each in reversed(find_splices(before, wanted)):
            self.document.splice(each.start, each.length, each.text, name)

    def _count(self, before: int, wanted: int, name: str) -> None:
        self.needs("append" if wanted > before else "overwrite")
        self.document.increment(wanted - before, name)

    # -- fields ---------------------------------------------------------------------------------

    def _fields(
        self, shape: Shape, before: Mapping[str, Any], wanted: Mapping[str, Any], section: str
    ) -> None:
        for name in sorted(before.keys() | wanted.keys()):
            if name in before and name in wanted and is_same(before[name], wanted[name]):
                continue
            field = shape.field(name)
            if field.read_only:
                raise validate.read_only_error(name)
            self._field(field, before.get(name), _check_field(field, wanted.get(name)), section)

    def _field(self, field: Field, before: Any, wanted: Any, section: str) -> None:
        where = field_container(section, field)
        if field.type == "list":
            self._plain_items(before or [], wanted or [], where)
        elif field.type == "counter":
            self._count(before or 0, wanted or 0, where)
        elif before is not None or wanted is not None:
            self.needs("overwrite")
            title = f"{section}.{field.name}" if section else field.name
            held = FileField(title, before, wanted, field.name, container(section, BODY["map"]))
            self.values.append(held)
            held.write(self.document)

    # -- items ----------------------------------------------------------------------------------

    def _items(self, shape: Shape, before: list[Any], wanted: list[Any], name: str) -> None:
        if not shape.fields:
            self._plain_items(before, [validate.check_record(shape, each) for each in wanted], name)
            return
        source = match_items(before, wanted)
        new: dict[int, Any] = {}
        for place, old in enumerate(source):
            if old is None:
                new[place] = validate.check_record(shape, wanted[place])
            elif not is_same(before[old], wanted[place]):
                given = _diff_fields(before[old], validate.check_mapping(wanted[place]))
                made = validate.check_change(shape, before[old], given)
                self._item(old, before[old], made, place, name)
        self._arrange(len(before), source, new, name, True)

    def _item(self, number: int, before: Any, made: dict[str, Any], place: int, name: str) -> None:
        """Change fields of an item, before any item is moved."""
        self.needs("overwrite")
        item = self.document.item_key(number, name)
        self.document.set_fields_of(item, made)
        title = next(
            (before[key] for key in ("title", "name") if isinstance(before.get(key), str)), number + 1
        )
        old = {key: before.get(key) for key in made}
        whole = {key: each for key, each in {**before, **made}.items() if each is not None}
        self.values.append(FileItem(f"the item {title!r:.40}", old, made, item, whole, place, name))

    def _plain_items(self, before: list[Any], wanted: list[Any], name: str) -> None:
        """Replace changed items by new ones in place, so that no concurrent edit can overwrite them."""
        source = match_items(before, wanted)
        new = {
            place: wanted[place]
            for place, old in enumerate(source)
            if old is None or not is_same(before[old], wanted[place])
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
        """Delete the items that are not wanted, insert the new ones, and bring all into order."""
        stay = {old for old in source if old is not None}
        for place in reversed(range(count)):
            if place not in stay:
                if fields:
                    self.needs("delete")
                self.document.delete_item(place, name)
        order = [("new", place) if old is None else ("old", old) for place, old in enumerate(source)]
        for step in plan_moves([("old", old) for old in sorted(stay)], order):
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


def _check_field(field: Field, value: Any) -> Any:
    """Return a field's value from a file as it is stored; a missing one gets its default."""
    if value is None:
        value = field.default
    if value is None and field.required:
        raise errors.TemplateError(f"{field.name} is required", hint="give it a value", field=field.name)
    return None if value is None else validate.check_value(field, value)


def _diff_fields(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an item that differ; None for those that were removed."""
    names = sorted(before.keys() | wanted.keys())
    return {name: wanted.get(name) for name in names if not is_same(before.get(name), wanted.get(name))}


def _check_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"expected a list, got {value!r:.80}", hint="put it into [ ]")
    return value


# -- trees ------------------------------------------------------------------------------------

_PARTS = {"id", "data", "children"}
Placed = dict[str, tuple[str | None, dict[str, Any]]]
"""Nodes by id: the parent of each, and its fields."""


def apply_tree(edits: FileEdits, shape: Shape, before: list[Any], wanted: list[Any], name: str) -> None:
    """Change a tree: nodes are added and moved first, and then those left over are deleted."""
    old = {id: (above, data) for id, above, data, _ in _walk(before, None)}
    new = _check_nodes(wanted, old)
    document = edits.document
    order: dict[str | None, list[str]] = {}
    made: set[str] = set()

    def place(nodes: list[Any], above: str | None) -> None:
        order[above] = []
        for node in nodes:
            id = node.get("id")
            if id is None:
                edits.needs("append")
                id = document.add_node(above, validate.check_record(shape, node.get("data", {})), name)
                made.add(id)
            elif old[id][0] != above:
                edits.needs("overwrite")
                document.move_node(id, above, name)
            order[above].append(id)
            place(node.get("children", []), id)

    place(wanted, None)
    for id, (_, data) in new.items():
        if not is_same(old[id][1], data):
            _set_node(edits, shape, id, old[id][1], data, name)
    gone = [id for id in old if id not in new]
    for id in gone:
        edits.needs("delete")
        if document.has_node(id, name):  # else it was deleted with its parent
            document.delete_node(id, name)
    _arrange(edits, order, made, name)


def _check_nodes(wanted: list[Any], old: Placed) -> Placed:
    """Return the nodes of a file that existed before, each once."""
    found: Placed = {}
    for id, above, data, node in _walk(wanted, None):
        if not node.keys() <= _PARTS:
            raise InputError(f"a node has id, data and children, not {sorted(node.keys() - _PARTS)[0]!r:.80}")
        if id is None:
            continue
        if id not in old:
            raise InputError(f"the node {id!r:.80} does not exist", hint="leave out the id of a new node")
        if id in found:
            raise InputError(f"the node {id!r:.80} is there twice", hint="leave out the id of the copy")
        found[id] = (above, data)
    return found


def _walk(nodes: Any, above: str | None) -> Iterator[tuple[Any, str | None, dict[str, Any], dict[str, Any]]]:
    if not isinstance(nodes, list):
        raise InputError(f"expected a list of nodes, got {nodes!r:.80}")
    for node in nodes:
        if not isinstance(node, dict) or not isinstance(node.get("id"), str | None):
            raise InputError(f"a node has id, data and children, so it cannot be {node!r:.80}")
        yield node.get("id"), above, validate.check_mapping(node.get("data", {})), node
        yield from _walk(node.get("children", []), node.get("id"))


def _set_node(
    edits: FileEdits, shape: Shape, id: str, old: dict[str, Any], new: dict[str, Any], name: str
) -> None:
    edits.needs("overwrite")
    names = sorted(old.keys() | new.keys())
    given = {key: new.get(key) for key in names if not is_same(old.get(key), new.get(key))}
    made = validate.check_change(shape, old, given)
    edits.document.set_node(id, made, name)
    for key, value in made.items():
        edits.values.append(FileNode(f"{key} of the node {id}", old.get(key), value, key, id, name))


def _arrange(edits: FileEdits, order: dict[str | None, list[str]], made: set[str], name: str) -> None:
    """Bring the children of each node into their order."""
    now: dict[str | None, list[str]] = {}
    for id, above, _, _ in _walk(edits.document.nodes(name), None):
        now.setdefault(above, []).append(id)
    for above, wanted in order.items():
        for step in plan_moves(now.get(above, []), wanted):
            edits.needs("append" if step.item in made else "overwrite")
            edits.document.move_node(str(step.item), above, name, step.to)
