"""What was edited in a file, done to a copy of the document that the file was written from.

The copy is then joined with the document as it is now: so what the file's edits and those of others have to
do with each other is decided by the document, as for any edits made at the same time.
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
from dgent.blocks.document.diff import sameness
from dgent.blocks.document.document import ENTRIES, Document
from dgent.blocks.document.entries import expired
from dgent.blocks.document.render import STAMPS, entry_line
from dgent.blocks.document.shape import BODY, Field, Shape, container, field_container
from dgent.blocks.document.splice import common
from dgent.blocks.edit.editable import check_text
from dgent.blocks.folder.format import same
from dgent.blocks.folder.state import Line
from dgent.blocks.folder.value import Held, HeldField, HeldItem, HeldNode
from dgent.errors import InputError

MOST = 10_000  # pairs of changed items to compare
T = TypeVar("T", bound=Hashable)
TEXT = 100  # what a text in common counts, against another value


def matched(before: Sequence[Any], after: Sequence[Any]) -> list[int | None]:
    """For each item after, which one before it is; None for one that is new.

    Items that are equal first, in order and then anywhere; then those between the same neighbours which are
    most alike, and then those anywhere that have a text in common.
    """
    left, right = list(map(sameness, before)), list(map(sameness, after))
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
    """How much two items have in common: fields that agree, and a text counts for more than a number."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return 0
    same = [key for key in a.keys() & b.keys() if sameness(a[key]) == sameness(b[key])]
    return sum(TEXT if isinstance(a[key], str) and a[key] else 1 for key in same)


class Step(NamedTuple):
    """An item that goes to a place: from one before, or from nowhere when it is new."""

    item: Hashable
    start: int | None
    to: int


def steps(now: Sequence[Hashable], wanted: Sequence[Hashable]) -> Iterator[Step]:
    """What brings items into an order; those of `now` must be among the wanted ones."""
    order = list(now)
    place = {item: number for number, item in enumerate(order)}
    stay = rising([item for item in wanted if item in place], place)
    before: Hashable = None
    for number, item in enumerate(wanted):
        if item not in stay:
            start = order.index(item) if item in place else None
            if start is not None:
                del order[start]
            to = 0 if number == 0 else order.index(before) + 1
            order.insert(to, item)
            if start != to:
                yield Step(item, start, to)
        before = item


def rising(items: Sequence[T], place: Mapping[T, int]) -> set[T]:
    """As many items as can stay where they are: the longest run of them whose places rise."""
    ends: list[int] = []  # the lowest place that a run of each length ends with
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


def added(before: Sequence[Any], wanted: Sequence[Any], taken: Sequence[Line]) -> list[Any]:
    """The entries that are new in a file; those that were taken in before it was written again are not."""
    left, right = [sameness(each) for each in before], [sameness(each) for each in wanted]
    done = [sameness(each.given) for each in taken]
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


def made(block: Block, given: Sequence[Any]) -> list[Line]:
    """New entries as a log keeps them: checked, and stamped with the time and the agent."""
    found = []
    for entry in given:
        fields = dict(entry) if isinstance(entry, Mapping) else {block._first_field(): entry}
        if not fields.keys().isdisjoint(STAMPS):
            raise errors.TemplateError("a new entry is stamped with at and agent, so it cannot have them")
        kept = block._stamped(validate.record(block.shape, fields), None)
        size = len(entry_line(kept, block.shape.clip))
        if size > block.limit:
            raise errors.LimitExceeded(f"an entry has {size} characters; the limit is {block.limit}")
        found.append(Line(entry, kept))
    return found


def those_in(document: Document, taken: Sequence[Line]) -> list[Line]:
    """Those of some entries that are in a log: the others were about to come there, and did not."""
    there = {sameness(each) for each in document.entries()}
    return [each for each in taken if sameness(each.kept) in there]


def append(document: Document, new: Sequence[Line]) -> None:
    """Put entries at the end of a log."""
    for each in new:
        document.append_entry(each.kept)


async def trim(block: Block, by: str | None) -> None:
    """Take out what is too old by the rule of the log."""
    if expired(block.shape, block._held(), ENTRIES):
        await block._trim(ENTRIES, by)


MOST_LINES = 1_000_000  # pairs to compare; what differs in more is replaced as a whole
MOST_WORDS = 20_000
_WORDS = re.compile(r"\w+|\s|[^\w\s]")
_LINES = re.compile(r"[^\n]*\n|[^\n]+\Z")


class Splice(NamedTuple):
    """A part of a text that becomes another one; places count characters."""

    start: int
    length: int
    text: str


def splices(before: str, after: str) -> list[Splice]:
    """What makes one text of another, from its start to its end."""
    left, right = _LINES.findall(before), _LINES.findall(after)
    found: list[Splice] = []
    keys = [_ended(each) for each in left], [_ended(each) for each in right]
    for start, old, new in _differing(left, right, *keys, MOST_LINES):
        found += _inside(start, "".join(old), "".join(new))
    return found


def _inside(start: int, old: str, new: str) -> Iterator[Splice]:
    """The difference of some lines, by words."""
    if not old or not new:
        yield Splice(start, len(old), new)
        return
    left, right = _WORDS.findall(old), _WORDS.findall(new)
    for place, was, now in _differing(left, right, left, right, MOST_WORDS):
        yield Splice(start + place, len("".join(was)), "".join(now))


def _differing(
    left: Sequence[str], right: Sequence[str], left_keys: Sequence[str], right_keys: Sequence[str], most: int
) -> Iterator[tuple[int, Sequence[str], Sequence[str]]]:
    """Where two sequences differ: at which character of the first, what is there, and what comes instead."""
    places = [0, *accumulate(map(len, left))]
    for a, a_end, b, b_end in _gaps(left_keys, right_keys):
        old, new = left_keys[a:a_end], right_keys[b:b_end]
        if len(old) * len(new) > most:
            codes = [("replace", 0, len(old), 0, len(new))]
        else:
            # Blanks are everywhere: what they seem to have in common says nothing.
            codes = list(difflib.SequenceMatcher(str.isspace, old, new, autojunk=False).get_opcodes())
        for tag, first, last, other, other_last in codes:
            if tag != "equal":
                yield places[a + first], left[a + first : a + last], right[b + other : b + other_last]


def _gaps(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """What is between the parts that are there once on each side, in the same order: those stay."""
    start = common(left, right)
    end = common(left[start:][::-1], right[start:][::-1])
    last, other_last = len(left) - end, len(right) - end
    once = _once(right[start:other_last])
    pairs = {start + a: start + once[key] for key, a in _once(left[start:last]).items() if key in once}
    a = b = start
    for place in sorted(rising(sorted(pairs), pairs)):
        yield a, place, b, pairs[place]
        a, b = place + 1, pairs[place] + 1
    yield a, last, b, other_last


def _once(parts: Sequence[str]) -> dict[str, int]:
    """Where each part is that is there once, and says something."""
    counted = Counter(parts)
    return {each: place for place, each in enumerate(parts) if counted[each] == 1 and not each.isspace()}


def _ended(line: str) -> str:
    return line[:-2] + "\n" if line.endswith("\r\n") else line


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
            self._sections(shape, before, validate.mapping(wanted))
        elif shape.document == "map":
            self._fields(shape, before, validate.mapping(wanted), section)
        elif shape.document == "text":
            self._text(before, check_text(wanted), name)
        elif shape.document == "counter":
            self._count(before, validate.whole(wanted), name)
        elif shape.document == "list":
            self._items(shape, before, _listed(wanted), name)
        elif shape.document == "tree":
            apply(self, shape, before, _listed(wanted), name)
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
                raise validate.read_only(f"the section {section.name}")
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
                raise validate.read_only(name)
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
            self._plain_items(before, [validate.record(shape, each) for each in wanted], name)
            return
        source = matched(before, wanted)
        new: dict[int, Any] = {}
        for place, old in enumerate(source):
            if old is None:
                new[place] = validate.record(shape, wanted[place])
            elif not same(before[old], wanted[place]):
                given = _changed(before[old], validate.mapping(wanted[place]))
                made = validate.change(shape, before[old], given)
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
    return None if value is None else validate.checked(field, value)


def _changed(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an item that are another, None for those that were taken away."""
    names = sorted(before.keys() | wanted.keys())
    return {name: wanted.get(name) for name in names if not same(before.get(name), wanted.get(name))}


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"a list is needed, not {value!r:.80}", hint="put it into [ ]")
    return value


_PARTS = {"id", "data", "children"}
Placed = dict[str, tuple[str | None, dict[str, Any]]]
"""Nodes by id: what is above each, and its fields."""


def apply(edits: Difference, shape: Shape, before: list[Any], wanted: list[Any], name: str) -> None:
    """Make a tree what is wanted: nodes are added and moved first, and then those left over are deleted."""
    old = {id: (above, data) for id, above, data, _ in _walk(before, None)}
    new = _checked(wanted, old)
    document = edits.document
    order: dict[str | None, list[str]] = {}
    made: set[str] = set()

    def place(nodes: list[Any], above: str | None) -> None:
        order[above] = []
        for node in nodes:
            id = node.get("id")
            if id is None:
                edits.needs("append")
                id = document.add_node(above, validate.record(shape, node.get("data", {})), name)
                made.add(id)
            elif old[id][0] != above:
                edits.needs("overwrite")
                document.move_node(id, above, name)
            order[above].append(id)
            place(node.get("children", []), id)

    place(wanted, None)
    for id, (_, data) in new.items():
        if not same(old[id][1], data):
            _set(edits, shape, id, old[id][1], data, name)
    gone = [id for id in old if id not in new]
    for id in gone:
        edits.needs("delete")
        if document.has_node(id, name):  # else it went with the one above it
            document.delete_node(id, name)
    _arrange(edits, order, made, name)


def _checked(wanted: list[Any], old: Placed) -> Placed:
    """The nodes of a file that were there before, each once."""
    found: Placed = {}
    for id, above, data, node in _walk(wanted, None):
        if not node.keys() <= _PARTS:
            raise InputError(f"a node has id, data and children, not {sorted(node.keys() - _PARTS)[0]!r:.80}")
        if id is None:
            continue
        if id not in old:
            raise InputError(f"there is no node {id!r:.80}", hint="leave out the id of a new node")
        if id in found:
            raise InputError(f"the node {id!r:.80} is there twice", hint="leave out the id of the copy")
        found[id] = (above, data)
    return found


def _walk(nodes: Any, above: str | None) -> Iterator[tuple[Any, str | None, dict[str, Any], dict[str, Any]]]:
    if not isinstance(nodes, list):
        raise InputError(f"nodes are a list, not {nodes!r:.80}")
    for node in nodes:
        if not isinstance(node, dict) or not isinstance(node.get("id"), str | None):
            raise InputError(f"a node has id, data and children, so it cannot be {node!r:.80}")
        yield node.get("id"), above, validate.mapping(node.get("data", {})), node
        yield from _walk(node.get("children", []), node.get("id"))


def _set(
    edits: Difference, shape: Shape, id: str, old: dict[str, Any], new: dict[str, Any], name: str
) -> None:
    edits.needs("overwrite")
    names = sorted(old.keys() | new.keys())
    given = {key: new.get(key) for key in names if not same(old.get(key), new.get(key))}
    made = validate.change(shape, old, given)
    edits.document.set_node(id, made, name)
    for key, value in made.items():
        edits.held.append(HeldNode(f"{key} of the node {id}", old.get(key), value, key, id, name))


def _arrange(edits: Difference, order: dict[str | None, list[str]], made: set[str], name: str) -> None:
    """Bring the nodes below each node into their order."""
    now: dict[str | None, list[str]] = {}
    for id, above, _, _ in _walk(edits.document.nodes(name), None):
        now.setdefault(above, []).append(id)
    for above, wanted in order.items():
        for step in steps(now.get(above, []), wanted):
            edits.needs("append" if step.item in made else "overwrite")
            edits.document.move_node(str(step.item), above, name, step.to)
