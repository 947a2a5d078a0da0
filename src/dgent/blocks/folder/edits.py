"""Find what was edited in a file, and apply it to a copy of the document that the file was written from.

The copy is then joined with the current document: so the document decides how the file's edits and those of
others merge, as for any concurrent edits.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from dgent.blocks import errors
from dgent.blocks.block import Block
from dgent.blocks.document import validate
from dgent.blocks.document.diff import equality_key
from dgent.blocks.document.document import Document
from dgent.blocks.document.shape import BODY, Field, Shape, container, field_container
from dgent.blocks.document.splice import count_common
from dgent.blocks.document.value import check_text
from dgent.blocks.edit import structured
from dgent.blocks.folder.format import is_same
from dgent.blocks.folder.state import LogLine
from dgent.blocks.folder.value import FileField, FileItem, FileNode, FileValue
from dgent.errors import InputError

MOST = 10_000  # pairs of changed items to compare
T = TypeVar("T", bound=Hashable)
TEXT = 100  # the weight of an equal text, against 1 of another equal value


def match_items(before: Sequence[Any], after: Sequence[Any]) -> list[int | None]:
    """Return, for each item after, the index of the item before that it is; None for a new one.

    Equal items are matched first, in order and then anywhere; then those between the same neighbours that are
    most alike, and then those anywhere that have a text in common.
    """
    left, right = list(map(equality_key, before)), list(map(equality_key, after))
    found: list[int | None] = [None] * len(after)
    free = set(range(len(before)))
    changed = []
    for tag, a, a_end, b, b_end in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            for step in range(a_end - a):
                found[b + step] = a + step
                free.discard(a + step)
        elif tag == "replace":
            changed.append((range(a, a_end), range(b, b_end)))
    where = defaultdict(list)
    for place in sorted(free, reverse=True):
        where[left[place]].append(place)
    for place, key in enumerate(right):
        if found[place] is None and where[key]:
            found[place] = where[key].pop()
    for old, new in changed:
        _pair(_free(old, found), _open(new, found), before, after, found, 1)
    _pair(_free(range(len(before)), found), _open(range(len(after)), found), before, after, found, TEXT)
    return found


def _free(places: Iterable[int], found: list[int | None]) -> list[int]:
    used = {each for each in found if each is not None}
    return [each for each in places if each not in used]


def _open(places: Iterable[int], found: list[int | None]) -> list[int]:
    return [each for each in places if found[each] is None]


def _pair(
    old: list[int],
    new: list[int],
    before: Sequence[Any],
    after: Sequence[Any],
    found: list[int | None],
    least: int,
) -> None:
    """Match changed items: those with most in common first, and items without fields in their order."""
    pairs: list[tuple[int, int, int]] = []
    if len(old) * len(new) <= MOST:
        pairs = [(-_likeness(before[a], after[b]), b, a) for a in old for b in new]
    for likeness, b, a in sorted(pairs):
        if -likeness >= least and a in old and b in new:
            found[b] = a
            old.remove(a)
            new.remove(b)
    if least > 1:
        return
    for a, b in zip(old, new, strict=False):
        if not isinstance(before[a], dict) and not isinstance(after[b], dict):
            found[b] = a


def _likeness(a: Any, b: Any) -> int:
    """Score how much two items have in common: equal fields, of which texts count most."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return 0
    same = [key for key in a.keys() & b.keys() if equality_key(a[key]) == equality_key(b[key])]
    return sum(TEXT if isinstance(a[key], str) and a[key] else 1 for key in same)


class Move(NamedTuple):
    """A move of an item to a place; `start` is None when it is new."""

    item: Hashable
    start: int | None
    to: int


def plan_moves(now: Sequence[Hashable], wanted: Sequence[Hashable]) -> Iterator[Move]:
    """Yield the moves that bring items into an order; all of `now` must be among the wanted ones."""
    order = list(now)
    place = {item: number for number, item in enumerate(order)}
    stay = find_rising([item for item in wanted if item in place], place)
    before: Hashable = None
    for number, item in enumerate(wanted):
        if item not in stay:
            start = order.index(item) if item in place else None
            if start is not None:
                del order[start]
            to = 0 if number == 0 else order.index(before) + 1
            order.insert(to, item)
            if start != to:
                yield Move(item, start, to)
        before = item


def find_rising(items: Sequence[T], place: Mapping[T, int]) -> set[T]:
    """Return the most items that can stay in place: the longest run whose places rise."""
    ends: list[int] = []  # the lowest place at the end of a run of each length
    last: list[T] = []
    previous: dict[T, T | None] = {}
    for item in items:
        at = bisect_left(ends, place[item])
        previous[item] = last[at - 1] if at else None
        ends[at : at + 1] = [place[item]]
        last[at : at + 1] = [item]
    stay: set[T] = set()
    step = last[-1] if last else None
    while step is not None:
        stay.add(step)
        step = previous[step]
    return stay


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


MOST_LINES = 1_000_000  # pairs to compare; larger differences are replaced as a whole
MOST_WORDS = 20_000
_WORDS = re.compile(r"\w+|\s|[^\w\s]")
_LINES = re.compile(r"[^\n]*\n|[^\n]+\Z")


class TextSplice(NamedTuple):
    """A replacement of part of a text; places count characters of the old text."""

    start: int
    length: int
    text: str


def find_splices(before: str, after: str) -> list[TextSplice]:
    """Return the splices that turn one text into another, from start to end."""
    left, right = _LINES.findall(before), _LINES.findall(after)
    found: list[TextSplice] = []
    keys = [_normalize_end(each) for each in left], [_normalize_end(each) for each in right]
    for start, old, new in _find_differences(left, right, *keys, MOST_LINES):
        found += _inside(start, "".join(old), "".join(new))
    return found


def _inside(start: int, old: str, new: str) -> Iterator[TextSplice]:
    """Yield the splices between some lines, by words."""
    if not old or not new:
        yield TextSplice(start, len(old), new)
        return
    left, right = _WORDS.findall(old), _WORDS.findall(new)
    for place, was, now in _find_differences(left, right, left, right, MOST_WORDS):
        yield TextSplice(start + place, len("".join(was)), "".join(now))


def _find_differences(
    left: Sequence[str], right: Sequence[str], left_keys: Sequence[str], right_keys: Sequence[str], most: int
) -> Iterator[tuple[int, Sequence[str], Sequence[str]]]:
    """Yield where two sequences differ: the character in the first, its parts, and their replacement."""
    places = [0, *accumulate(map(len, left))]
    for a, a_end, b, b_end in _gaps(left_keys, right_keys):
        old, new = left_keys[a:a_end], right_keys[b:b_end]
        if len(old) * len(new) > most:
            codes = [("replace", 0, len(old), 0, len(new))]
        else:
            # Blanks are everywhere, so equal blanks do not show that parts match.
            codes = list(difflib.SequenceMatcher(str.isspace, old, new, autojunk=False).get_opcodes())
        for tag, first, last, other, other_last in codes:
            if tag != "equal":
                yield places[a + first], left[a + first : a + last], right[b + other : b + other_last]


def _gaps(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the ranges between the parts that occur once on each side in the same order."""
    start = count_common(left, right)
    end = count_common(left[start:][::-1], right[start:][::-1])
    last, other_last = len(left) - end, len(right) - end
    once = _index_unique(right[start:other_last])
    pairs = {
        start + a: start + once[key] for key, a in _index_unique(left[start:last]).items() if key in once
    }
    a = b = start
    for place in sorted(find_rising(sorted(pairs), pairs)):
        yield a, place, b, pairs[place]
        a, b = place + 1, pairs[place] + 1
    yield a, last, b, other_last


def _index_unique(parts: Sequence[str]) -> dict[str, int]:
    """Return the index of each part that occurs once and is not blank."""
    counted = Counter(parts)
    return {each: place for place, each in enumerate(parts) if counted[each] == 1 and not each.isspace()}


def _normalize_end(line: str) -> str:
    return line[:-2] + "\n" if line.endswith("\r\n") else line


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
