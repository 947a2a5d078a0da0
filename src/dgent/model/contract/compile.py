"""Compile a contract once: its type hints to nodes, which turn data into values and back."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from dgent import codec
from dgent.errors import Corrupt, DecodeFailed, InputError, SchemaError
from dgent.model import ref
from dgent.model.contract.lookup import Lookup
from dgent.model.contract.node import (
    ContractNode,
    Errors,
    KindUnionNode,
    LeafNode,
    LinkNode,
    ListNode,
    MapNode,
    MomentNode,
    RecordField,
    RecordNode,
    TaggedUnionNode,
    TupleNode,
    convert,
    reach,
    spell,
)

T = TypeVar("T")
_SCALARS = (str, int, float, bool, NoneType, bytes, datetime, date, time, timedelta, UUID, Decimal)


class Compiler:
    """Makes nodes from type hints; each record type once, so that a contract may contain itself."""

    def __init__(self) -> None:
        self.records: dict[Any, RecordNode] = {}
        self.hints: dict[Any, dict[str, Any]] = {}

    def root(self, contract: Any) -> RecordNode:
        """Return the node of a whole contract."""
        made = get_origin(contract) or contract
        if not isinstance(made, type) or not dataclasses.is_dataclass(made):
            raise SchemaError(
                f"{contract!r} is not a frozen dataclass", hint="a contract is a @dataclass(frozen=True)"
            )
        root = self._record(contract, made.__name__)
        for record in self.records.values():
            record.native = _takes(record.hint) is None
            record.clocked = [
                (name, field.node)
                for name, field in record.fields.items()
                if any(isinstance(node, MomentNode) for node in reach(field.node))
            ]
        return root

    def _record(self, hint: Any, where: str) -> RecordNode:
        if hint in self.records:
            return self.records[hint]
        record = self.records[hint] = RecordNode(hint)
        if not record.made.__dataclass_params__.frozen:
            raise SchemaError(
                f"{where}: {record.made.__name__} is not frozen",
                hint="write @dataclass(frozen=True)",
                field=where,
            )
        hints = self._hints(hint, where)
        for name, of in hints.items():
            if isinstance(of, dataclasses.InitVar) or of is dataclasses.InitVar:
                raise SchemaError(f"{where}.{name} is an InitVar, which cannot be read back", field=name)
        for field in dataclasses.fields(record.made):
            node = self._node(hints[field.name], f"{where}.{field.name}")
            record.fields[field.name] = RecordField(node, _default(field))
        record.below = [field.node for field in record.fields.values()]
        return record

    def _hints(self, hint: Any, where: str) -> dict[str, Any]:
        if hint not in self.hints:
            try:
                self.hints[hint] = _resolve_hints(hint)
            except (NameError, TypeError, AttributeError) as error:
                raise SchemaError(
                    f"{where}: a type hint cannot be resolved: {error}",
                    hint="define the types it names at the top of their module",
                ) from None
        return self.hints[hint]

    def _node(self, hint: Any, where: str) -> ContractNode:
        hint = _unalias(hint)
        origin = get_origin(hint)
        if hint is Any:
            return ContractNode()
        if origin is Annotated:
            return self._compile_annotated(hint, where)
        if origin is Union or origin is UnionType:
            return self._union(hint, where)
        if ref.is_ref(hint):
            return LinkNode()
        kind = origin or hint
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return self._record(hint, where)
        if kind in (tuple, list, frozenset, dict, Sequence, Mapping):
            return self._container(kind, get_args(hint), hint, where)
        return _leaf(hint, where)

    def _compile_annotated(self, hint: Any, where: str) -> ContractNode:
        inner, *notes = get_args(hint)
        node = self._node(inner, where)
        if isinstance(node, RecordNode) or not any(isinstance(note, msgspec.Meta) for note in notes):
            return node
        if isinstance(node, LeafNode):
            return _leaf(hint, where)
        if (reason := _takes(hint)) is not None:
            raise SchemaError(f"{where}: {reason}", hint="put the constraint on its parts", field=where)
        node.rule = hint
        return node

    def _container(self, kind: Any, args: tuple[Any, ...], hint: Any, where: str) -> ContractNode:
        if kind in (dict, Mapping):
            key, item = args or (str, Any)
            if _unalias(key) is not str:
                raise SchemaError(f"{where}: the keys of {spell(hint)} must be str", field=where)
            return MapNode(self._node(item, where))
        if kind is tuple and args and args[-1] is not Ellipsis:
            return TupleNode(tuple(self._node(item, f"{where}.{i}") for i, item in enumerate(args)))
        build = list if kind is Sequence else kind
        return ListNode(self._node(args[0], where) if args else ContractNode(), build)

    def _union(self, hint: Any, where: str) -> ContractNode:
        members = list(dict.fromkeys(_members(hint)))
        if Any in members:
            return ContractNode()
        nullable = NoneType in members
        nodes = {member: self._node(member, where) for member in members if member is not NoneType}
        leaves = [member for member, node in nodes.items() if isinstance(node, LeafNode)]
        if len(leaves) == len(nodes):
            return _leaf(Union[tuple(members)], where)  # noqa: UP007 - the members are known only now
        kinds = self._group_by_kind(nodes, where)
        if leaves:
            kinds["scalar"].append(_leaf(Union[tuple(leaves)], where))  # noqa: UP007
        if any(len(found) > 1 for found in kinds.values()):
            raise SchemaError(
                f"{where}: the members of {spell(hint)} look alike when stored",
                hint="use one of them, or dataclasses with a Literal field that tells them apart",
                field=where,
            )
        return KindUnionNode(nullable, {kind: found[0] for kind, found in kinds.items() if found})

    def _group_by_kind(self, nodes: dict[Any, ContractNode], where: str) -> dict[str, list[ContractNode]]:
        """Return the nodes of a union that are not leaves, by the kind of JSON value of each."""
        kinds: dict[str, list[ContractNode]] = {"object": [], "array": [], "scalar": []}
        records = {member: node for member, node in nodes.items() if isinstance(node, RecordNode)}
        if records:
            kinds["object"].append(
                self._compile_tagged(records, where) if len(records) > 1 else next(iter(records.values()))
            )
        for node in nodes.values():
            if not isinstance(node, LeafNode | RecordNode):
                kinds[_place(node)].append(node)
        return kinds

    def _compile_tagged(self, records: dict[Any, RecordNode], where: str) -> TaggedUnionNode:
        choices = [_tags(self._hints(member, where)) for member in records]
        for tag in choices[0]:
            named: dict[str, RecordNode] = {}
            for record, found in zip(records.values(), choices, strict=True):
                named |= dict.fromkeys(found.get(tag, ()), record)
            if all(tag in found for found in choices) and len(named) == sum(len(f[tag]) for f in choices):
                return TaggedUnionNode(tag, named)
        names = " | ".join(record.made.__name__ for record in records.values())
        raise SchemaError(
            f"{where}: nothing tells the members of {names} apart",
            hint='give each a field of the same name with its own value, such as kind: Literal["a"] = "a"',
            field=where,
        )


def _resolve_hints(hint: Any) -> dict[str, Any]:
    """Return the type hints of a dataclass, with the parameters of generic classes filled in."""
    made = get_origin(hint) or hint
    scopes: dict[type, dict[Any, Any]] = {}
    _bind(hint, {}, scopes)
    out: dict[str, Any] = {}
    for base in reversed(made.__mro__):
        own = inspect.get_annotations(base)
        if own:
            try:
                resolved = get_type_hints(base, include_extras=True)
            except NameError:  # a class made inside a function may still name itself
                resolved = get_type_hints(base, localns={made.__name__: made}, include_extras=True)
            out |= {name: _substitute(resolved[name], scopes.get(base, {})) for name in own}
    return out


def _bind(hint: Any, outer: dict[Any, Any], scopes: dict[type, dict[Any, Any]]) -> None:
    made = get_origin(hint) or hint
    args = [_substitute(arg, outer) for arg in get_args(hint)]
    scopes[made] = dict(zip(getattr(made, "__parameters__", ()), args, strict=False))
    for base in made.__dict__.get("__orig_bases__", made.__bases__):
        if (get_origin(base) or base) not in (Generic, object):
            _bind(base, scopes[made], scopes)


def _substitute(hint: Any, scope: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return scope.get(hint, hint.__bound__ or Any)
    names = () if isinstance(hint, type) else getattr(hint, "__parameters__", ())
    return hint[tuple(_substitute(name, scope) for name in names)] if names else hint


def _unalias(hint: Any) -> Any:
    """Return the type that a NewType or a `type X = ...` stands for."""
    while True:
        if hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            return NoneType if hint is None else hint


def _members(hint: Any) -> Iterator[Any]:
    """Yield the members of a union, with nested unions opened; any other type is its own only member."""
    hint = _unalias(hint)
    if get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from _members(member)
    else:
        yield hint


def _bare(hint: Any) -> Iterator[Any]:
    """Yield the members of a union without their constraints."""
    for member in _members(hint):
        if get_origin(member) is Annotated:
            yield from _bare(get_args(member)[0])
        else:
            yield member


def _leaf(hint: Any, where: str) -> LeafNode:
    scalars = list(_bare(hint))
    for scalar in scalars:
        known = scalar in _SCALARS or (isinstance(scalar, type) and issubclass(scalar, Enum))
        if not known and get_origin(scalar) is not Literal:
            fix = "use frozenset" if (get_origin(scalar) or scalar) is set else "use what JSON can hold"
            message = f"{where}: {spell(scalar)} is not a type a contract may have"
            raise SchemaError(message, hint=fix, field=where)
    if (reason := _takes(hint)) is not None:
        raise SchemaError(f"{where}: {reason}", field=where)
    return MomentNode(hint) if datetime in scalars else LeafNode(hint)


def _takes(hint: Any) -> str | None:
    """Return None when msgspec can convert to this type, and its reason when it cannot."""
    try:
        msgspec.json.Decoder(hint, dec_hook=ref.decode_hook)
    except Exception as error:
        return str(error)
    return None


def _tags(hints: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the fields whose hint is a Literal of texts."""
    found = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
    return {name: values for name, values in found.items() if all(isinstance(v, str) for v in values)}


def _place(node: ContractNode) -> str:
    return "object" if isinstance(node, MapNode) else "scalar" if isinstance(node, LinkNode) else "array"


def _default(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if field.default is not dataclasses.MISSING:
        return lambda: field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory


class CompiledContract(Generic[T]):
    """A compiled contract: turns data into values and back, and knows where its links are.

    `label` is the contract's name, `fields` maps its fields to their types as text, and `defaults` maps
    those that have one to its factory.
    """

    def __init__(self, contract: type[T]) -> None:
        root = Compiler().root(contract)
        below = list(reach(root))
        self.contract = contract
        self.label = root.made.__name__
        self.fields = {name: field.node.text((root,)) for name, field in root.fields.items()}
        self.defaults = {name: f.default for name, f in root.fields.items() if f.default is not None}
        self.ref_paths: tuple[str, ...] = tuple(dict.fromkeys(root.ref_paths((), ())))
        self._root = root
        self._linked = any(isinstance(node, LinkNode) for node in below)
        self._clocked = bool(root.clocked)
        # msgspec hands out what `Any` holds as it is; a copy keeps a value's owner from changing the datum.
        self._loose = any(type(node) is ContractNode for node in below)
        self._native = root.native
        # JSON to value in one call, or an exception of any kind: then `decode_json` says what is wrong.
        self._flat = _flat_fields(root)
        self._nested = any(isinstance(node, RecordNode) and node is not root for node in below)
        # The fields with datetimes, if none is further inside.
        self._moments = [name for name, node in root.clocked if type(node) is MomentNode]
        self.quick: Callable[[bytes | None], T] | None = None
        if self._native and len(self._moments) == len(root.clocked):
            self._from_json: Callable[[Any], T] = msgspec.json.Decoder(
                contract, dec_hook=ref.decode_hook
            ).decode
            self.quick = self._decode_aware if self._clocked else self._from_json  # type: ignore[assignment]

    @cached_property
    def digest(self) -> str:
        """16 hex letters that differ when the fields do."""
        import hashlib  # loads OpenSSL, and only a schema that is declared needs it

        return hashlib.sha256(self._root.text(()).encode()).hexdigest()[:16]

    def change(self, value: T, changes: Mapping[str, Any]) -> T:
        """Return a value with some fields changed; InputError names those that the contract does not have."""
        unknown = sorted(changes.keys() - self.fields.keys())
        if unknown:
            import difflib  # only a mistake needs it

            near = [name for word in unknown for name in difflib.get_close_matches(word, self.fields, 1)]
            hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(self.fields)}"
            raise InputError(f"{self.label} has no field {', '.join(unknown)}", hint=hint, field=unknown[0])
        changed: T = dataclasses.replace(value, **changes)  # type: ignore[type-var]
        return changed

    def decode(self, data: dict[str, Any]) -> T:
        """Return the value of the data; DecodeFailed lists every wrong field in `details["fields"]`."""
        return self._decode(_copy(data) if self._loose else data)

    def _decode(self, data: dict[str, Any]) -> T:
        """Return the value of data that nobody else holds, where the contract has `Any`."""
        if self._native:
            try:
                value: T = convert(data, self.contract, dec_hook=ref.decode_hook)
                if not self._clocked or self._root.aware(data):
                    return value
            except Exception:
                pass  # read again below, field by field, to name them all
        errors: Errors = {}
        value = self._root.read(data, (), errors)
        if errors:
            message = f"the data is no {self.label}: {_list(errors)}"
            raise DecodeFailed(message, contract=self.label, fields=errors)
        return value

    def _decode_aware(self, raw: bytes | None) -> T:
        """Return the value of JSON; ValueError when a datetime has no time zone."""
        value = self._from_json(raw)
        for name in self._moments:
            found = getattr(value, name)
            if type(found) is datetime and found.tzinfo is None:
                raise ValueError(f"{name} has no time zone")
        return value

    def decode_json(self, raw: bytes) -> T:
        """Return the value of data that is still JSON; quicker than decoding it twice."""
        if self.quick is not None:
            try:
                return self.quick(raw)
            except Exception:
                pass  # read again below, to name everything that is wrong
        data = codec.decode(raw)
        if type(data) is not dict:
            raise Corrupt("the data is not a map")
        return self._decode(data)

    def encode(self, value: T) -> dict[str, Any]:
        """Return the storable data of a value; InputError names every field whose type is wrong."""
        return self.settle(value)[0]

    def settle(self, value: T) -> tuple[dict[str, Any], T]:
        """Return the storable data of a value, and the value as everyone will read it back."""
        if not isinstance(value, self._root.made):
            raise InputError(f"expected a {self.label}, got a {type(value).__name__}", contract=self.label)
        flat = self._settle_flat(value)
        if flat is not None:
            return flat, value
        data: dict[str, Any] = codec.plain(value, enc_hook=ref.encode_hook)
        try:
            # A copy by way of JSON: a value's owner must not be able to change the data.
            again = self._decode(codec.decode(codec.encode(data)) if self._loose else data)
        except DecodeFailed as error:
            fields = error.details["fields"]
            raise InputError(f"{self.label}: {_list(fields)}", contract=self.label, fields=fields) from None
        if self._clocked and not self._has_moments(value):
            # A text where the contract wants a datetime passes; writing it again brings it into its one form.
            data = codec.plain(again, enc_hook=ref.encode_hook)
        return data, again

    def _has_moments(self, value: T) -> bool:
        """Return whether every datetime of a value is one, and none is a text."""
        if len(self._moments) != len(self._root.clocked):
            return False
        for name in self._moments:  # noqa: SIM110 - a generator costs as much as a check
            if isinstance(getattr(value, name), str):
                return False
        return True

    def _settle_flat(self, value: T) -> dict[str, Any] | None:
        """Return the data of a value whose fields hold exactly the scalars that the contract names.

        Such a value is read back unchanged. None when that is not so, or not certain.
        """
        if type(value) is not self._root.made or not self._flat:
            return None
        data = {}
        for name, kinds in self._flat.items():
            item: Any = getattr(value, name, ...)  # a field that init leaves out may not be there
            kind = type(item)
            if kind not in kinds or not (_SAFE[kind](item) or (kind is str and codec.is_text(item))):
                return None
            data[name] = item
        return data

    def knows_all(self, data: Mapping[str, Any]) -> bool:
        """Return whether the contract knows every field of the data, so that there is nothing to carry."""
        return not self._root.unknown(data) if self._nested else data.keys() <= self._root.fields.keys()

    def carry(self, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        """Return new data plus the fields of the old data that the contract does not know."""
        out: dict[str, Any] = self._root.carry(old, new)
        return out

    @cached_property
    def lookup(self) -> Lookup:
        """The contract as queries use it."""
        return Lookup(self._root, self.label)

    def refs(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the path and the id of every link in the data."""
        return list(self._root.refs(data, ())) if self._linked else []


_SAFE: dict[type, Callable[[Any], bool]] = {
    str: str.isascii,
    int: range(-(2**63), 2**63).__contains__,
    float: isfinite,
    bool: (True, False).__contains__,
    NoneType: (None,).__contains__,
}


def _flat_fields(root: RecordNode) -> dict[str, frozenset[type]]:
    """Return the scalar types of each field; empty when a field can hold more, or values are made anew."""
    kinds = {name: _scalars(field.node) for name, field in root.fields.items()}
    return kinds if root.native and root.after is None and all(kinds.values()) else {}


def _scalars(node: ContractNode) -> frozenset[type]:
    if type(node) is not LeafNode:
        return frozenset()
    hint = node.hint
    kinds = frozenset(get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,))
    return kinds if kinds <= _SAFE.keys() else frozenset()


def describe(contract: type[Any]) -> str:
    """Return 16 hex letters that differ when a contract's fields, their types or its defaults differ."""
    return CompiledContract(contract).digest


def _list(errors: Errors) -> str:
    return "; ".join(f"{where}: {reason}" if where else reason for where, reason in errors.items())


def _copy(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copy(item) for key, item in data.items()}
    return [_copy(item) for item in data] if isinstance(data, list) else data
