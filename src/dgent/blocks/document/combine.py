"""Combine documents whose histories do not meet any more, by the operations that brought what they hold.

Copies of a document know the same operations by the same ids. A letter that two copies hold stays; one that
only one of them holds was deleted in the other if that knows its operation, and is new otherwise. What is
blank in one copy was redacted there, and is blank in the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgent.blocks.document.document import Document
from dgent.blocks.document.operations import Operation, OpId, build_document, read_operations
from dgent.blocks.document.redact import LINE_ENDS, MARK

Element = tuple[OpId, Any]
_BLANKS: dict[str, Any] = {
    "Text": "\N{REPLACEMENT CHARACTER}",
    "List": {"redacted": True},
    "MovableList": MARK,
}
"""The replacements of redacted letters and items, by the kind of sequence."""


@dataclass(frozen=True)
class Combined:
    """The document that several come to, and whether all of it could be decided."""

    document: Document
    sure: bool


@dataclass(frozen=True)
class _Sequence:
    """A text or a list as its letters or items, and the operations that its document knows."""

    kind: str
    elements: list[Element]
    known: Mapping[int, int]

    @classmethod
    def read(cls, document: Document, name: str, kind: str) -> _Sequence:
        return cls(kind, document.elements(name, kind), document.operations())

    def knows(self, id: OpId) -> bool:
        return id[1] < self.known.get(id[0], 0)

    def join(self, other: _Sequence) -> _Sequence:
        """Add what is new in another copy, after the element that it follows there; drop what it deleted."""
        here, there = dict(self.elements), dict(other.elements)
        new: dict[OpId | None, list[Element]] = {}
        last = None
        for id, value in other.elements:
            if id in here:
                last = id
            elif not self.knows(id):
                new.setdefault(last, []).append((id, value))
        joined = new.get(None, [])[:]
        for id, value in self.elements:
            if id in there:
                joined.append((id, _take_blanks(value, there[id])))
            elif not other.knows(id):
                joined.append((id, value))
            joined += new.get(id, ())
        return _Sequence(self.kind, joined, _unite([self.known, other.known]))

    def blank(self, redacted: Sequence[Mapping[int, tuple[int, int]]]) -> list[Element]:
        """Return its elements, blank where redacted operations brought them."""

        def look(id: OpId, value: Any) -> Any:
            peer, counter = id
            spans = (each[peer] for each in redacted if peer in each)
            gone = value not in LINE_ENDS if self.kind == "Text" else True
            return _BLANKS[self.kind] if gone and any(a <= counter < b for a, b in spans) else value

        return [(id, look(id, value)) for id, value in self.elements]


class _LostText:
    """A text that is gone, as far as the operations that were made to it say what was in it, and where."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._letters: list[Element | None] = []  # None is a letter that is not known
        self.deleted: set[OpId] = set()
        for operation in operations:
            if operation.content["type"] == "insert":
                self._insert(operation)
            elif operation.content["type"] == "delete":
                self._delete(operation.content)
        unknown = (place for place, each in enumerate(self._letters) if each is None)
        first = next(unknown, len(self._letters))
        self.start = [each for each in self._letters[:first] if each is not None]
        self.rest = [each for each in self._letters[first:] if each is not None]

    def _insert(self, operation: Operation) -> None:
        content, (peer, counter) = operation.content, operation.id
        values = content["text"] if "text" in content else content["value"]
        self._letters += [None] * (content["pos"] - len(self._letters))
        self._letters[content["pos"] : content["pos"]] = [
            ((peer, counter + step), value) for step, value in enumerate(values)
        ]

    def _delete(self, content: Mapping[str, Any]) -> None:
        (peer, counter), length = content["start"], abs(content["len"])
        self.deleted |= {(peer, counter + step) for step in range(length)}
        start = content["pos"] + min(0, content["len"] + 1)
        del self._letters[start : start + length]

    def ends_with_rest(self, length: int) -> bool:
        """Check whether all that is not at its start is at its end, if it had a length."""
        end = self._letters[len(self._letters) - len(self.rest) :]
        return not self.rest or (len(self._letters) == length and None not in end)


def combine(
    documents: Sequence[Document], updates: Sequence[bytes], length: int, redacted: Iterable[bytes], peer: int
) -> Combined:
    """Combine documents to one that holds what all of them hold, and what updates brought to none of them.

    The updates build on what none of the documents has any more; the text had a `length` after the last one.
    What they wrote at its start goes to the start, all else to the end: it is sure to have been there only if
    the text ended with it. `redacted` are updates whose texts were blanked. What has to be written is
    written under the peer id.
    """
    documents = sorted(documents, key=lambda each: sum(each.operations().values()), reverse=True)
    main, others = documents[0].fork(), documents[1:]
    main.write_as(peer)
    operations = [each for update in updates for each in read_operations(update)]
    spans = [Document().spans(update) for update in redacted]
    roots = _find_roots(documents, operations)
    sure = all(each.name for each in operations)  # else they are on parts of items or nodes
    texts: dict[str, list[Element]] = {}
    for name, kind in sorted(roots.items()):
        new = [each for each in operations if each.name == name]
        if kind in _BLANKS:
            joined, decided = _join_sequences([main, *others], name, kind, _LostText(new), length)
            texts[name] = joined.blank(spans)
            main.write_elements(name, kind, texts[name])
        else:
            decided = _add_values(main, others, name, kind, new)
        sure = sure and decided
    if set(roots.values()) != {"Text"}:
        return Combined(main, sure)
    # Letters that keep their ids can be combined with more copies.
    known = [*(each.operations() for each in documents), *map(_find_ends, updates)]
    return Combined(build_document(_unite(known), texts, peer), sure)


def _find_roots(documents: Sequence[Document], operations: Iterable[Operation]) -> dict[str, str]:
    roots = {name: kind for each in reversed(documents) for name, kind in each.roots().items()}
    return roots | {each.name: each.kind for each in operations if each.name}


def _find_ends(update: bytes) -> dict[int, int]:
    """Return the operations of an update: for each peer the counter after the last one."""
    return {peer: end for peer, (_, end) in Document().spans(update).items()}


def _unite(known: Iterable[Mapping[int, int]]) -> dict[int, int]:
    united: dict[int, int] = {}
    for each in known:
        united |= {peer: max(end, united.get(peer, 0)) for peer, end in each.items()}
    return united


def _join_sequences(
    documents: Sequence[Document], name: str, kind: str, lost: _LostText, length: int
) -> tuple[_Sequence, bool]:
    first, *others = (_Sequence.read(each, name, kind) for each in documents)
    for each in others:
        first = first.join(each)
    stay = [each for each in first.elements if each[0] not in lost.deleted]
    joined = _Sequence(kind, [*lost.start, *stay, *lost.rest], first.known)
    # The items of a list may have been moved or replaced, and how many there were is not known.
    return joined, lost.ends_with_rest(length) if kind == "Text" else len(documents) == 1


def _take_blanks(mine: Any, theirs: Any) -> Any:
    """Return a value, with what is blank in another copy of it."""
    if theirs in _BLANKS.values():
        return theirs
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return {key: _take_blanks(each, theirs.get(key)) for key, each in mine.items()}
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        return [*map(_take_blanks, mine, theirs)]
    return mine


def _add_values(
    main: Document, others: Iterable[Document], name: str, kind: str, operations: Iterable[Operation]
) -> bool:
    """Add to fields, a counter or a tree what only other copies have; False when that may be wrong."""
    known, before = main.operations(), main.value().get(name)
    sure = True
    for other in others:
        is_ahead = any(end > known.get(peer, 0) for peer, end in other.operations().items())
        if kind == "Map":
            _add_fields(main, other, name, is_ahead)
        elif kind == "Tree":
            _add_nodes(main, other, name, is_ahead)
        sure = sure and not is_ahead
    for operation in operations:
        if kind == "Map" and operation.content["type"] == "insert":
            main.set_field(operation.content["key"], operation.content["value"], name)
        elif kind == "Counter":
            main.increment(round(operation.content["value"]), name)
    return sure and main.value().get(name) == before


def _add_fields(main: Document, other: Document, name: str, is_ahead: bool) -> None:
    mine, theirs = main.fields(name), other.fields(name)
    new = {key: each for key, each in theirs.items() if is_ahead and key not in mine}
    blank = {key: _take_blanks(each, theirs.get(key)) for key, each in mine.items()}
    for key, value in (new | blank).items():
        if value != mine.get(key):
            main.set_field(key, value, name)


def _add_nodes(main: Document, other: Document, name: str, is_ahead: bool) -> None:
    for id, theirs in other.nodes_by_id(name).items():
        if main.has_node(id, name):
            mine = main.node_data(id, name)
            main.set_node(id, _take_blanks(mine, theirs), name)
    if is_ahead:
        main.add_missing_nodes(other, name)


def remove_redacted(document: Document, others: Sequence[Document]) -> bool:
    """Blank in a document what is blank in others; False when it may hold more that was redacted there.

    That is so when one of the others has deleted a part: whether it was blank before is not known any more.
    """
    for name, kind in document.roots().items():
        if kind not in _BLANKS:
            return False
        elements = document.elements(name, kind)
        for other in (_Sequence.read(each, name, kind) for each in others):
            there = dict(other.elements)
            if any(id not in there and other.knows(id) for id, _ in elements):
                return False
            elements = [(id, _take_blanks(value, there.get(id))) for id, value in elements]
        document.write_elements(name, kind, elements)
    return True


def merge_sequence(document: Document, other: Document, name: str) -> None:
    """Merge into a text, or a list whose items stay in order, what was edited in another copy of it."""
    kind = other.roots()[name]
    mine, theirs = (_Sequence.read(each, name, kind) for each in (document, other))
    document.write_elements(name, kind, mine.join(theirs).elements)
