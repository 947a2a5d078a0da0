"""Compile a contract once: its type hints to nodes, which turn data into values and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property
from math import isfinite
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
)
from uuid import UUID

import msgspec

from dgent import codec
from dgent.errors import Corrupt, DecodeFailed, InputError, SchemaError
from dgent.model import path, ref
from dgent.model.contract.lookup import Lookup
from dgent.model.contract.model import ModelNode, check_model, find_changed, json_reader
from dgent.model.contract.node import (
    ContractNode,
    Errors,
    KindUnionNode,
    LeafNode,
    LinkNode,
    ListNode,
    MapNode,
    MomentNode,
    OpenNode,
    RecordField,
    RecordNode,
    TaggedUnionNode,
    TupleNode,
    convert,
    reach,
    spell,
)
from dgent.model.contract.record import (
    check_record,
    is_record,
    list_defaults,
    model_default,
    resolve_hints,
    substitute,
)
from dgent.system.near import ask, find_near

T = TypeVar("T")
_SCALARS = (str, int, float, bool, NoneType, bytes, datetime, date, time, timedelta, UUID, Decimal)

_CONTAINERS = (tuple, list, frozenset, dict, Sequence, Mapping)


class Compiler:
    """Makes nodes from type hints; each record type once, so that a contract may contain itself."""

    def __init__(self) -> None:
        self.records: dict[Any, RecordNode] = {}
        self.hints: dict[Any, dict[str, Any]] = {}
        self.containers: tuple[Any, ...] = _CONTAINERS

    def root(self, contract: Any) -> RecordNode:
        """Return the node of a whole contract; without one, that of plain dicts."""
        if contract is None:
            self.records[None] = OpenNode()
            return self._complete(self.records[None])
        made = get_origin(contract) or contract
        if not is_record(made):
            hint = (
                "leave `contract` out: then values are plain dicts"
                if isinstance(made, type) and issubclass(made, dict)
                else "use a @dataclass(frozen=True), a frozen msgspec.Struct or a model of pydantic 2"
            )
            raise SchemaError(f"{contract!r} is not a frozen dataclass, struct or model", hint=hint)
        return self._complete(self._record(contract, made.__name__))

    def _complete(self, root: RecordNode) -> RecordNode:
        """Return the root, after noting of each record what depends on the nodes below it."""
        modelled = any(isinstance(record, ModelNode) for record in self.records.values())
        for record in self.records.values():
            record.native = not (modelled and _has_model(record)) and _takes(record.hint) is None
            record.clocked = [
                (name, field.node)
                for name, field in record.fields.items()
                if any(isinstance(node, MomentNode) for node in reach(field.node))
            ]
        return root

    def _record(self, hint: Any, where: str) -> RecordNode:
        if hint in self.records:
            return self.records[hint]
        outer = self.containers
        try:
            if codec.model_fields(get_origin(hint) or hint) is not None:
                self.containers = (*_CONTAINERS, set)  # values of models can change anyway
                return self._model(hint, where)
            self.containers = _CONTAINERS
            return self._frozen(hint, where)
        finally:
            self.containers = outer

    def _frozen(self, hint: Any, where: str) -> RecordNode:
        """Return the node of a dataclass or struct."""
        record = self.records[hint] = RecordNode(hint)
        check_record(record.made, where)
        hints = self._hints(hint, where)
        for name, of in hints.items():
            if isinstance(of, dataclasses.InitVar) or of is dataclasses.InitVar:
                raise SchemaError(f"{where}.{name} is an InitVar, which cannot be read back", field=name)
        for name, default in list_defaults(record.made):
            record.fields[name] = RecordField(self._node(hints[name], f"{where}.{name}"), default)
        record.below = [field.node for field in record.fields.values()]
        return record

    def _model(self, hint: Any, where: str) -> RecordNode:
        """Return the node of a pydantic model."""
        check_model(hint, where)
        record = self.records[hint] = ModelNode(hint)
        for name in codec.model_fields(hint) or ():
            field = hint.__pydantic_fields__[name]
            known = dict(self.records)
            try:
                node = self._node(substitute(field.annotation, {}), f"{where}.{name}")
            except SchemaError:  # pydantic knows more types
                self.records = known
                node = ContractNode()
                record.foreign.add(name)
            default = None if field.is_required() else model_default(field)
            record.fields[name] = RecordField(node, default)
        record.below = [field.node for field in record.fields.values()]
        if record.rest is not None:
            record.below.append(record.rest)
        return record

    def _hints(self, hint: Any, where: str) -> dict[str, Any]:
        if hint not in self.hints:
            try:
                self.hints[hint] = resolve_hints(hint)
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
        if is_record(kind):
            return self._record(hint, where)
        if kind in self.containers:
            return self._container(kind, get_args(hint), hint, where)
        return _leaf(hint, where)

    def _compile_annotated(self, hint: Any, where: str) -> ContractNode:
        inner, *notes = get_args(hint)
        node = self._node(inner, where)
        if isinstance(node, RecordNode) or not any(isinstance(note, msgspec.Meta) for note in notes):
            return node
        if isinstance(node, LeafNode):
            return _leaf(hint, where)
        reason = "msgspec knows no pydantic models" if _has_model(node) else _takes(hint)
        if reason is not None:
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
            if isinstance(scalar, type) and issubclass(scalar, dict):  # a typed dict
                fix = "use a frozen dataclass, or dict[str, Any]"
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


def _has_model(node: ContractNode) -> bool:
    return any(isinstance(each, ModelNode) for each in reach(node))


class CompiledContract(Generic[T]):
    """A compiled contract: turns data into values and back, and knows where its links are.

    Without a contract, values are dicts. `made` is the class of values and `label` its name, `fields` maps
    the fields to their types as text, and `defaults` maps those that have one to its factory. It is `open`
    when values may have other fields too.
    """

    def __init__(self, contract: type[T] | None) -> None:
        root = Compiler().root(contract)
        below = list(reach(root))
        self.made: type[T] = root.made
        self.open = root.rest is not None
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
        self._modelled = isinstance(root, ModelNode)
        self._flat = _flat_fields(root)
        self._names = tuple(self._flat)
        self._items = _getter(self._names)
        self._kept = _keeps_fields(root.made, self._names)
        self._bounded: dict[tuple[type, ...], tuple[int, ...]] = {}
        # Whether only the nodes can say that a field is unknown, and the names of the fields do not.
        self._nested = self.open or any(isinstance(node, RecordNode) and node is not root for node in below)
        self._foreign = any(isinstance(node, ModelNode) and node.foreign for node in below)
        # The fields with datetimes, if none is further inside.
        self._moments = [name for name, node in root.clocked if type(node) is MomentNode]
        # JSON to value in one call, or an exception of any kind: then `decode_json` says what is wrong.
        self.quick: Callable[[bytes | None], T] | None = self._choose_reader()

    def _choose_reader(self) -> Any:
        """Return the quick way from JSON to a value, if there is one."""
        root = self._root
        if len(self._moments) != len(root.clocked):
            return None
        reader: Any = json_reader(root) if isinstance(root, ModelNode) else None
        if root.native:
            reader = msgspec.json.Decoder(root.hint, dec_hook=ref.decode_hook).decode
        self._from_json: Callable[[Any], T] = reader
        return self._decode_aware if reader is not None and self._clocked else reader

    @cached_property
    def digest(self) -> str:
        """16 hex letters that differ when the fields do."""
        import hashlib  # loads OpenSSL, and only a schema that is declared needs it

        return hashlib.sha256(self._root.text(()).encode()).hexdigest()[:16]

    def change(self, value: T, changes: Mapping[str, Any]) -> T:
        """Return a value with some fields changed; InputError names those that the contract does not have."""
        unknown = [] if self.open else sorted(changes.keys() - self.fields.keys())
        if unknown:
            near = [name for word in unknown for name in find_near(word, self.fields, 1)]
            hint = ask(near) or f"it has {', '.join(self.fields)}"
            raise InputError(f"{self.label} has no field {', '.join(unknown)}", hint=hint, field=unknown[0])
        changed: T = codec.change_fields(value, changes)
        return changed

    def decode(self, data: dict[str, Any]) -> T:
        """Return the value of the data; DecodeFailed lists every wrong field in `details["fields"]`."""
        return self._decode(_copy(data) if self._loose else data)

    def _decode(self, data: dict[str, Any]) -> T:
        """Return the value of data that nobody else holds, where the contract has `Any`."""
        if self._native:
            try:
                value: T = convert(data, self._root.hint, dec_hook=ref.decode_hook)
                if not self._clocked or self._root.aware(data):
                    return value
            except Exception:
                pass  # read again below, field by field, to name them all
        errors: Errors = {}
        value = self._root.read(data, (), errors)
        if errors:
            message = f"the data does not fit {self.label}: {_list(errors)}"
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
        flat = self.settle_flat(value)
        if flat is not None:
            return flat[0], value
        data: dict[str, Any] = codec.plain(value, enc_hook=ref.encode_hook)
        try:
            if self._loose or self._modelled:
                # By way of JSON: a value's owner must not be able to change the data. Models are quicker so.
                again = self.decode_json(codec.encode(data))
            else:
                again = self._decode(data)
        except DecodeFailed as error:
            fields = error.details["fields"]
            raise InputError(f"{self.label}: {_list(fields)}", contract=self.label, fields=fields) from None
        if self._foreign:
            self._check_foreign(value, again)
        if self._clocked and not self._has_moments(value):
            # A text where the contract wants a datetime passes; writing it again brings it into its one form.
            data = codec.plain(again, enc_hook=ref.encode_hook)
        return data, again

    def _check_foreign(self, value: T, again: T) -> None:
        """Refuse a value that pydantic does not store as it is, such as a secret, which it masks."""
        places = find_changed(self._root, value, again, ())
        fields = {path.text(place): "is another value when it is read back" for place in places}
        if fields:
            raise InputError(
                f"{self.label}: {_list(fields)}",
                hint="give the field a serializer whose JSON its validators read back",
                contract=self.label,
                fields=fields,
            )

    def _has_moments(self, value: T) -> bool:
        """Return whether every datetime of a value is one, and none is a text."""
        if len(self._moments) != len(self._root.clocked):
            return False
        for name in self._moments:  # noqa: SIM110 - a generator costs as much as a check
            if isinstance(getattr(value, name), str):
                return False
        return True

    def settle_flat(self, value: T) -> tuple[dict[str, Any], bytes] | None:
        """Return the data, and its JSON, of a value whose fields hold exactly the scalars of the contract.

        Such a value is read back unchanged. None when that is not so, or not certain.
        """
        data = self.copy_flat(value)
        if data is None:
            return None
        items = (*data.values(),)
        kinds = tuple(map(type, items))
        bounded = self._bounded.get(kinds)
        if bounded is None:
            bounded = self._find_bounded(kinds)
            if bounded is None:
                return None
        for place in bounded:
            if not _SAFE[kinds[place]](items[place]):
                return None
        try:
            raw = codec.encode(data)
        except (InputError, UnicodeError):
            return None
        if raw.isascii() or all(codec.is_text(item) for item in items if type(item) is str):
            return data, raw
        return None

    def copy_flat(self, value: T) -> dict[str, Any] | None:
        """Return the fields of a value whose contract has scalars only, unchecked; None for any other."""
        if type(value) is not self._root.made or not self._flat:
            return None
        data = vars(value).copy() if self._kept else None
        if data is None or (*data,) != self._names:
            try:
                data = dict(zip(self._flat, self._items(value), strict=True))
            except AttributeError:
                return None  # a field that init leaves out may not be there
        return data

    def encode_flat(self, bodies: Sequence[dict[str, Any]]) -> list[bytes] | None:
        """Return the JSON of data that `copy_flat` gave, checked as `settle_flat` does, but by columns.

        None when it would give None for any of them.
        """
        columns = zip(*map(dict.values, bodies), strict=True)
        for column, fitting in zip(columns, self._flat.values(), strict=True):
            kinds = {*map(type, column)}
            if not kinds <= fitting:
                return None
            for kind in kinds & _BOUNDED:
                part = column if len(kinds) == 1 else [item for item in column if type(item) is kind]
                if not all(map(_SAFE[kind], part)):
                    return None
        try:
            raws = [*map(codec.encode, bodies)]
        except (InputError, UnicodeError):
            return None
        if all(map(bytes.isascii, raws)):
            return raws
        texts = (item for body in bodies for item in body.values() if type(item) is str)
        return raws if all(map(codec.is_text, texts)) else None

    def _find_bounded(self, kinds: tuple[type, ...]) -> tuple[int, ...] | None:
        """Return the places of numbers, which may be too large to store; None for types that do not fit."""
        if any(kind not in fitting for kind, fitting in zip(kinds, self._flat.values(), strict=True)):
            return None
        found = tuple([place for place, kind in enumerate(kinds) if kind in _BOUNDED])
        if len(self._bounded) < _MAX_KINDS:
            self._bounded[kinds] = found
        return found

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


_BOUNDED = frozenset((int, float))
_MAX_KINDS = 256  # so many combinations of types are kept for each contract
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


def _keeps_fields(made: type, names: Sequence[str]) -> bool:
    """Return whether values of a class keep just what their fields give in a dict of their own."""
    if not made.__dictoffset__ or any("__getattribute__" in vars(base) for base in made.__mro__[:-1]):
        return False
    above = [vars(base)[name] for base in made.__mro__ for name in names if name in vars(base)]
    return not any(hasattr(type(found), "__set__") for found in above)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function for the values of some attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


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
        return {key: _copy(item) if isinstance(item, (dict, list)) else item for key, item in data.items()}
    if isinstance(data, list):
        return [_copy(item) if isinstance(item, (dict, list)) else item for item in data]
    return data
