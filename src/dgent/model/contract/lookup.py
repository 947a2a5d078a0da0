"""Data under a contract as queries see it: the paths, defaults filled in, decimals as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from dgent import codec
from dgent.errors import QueryError
from dgent.model import ref
from dgent.model.contract.node import (
    ContractNode,
    LeafNode,
    LinkNode,
    ListNode,
    MapNode,
    RecordField,
    RecordNode,
    TupleNode,
    UnionNode,
    reach,
)
from dgent.model.contract.scalar import KINDS, Kind, value_of
from dgent.model.path import EACH, MISSING, Path, read, text
from dgent.model.where import Condition, Negated, Part, is_map, refusal

_REMEMBERED = 1024  # paths: a map has as many as callers care to ask for

Defaults = tuple[Any, ...] | None
"""The values that a missing one may be read as; None when that depends on the record."""


class Lookup:
    """A contract as queries use it."""

    def __init__(self, root: RecordNode, label: str) -> None:
        self._root, self._label = root, label
        nodes = list(reach(root))
        own = {node for node in nodes if _kind_of(node) is not None or _optional(node)}
        self._active = {node for node in nodes if not own.isdisjoint(reach(node))}
        # Of each record: the fields with a default, and those whose data is looked into.
        self._records = {
            node: (
                frozenset(name for name, field in node.fields.items() if field.default is not None),
                tuple((name, each.node) for name, each in node.fields.items() if each.node in self._active),
            )
            for node in nodes
            if isinstance(node, RecordNode)
        }
        self._top = self._records[root]
        self._made: dict[int, Any] = {}  # defaults by their field, made when a record lacks one
        self._found: dict[Path, tuple[Kind | None, Defaults]] = {}
        self._checked: set[Path] = set()

    # -- data -----------------------------------------------------------------------------

    def see(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the data with defaults for what is missing, and values for the texts that stand for them."""
        # Runs for each record that is compared, and mostly there is nothing to do.
        optional, deep = self._top
        return data if not deep and optional <= data.keys() else self._see_record(self._root, data)

    def _see(self, node: ContractNode, data: Any) -> Any:
        if node not in self._active:
            return data
        if isinstance(node, RecordNode):
            return self._see_record(node, data) if is_map(data) else data
        if isinstance(node, UnionNode):
            picked = node.pick(data)
            return data if picked is None else self._see(picked, data)
        if isinstance(node, LeafNode):
            kind = _kind_of(node)
            return data if kind is None else value_of(kind, data)
        return self._see_items(node, data)

    def _see_items(self, node: ContractNode, data: Any) -> Any:
        if isinstance(node, MapNode) and is_map(data):
            return {key: self._see(node.item, item) for key, item in data.items()}
        if isinstance(node, ListNode) and isinstance(data, list):
            return [self._see(node.item, item) for item in data]
        if isinstance(node, TupleNode) and isinstance(data, list) and len(data) == len(node.below):
            return [self._see(below, item) for below, item in zip(node.below, data, strict=True)]
        return data

    def _see_record(self, record: RecordNode, data: Mapping[str, Any]) -> Mapping[str, Any]:
        optional, deep = self._records[record]
        changed: dict[str, Any] = {}
        if not optional <= data.keys():
            for name in optional - data.keys():
                made = self._default(record.fields[name])
                if made is not MISSING:
                    changed[name] = self._see(record.fields[name].node, made)
        for name, node in deep:
            if name in data and (seen := self._see(node, data[name])) is not data[name]:
                changed[name] = seen
        return {**data, **changed} if changed else data

    def _default(self, field: RecordField) -> Any:
        """Return a default as it would be stored; MISSING for one made anew each time, such as an id."""
        found = self._made.get(id(field), ...)
        if found is ...:
            assert field.default is not None
            try:
                found, again = (codec.plain(field.default(), enc_hook=ref.encode_hook) for _ in range(2))
                found = found if codec.canonical(found) == codec.canonical(again) else MISSING
            except Exception:  # a factory that fails gives no record a value
                found = MISSING
            self._made[id(field)] = found
        return found

    # -- paths ----------------------------------------------------------------------------

    def kind(self, path: Path) -> Kind | None:
        """Return the kind of value that the texts at a path stand for."""
        return self.at(path)[0]

    def defaults(self, path: Path) -> Defaults:
        """Return the defaults that a value missing at a path may be read as; empty when it stays missing."""
        return self.at(path)[1]

    def at(self, path: Path) -> tuple[Kind | None, Defaults]:
        """Return the kind and the defaults at a path."""
        found = self._found.get(path)
        if found is None:
            if len(self._found) > _REMEMBERED:
                self._found.clear()
            kinds = {_kind_of(node) for node in self._nodes(path)} - {None}
            found = self._found[path] = next(iter(kinds), None), self._defaults(path)
        return found

    def outline(self, path: Path) -> tuple[Kind | None, tuple[Any, ...]] | None:
        """Return the kind and the defaults at a path, if queries see nothing else there but what is stored.

        None where they see more, as defaults inside of a value.
        """
        kind, defaults = self.at(path)
        deep = any(node in self._active and not isinstance(node, LeafNode) for node in self._nodes(path))
        if deep or defaults is None or (EACH in path and (kind is not None or defaults)):
            return None
        return kind, defaults

    def _defaults(self, path: Path) -> Defaults:
        field = self._root.fields.get(path[0])
        if len(path) == 1 and field is not None and field.default is not None:
            made = self._default(field)
            return () if made is MISSING else (self._see(field.node, made),)
        for place, segment in enumerate(path):
            for node in self._nodes(path[:place]):
                found = node.fields.get(segment) if isinstance(node, RecordNode) else None
                if found is not None and found.default is not None and self._gives(found, path[place + 1 :]):
                    return None
        return ()

    def _gives(self, field: RecordField, below: Path) -> bool:
        """Return whether a field's default may have a value at a path below it; an empty map has none."""
        made = self._default(field)
        if made is MISSING:
            return False
        return EACH in below or read(made, below) is not MISSING

    def check(self, parts: tuple[Part, ...], order: Path | None) -> None:
        """Refuse conditions and an order that no record of the contract can have."""
        if order is not None:
            self._check_path("order_by", order)
        for part in parts:
            if isinstance(part, Condition):
                self._check_path("where", part.path)
                self._check_operand(part)
            else:
                self.check((part.part,) if isinstance(part, Negated) else part.parts, None)

    def _check_path(self, field: str, path: Path) -> None:
        if path in self._checked:
            return
        for place in range(1, len(path) + 1):
            if not self._nodes(path[:place]):
                raise self._unknown(field, path[:place])
        if len(self._checked) < _REMEMBERED:
            self._checked.add(path)

    def _unknown(self, field: str, path: Path) -> QueryError:
        above = [node for node in self._nodes(path[:-1]) if isinstance(node, RecordNode)]
        names = ", ".join(dict.fromkeys(name for node in above for name in node.fields))
        hint = f"its fields are {names}" if names else f"nothing is below {text(path[:-1])}"
        return refusal(field, f"names {text(path)}, which {self._label} does not have", hint)

    def _check_operand(self, condition: Condition) -> None:
        """Refuse a map where the contract has none: most likely an operator without its `$`."""
        if condition.op not in ("$eq", "$ne") or type(condition.value) is not dict:
            return
        if all(
            isinstance(node, LeafNode | LinkNode | ListNode | TupleNode)
            for node in self._nodes(condition.path)
        ):
            raise refusal(
                "where",
                f"compares {text(condition.path)} with a map, and {self._label} has none there",
                "operators start with $, as in $gte",
            )

    def _nodes(self, path: Path) -> list[ContractNode]:
        """Return the places of the contract that a path may lead to."""
        here = _open_union(self._root)
        for segment in path:
            here = [node for above in here for node in _below(above, segment)]
        return here


def _open_union(node: ContractNode) -> list[ContractNode]:
    """Return the node, or for a union its members."""
    return (
        [each for below in node.below for each in _open_union(below)]
        if isinstance(node, UnionNode)
        else [node]
    )


def _below(node: ContractNode, segment: str) -> list[ContractNode]:
    if isinstance(node, RecordNode):
        found = node.fields[segment].node if segment in node.fields else node.rest
        return [] if found is None else _open_union(found)
    if isinstance(node, MapNode):
        return _open_union(node.item)
    if isinstance(node, ListNode | TupleNode):
        if segment != EACH and not (segment.isascii() and segment.isdigit()):
            return []
        if isinstance(node, ListNode):
            return _open_union(node.item)
        inside = node.below if segment == EACH else node.below[int(segment) : int(segment) + 1]
        return [each for below in inside for each in _open_union(below)]
    return [node] if type(node) is ContractNode else []


def _kind_of(node: ContractNode) -> Kind | None:
    if not isinstance(node, LeafNode):
        return None
    return next((KINDS[part] for part in _parts(node.hint) if part in KINDS), None)


def _parts(hint: Any) -> list[Any]:
    """Return a type and everything inside it: the members of a union, what is annotated."""
    return [
        hint,
        *(part for arg in get_args(hint) if isinstance(arg, type) or get_args(arg) for part in _parts(arg)),
    ]


def _optional(node: ContractNode) -> bool:
    return isinstance(node, RecordNode) and any(field.default is not None for field in node.fields.values())
