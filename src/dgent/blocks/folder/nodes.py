"""The nodes of a tree, as they were edited in a file: each is known by its id, and one without is new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dgent.blocks import checking
from dgent.blocks.folder.content import same
from dgent.blocks.folder.held import HeldNode
from dgent.blocks.folder.matching import steps
from dgent.blocks.shape import Shape
from dgent.errors import InputError

if TYPE_CHECKING:
    from dgent.blocks.folder.difference import Difference

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
                id = document.add_node(above, checking.record(shape, node.get("data", {})), name)
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
        yield node.get("id"), above, checking.mapping(node.get("data", {})), node
        yield from _walk(node.get("children", []), node.get("id"))


def _set(
    edits: Difference, shape: Shape, id: str, old: dict[str, Any], new: dict[str, Any], name: str
) -> None:
    edits.needs("overwrite")
    names = sorted(old.keys() | new.keys())
    given = {key: new.get(key) for key in names if not same(old.get(key), new.get(key))}
    made = checking.change(shape, old, given)
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
