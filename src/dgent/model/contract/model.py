"""Pydantic models in contracts; pydantic itself is never imported, the caller has it.

dgent reads and writes the fields whose types it knows as it does those of a dataclass, so that queries,
indexes and links work alike. Pydantic validates the result, and converts the fields of other types.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypedDict

import msgspec

from dgent.errors import SchemaError
from dgent.model import path, ref
from dgent.model.contract.node import (
    BAD,
    ContractNode,
    Errors,
    KindUnionNode,
    LeafNode,
    LinkNode,
    ListNode,
    MapNode,
    RecordNode,
    TaggedUnionNode,
    TupleNode,
    UnionNode,
    check_map,
    explain,
    note_error,
    reach,
)

_OLDEST = (2, 11)  # the first that validates by the names of fields, whatever their aliases are


class ModelNode(RecordNode):
    """A pydantic model; `foreign` are the fields of types that only pydantic knows."""

    def __init__(self, hint: Any) -> None:
        super().__init__(hint)
        self.foreign: set[str] = set()
        if self.made.model_config.get("extra") == "allow":
            self.rest = ContractNode()

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        if not check_map(data, at, errors):
            return BAD
        wrong: Errors = {}
        values = {key: data[key] for key in data.keys() - self.fields.keys()} if self.rest else {}
        for name, field in self.fields.items():
            if name in data:
                value = field.node.read(data[name], (*at, name), wrong)
                if value is not BAD:
                    values[name] = value
        made = self._validate(values, data.keys() - values.keys(), at, wrong)
        errors |= wrong
        return BAD if wrong else made

    def _validate(self, values: dict[str, Any], unread: set[str], at: path.Path, errors: Errors) -> Any:
        """Return the model of values; of the fields that could not be read, the reason is known."""
        try:
            # What dgent has read is of the right type; JSON of other types must not be refused as a text.
            strict = False if self.foreign else None
            return self.made.model_validate(values, strict=strict, by_alias=False, by_name=True)
        except Exception as error:
            for place, reason in _reasons(error):
                if not errors or (place and place[0] not in unread):
                    note_error(errors, (*at, *place), reason)
        return BAD


def _reasons(error: Exception) -> Iterator[tuple[path.Path, str]]:
    """Yield place and reason of all that pydantic found wrong; or that of an exception of a validator."""
    try:
        found = error.errors(include_url=False, include_context=False, include_input=False)  # type: ignore[attr-defined]
        reasons = [(tuple(map(str, each["loc"])), _reason(each)) for each in found]
    except Exception:
        reasons = []
    yield from reasons or [((), explain(error))]


def _reason(found: Mapping[str, Any]) -> str:
    return "is missing" if found["type"] == "missing" else str(found["msg"])


def check_model(made: Any, where: str) -> None:
    """Refuse a model that cannot be stored by its fields."""
    if version() < _OLDEST:
        raise SchemaError(
            f"{where}: {made.__name__} is of pydantic {'.'.join(map(str, version()))}",
            hint="install pydantic 2.11 or newer",
            field=where,
        )
    if made.__pydantic_root_model__:
        raise SchemaError(
            f"{where}: {made.__name__} is a RootModel, which has no fields to store",
            hint="use a model with a field for its root",
            field=where,
        )
    if not made.__pydantic_complete__:
        try:
            made.model_rebuild()
        except Exception as error:
            raise SchemaError(
                f"{where}: a type hint cannot be resolved: {error}",
                hint="define the types it names at the top of their module, or call model_rebuild()",
                field=where,
            ) from None
    for name, field in made.__pydantic_fields__.items():
        if field.exclude and field.is_required():
            raise SchemaError(
                f"{where}.{name} is excluded from storing and has no default, so it cannot be read back",
                hint="give it a default",
                field=name,
            )


def version() -> tuple[int, ...]:
    """Return the version of pydantic that the caller has."""
    text: str = sys.modules["pydantic"].VERSION
    return tuple(int(part) for part in text.split(".")[:2])


def json_reader(root: ModelNode) -> Callable[[bytes], Any] | None:
    """Return a function that reads JSON as the node does, or raises; None when only the node can."""
    try:
        decode = msgspec.json.Decoder(_plain_type(root, ()), dec_hook=ref.decode_hook).decode
    except TypeError:
        return None
    foreign = any(isinstance(node, ModelNode) and node.foreign for node in reach(root))
    validate, strict = root.made.model_validate, False if foreign else None
    return lambda raw: validate(decode(raw), strict=strict, by_alias=False, by_name=True)


def _plain_type(node: ContractNode, above: tuple[ContractNode, ...]) -> Any:
    """Return the type by which msgspec reads what the node reads, with dicts for models; or TypeError."""
    if isinstance(node, ModelNode) and node.rest is None and node not in above:
        types = {name: _plain_type(field.node, (*above, node)) for name, field in node.fields.items()}
        typed_dict: Any = TypedDict
        return typed_dict(node.made.__name__, types, total=False)
    if isinstance(node, LeafNode) or (isinstance(node, RecordNode) and node.native):
        return node.hint
    if isinstance(node, LinkNode):
        return ref.Ref
    if type(node) is ContractNode:
        return Any
    if node.rule is None and not isinstance(node, RecordNode | TaggedUnionNode):
        return _plain_container(node, [_plain_type(each, above) for each in node.below])
    raise TypeError(f"msgspec cannot read {node.text(above)}")


def _plain_container(node: ContractNode, below: list[Any]) -> Any:
    if isinstance(node, ListNode):
        return node.build[(below[0], ...) if node.build is tuple else below[0]]
    if isinstance(node, TupleNode):
        return tuple[tuple(below)]  # type: ignore[misc]
    if isinstance(node, MapNode):
        return dict[str, below[0]]  # type: ignore[valid-type]
    if isinstance(node, KindUnionNode) and node.nullable and len(below) == 1:
        return below[0] | None
    raise TypeError(f"msgspec cannot read {node.text(())}")


def find_changed(node: ContractNode, value: Any, again: Any, at: path.Path) -> Iterator[path.Path]:
    """Yield the places of foreign fields that are not equal after they were stored and read again."""
    if isinstance(node, UnionNode):
        for each in node.below:
            yield from find_changed(each, value, again, at)
    elif isinstance(node, RecordNode) and isinstance(value, node.made):
        for name, field in node.fields.items():
            before, after = getattr(value, name, None), getattr(again, name, None)
            if not isinstance(node, ModelNode) or name not in node.foreign:
                yield from find_changed(field.node, before, after, (*at, name))
            elif not _equal(before, after):
                yield (*at, name)
    elif isinstance(value, set | frozenset):
        if value != again:
            yield at
    elif isinstance(node, ListNode | TupleNode | MapNode):
        parts = zip(node.parts(value), node.parts(again), strict=False)
        for (key, below, before), (_, _, after) in parts:
            yield from find_changed(below, before, after, (*at, key))


def _equal(before: Any, after: Any) -> bool:
    """Return whether two values are equal, as far as their class can tell."""
    kind: Any = type(before)
    if kind.__eq__ is object.__eq__:
        return kind is type(after)
    try:
        return bool(before == after)
    except Exception:
        return False
