"""What a contract looks like: its fields, compiled once.

msgspec converts all it can in one call. The nodes below stand beside it for what it does not do: unions of
dataclasses, naming every wrong field at once, finding links, and keeping fields the contract does not know.
In this file: the nodes, the compiler that makes them from type hints, and `Shape`, which others use.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from dgent import codec
from dgent.errors import DecodeFailed, InputError, SchemaError
from dgent.model import path, ref

T = TypeVar("T")
Errors = dict[str, str]
Parts = Iterable[tuple[str, "Node", Any]]

_BAD: Any = object()  # what a reader gives after it noted an error
_ARRAYS = (list, tuple, set, frozenset)  # what msgspec takes for an array
_MAPS = (dict, Mapping)  # dict first: asking an abstract class takes longer
_SCALARS = (str, int, float, bool, NoneType, bytes, datetime, date, time, timedelta, UUID, Decimal)
_convert = msgspec.convert


class Node:
    """One place in a contract; this very class is `Any`, where everything fits and nothing is known."""

    below: Sequence[Node] = ()
    rule: Any = None  # a constraint on a whole container, such as its length

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        """The value of the data, or _BAD after noting why not."""
        return data

    def parts(self, data: Any) -> Parts:
        """The key, node and data of each place below; none for data that does not fit."""
        return ()

    def refs(self, data: Any, at: path.Path) -> Iterator[tuple[str, str]]:
        """The path and id of each link in the data."""
        for key, node, item in self.parts(data):
            yield from node.refs(item, (*at, key))

    def ref_paths(self, at: path.Path, above: tuple[Node, ...]) -> Iterator[str]:
        """The paths that an engine indexes for links."""
        return iter(())

    def unknown(self, data: Any) -> bool:
        """Whether the data holds a field that the contract does not know."""
        return any(node.unknown(item) for _, node, item in self.parts(data))

    def aware(self, data: Any) -> bool:
        """Whether each datetime in data that msgspec took has a time zone; it does not ask for one."""
        return all(node.aware(item) for _, node, item in self.parts(data))

    def carry(self, old: Any, new: Any) -> Any:
        """The new data plus what only the old data knows."""
        return new

    def text(self, above: tuple[Node, ...]) -> str:
        """The type as text, the same in every process."""
        return "any"

    def _ruled(self, data: Any, value: Any, at: path.Path, errors: Errors) -> Any:
        if value is _BAD or self.rule is None:
            return value
        return _BAD if _converted(self.rule, data, at, errors) is _BAD else value


class Leaf(Node):
    """A scalar, or a union of scalars, that msgspec converts."""

    def __init__(self, hint: Any) -> None:
        self.hint = hint

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        return _converted(self.hint, data, at, errors)

    def text(self, above: tuple[Node, ...]) -> str:
        return _spell(self.hint)


class Moment(Leaf):
    """A datetime, possibly in a union with scalars that are no texts."""

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        value = super().read(data, at, errors)
        if isinstance(value, datetime) and value.tzinfo is None:
            return _note(errors, at, "Expected `datetime` with a timezone component")
        return value

    def aware(self, data: Any) -> bool:
        if not isinstance(data, str) or data[-1:] == "Z":
            return True
        return any(mark in data[10:] for mark in "z+-")


class Link(Node):
    """A Ref."""

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        try:
            return ref.decode_hook(ref.Ref, data)
        except InputError as error:
            return _note(errors, at, error.message)

    def refs(self, data: Any, at: path.Path) -> Iterator[tuple[str, str]]:
        if isinstance(data, str):
            yield path.text(at), data

    def ref_paths(self, at: path.Path, above: tuple[Node, ...]) -> Iterator[str]:
        yield path.text(at)

    def text(self, above: tuple[Node, ...]) -> str:
        return "ref"


class Many(Node):
    """A tuple, list or frozenset of any length."""

    def __init__(self, item: Node, build: type[Any]) -> None:
        self.item, self.build = item, build
        self.below = (item,)

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        if not isinstance(data, _ARRAYS):
            return _note(errors, at, f"Expected `array`, got `{_kind(data)}`")
        values = [node.read(item, (*at, key), errors) for key, node, item in self.parts(data)]
        if any(value is _BAD for value in values):
            return _BAD
        try:
            return self._ruled(data, self.build(values), at, errors)
        except TypeError as error:  # a frozenset of something that cannot be hashed
            return _note(errors, at, str(error))

    def parts(self, data: Any) -> Parts:
        if not isinstance(data, _ARRAYS):
            return ()
        return ((str(i), self.item, item) for i, item in enumerate(data))

    def ref_paths(self, at: path.Path, above: tuple[Node, ...]) -> Iterator[str]:
        if _is_link(self.item):
            yield path.text(at)

    def carry(self, old: Any, new: Any) -> Any:
        if not self.unknown(old):
            return new
        twins: dict[bytes | None, list[Any]] = {}
        for item in old:
            twins.setdefault(self._known(item), []).append(item)
        out = []
        for item in new:
            same = twins.get(self._known(item), ())
            # Of two equal items nobody can say whose unknown fields to keep.
            out.append(self.item.carry(same[0], item) if len(same) == 1 else item)
        return sorted(out, key=codec.canonical) if self.build is frozenset else out

    def _known(self, data: Any) -> bytes | None:
        """What the contract sees of an item, defaults filled in, as comparable bytes."""
        errors: Errors = {}
        value = self.item.read(data, (), errors)
        return None if errors else codec.canonical(codec.plain([value], enc_hook=ref.encode_hook))

    def text(self, above: tuple[Node, ...]) -> str:
        return f"{self.build.__name__}[{self.item.text(above)}]{_spell(self.rule)}"


class Fixed(Node):
    """A tuple with one type per position."""

    def __init__(self, items: tuple[Node, ...]) -> None:
        self.below = items

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        if not isinstance(data, _ARRAYS):
            return _note(errors, at, f"Expected `array`, got `{_kind(data)}`")
        if len(data) != len(self.below):
            return _note(errors, at, f"Expected `array` of length {len(self.below)}, got {len(data)}")
        values = tuple(node.read(item, (*at, key), errors) for key, node, item in self.parts(data))
        return _BAD if any(value is _BAD for value in values) else self._ruled(data, values, at, errors)

    def parts(self, data: Any) -> Parts:
        if not isinstance(data, _ARRAYS):
            return ()
        return ((str(i), node, item) for i, (node, item) in enumerate(zip(self.below, data, strict=False)))

    def ref_paths(self, at: path.Path, above: tuple[Node, ...]) -> Iterator[str]:
        if self.below and all(map(_is_link, self.below)):
            yield path.text(at)

    def carry(self, old: Any, new: Any) -> Any:
        if not isinstance(old, _ARRAYS) or len(old) != len(new):
            return new
        return [node.carry(was, now) for node, was, now in zip(self.below, old, new, strict=True)]

    def text(self, above: tuple[Node, ...]) -> str:
        return f"tuple({','.join(node.text(above) for node in self.below)}){_spell(self.rule)}"


class Table(Node):
    """A dict from texts to values of one type."""

    def __init__(self, item: Node) -> None:
        self.item = item
        self.below = (item,)

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        if not _is_map(data, at, errors):
            return _BAD
        values = {key: node.read(item, (*at, key), errors) for key, node, item in self.parts(data)}
        bad = any(value is _BAD for value in values.values())
        return _BAD if bad else self._ruled(data, values, at, errors)

    def parts(self, data: Any) -> Parts:
        return ((key, self.item, item) for key, item in data.items()) if isinstance(data, _MAPS) else ()

    def carry(self, old: Any, new: Any) -> Any:
        if not isinstance(old, _MAPS):
            return new
        return {key: self.item.carry(old[key], item) if key in old else item for key, item in new.items()}

    def text(self, above: tuple[Node, ...]) -> str:
        return f"dict[{self.item.text(above)}]{_spell(self.rule)}"


class Choice(Node):
    """A union: the data says which of the nodes below reads it."""

    def pick(self, data: Any) -> Node | None:
        """The node for this data, or None when there is none."""
        raise NotImplementedError

    def parts(self, data: Any) -> Parts:
        node = self.pick(data)
        return () if node is None else node.parts(data)

    def refs(self, data: Any, at: path.Path) -> Iterator[tuple[str, str]]:
        node = self.pick(data)
        return iter(()) if node is None else node.refs(data, at)

    def ref_paths(self, at: path.Path, above: tuple[Node, ...]) -> Iterator[str]:
        for node in self.below:
            yield from node.ref_paths(at, above)

    def unknown(self, data: Any) -> bool:
        node = self.pick(data)
        return node is not None and node.unknown(data)

    def aware(self, data: Any) -> bool:
        node = self.pick(data)
        return node is None or node.aware(data)

    def carry(self, old: Any, new: Any) -> Any:
        node = self.pick(new)
        return new if node is None or node is not self.pick(old) else node.carry(old, new)

    def text(self, above: tuple[Node, ...]) -> str:
        return "(" + "|".join(sorted(node.text(above) for node in self.below)) + ")"


class OneOf(Choice):
    """A union whose members JSON tells apart: null, scalar, list or map."""

    def __init__(self, nullable: bool, members: dict[str, Node]) -> None:
        self.nullable, self.members = nullable, members
        self.below = tuple(members.values())

    def pick(self, data: Any) -> Node | None:
        if isinstance(data, _MAPS):
            return self.members.get("object")
        return self.members.get("array" if isinstance(data, _ARRAYS) else "scalar")

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        if data is None and self.nullable:
            return None
        node = self.pick(data)
        if node is None:
            wanted = " | ".join([*self.members, "null"] if self.nullable else self.members)
            return _note(errors, at, f"Expected `{wanted}`, got `{_kind(data)}`")
        return self._ruled(data, node.read(data, at, errors), at, errors)

    def text(self, above: tuple[Node, ...]) -> str:
        return super().text(above) + "?" * self.nullable + _spell(self.rule)


class Tagged(Choice):
    """A union of dataclasses told apart by the text in one field."""

    def __init__(self, tag: str, records: dict[str, Record]) -> None:
        self.tag, self.records = tag, records
        self.below = tuple(dict.fromkeys(records.values()))

    def pick(self, data: Any) -> Node | None:
        name = data.get(self.tag) if isinstance(data, _MAPS) else None
        return self.records.get(name) if isinstance(name, str) else None

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        record = self.pick(data)
        if record is not None:
            return record.read(data, at, errors)
        if not _is_map(data, at, errors):
            return _BAD
        found = f"is {data[self.tag]!r}" if self.tag in data else "is missing"
        return _note(
            errors, (*at, self.tag), f"{found}; it must be one of {', '.join(map(repr, self.records))}"
        )

    def carry(self, old: Any, new: Any) -> Any:
        same = self.pick(old) is not None and old[self.tag] == new[self.tag]
        return super().carry(old, new) if same else new


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of a record; `default` makes its default and is None when there is none."""

    node: Node
    default: Callable[[], Any] | None


class Record(Node):
    """A frozen dataclass."""

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        self.made: type[Any] = get_origin(hint) or hint
        self.fields: dict[str, Field] = {}
        self.native = False  # whether msgspec can convert it whole
        self.clocked: list[tuple[str, Node]] = []  # the fields with datetimes in them
        self.after: Callable[[Any], None] | None = getattr(self.made, "__post_init__", None)

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        if self.native:
            try:
                value = _convert(data, self.hint, dec_hook=ref.decode_hook)
                if self.aware(data):
                    return value
            except Exception:
                pass  # read again below, field by field, to name them all
        if not _is_map(data, at, errors):
            return _BAD
        values = {name: self._field(name, field, data, at, errors) for name, field in self.fields.items()}
        return _BAD if any(value is _BAD for value in values.values()) else self._build(values, at, errors)

    def _field(self, name: str, field: Field, data: Mapping[str, Any], at: path.Path, errors: Errors) -> Any:
        if name in data:
            return field.node.read(data[name], (*at, name), errors)
        return _note(errors, (*at, name), "is missing") if field.default is None else field.default()

    def _build(self, values: dict[str, Any], at: path.Path, errors: Errors) -> Any:
        """An instance made as msgspec makes it: attributes first, then __post_init__."""
        value = object.__new__(self.made)
        for name, item in values.items():
            object.__setattr__(value, name, item)
        try:
            if self.after is not None:
                self.after(value)
        except Exception as error:
            return _note(errors, at, str(error) or type(error).__name__)
        return value

    def parts(self, data: Any) -> Parts:
        if not isinstance(data, _MAPS):
            return ()
        return ((name, field.node, data[name]) for name, field in self.fields.items() if name in data)

    def aware(self, data: Any) -> bool:
        # A plain loop, not `all`: this runs on each read of a record with datetimes.
        for name, node in self.clocked:  # noqa: SIM110
            if name in data and not node.aware(data[name]):
                return False
        return True

    def ref_paths(self, at: path.Path, above: tuple[Node, ...]) -> Iterator[str]:
        if self not in above:  # a contract inside itself has endlessly many paths; the first ones are indexed
            for name, field in self.fields.items():
                yield from field.node.ref_paths((*at, name), (*above, self))

    def unknown(self, data: Any) -> bool:
        return isinstance(data, _MAPS) and (not data.keys() <= self.fields.keys() or super().unknown(data))

    def carry(self, old: Any, new: Any) -> Any:
        if not isinstance(old, _MAPS):
            return new
        out = dict(new)
        for key, item in old.items():
            if key not in self.fields:
                out.setdefault(key, item)
            elif key in new:
                out[key] = self.fields[key].node.carry(item, new[key])
        return out

    def text(self, above: tuple[Node, ...]) -> str:
        if self in above:
            return f"^{len(above) - above.index(self)}"
        parts = [
            f"{name}{'' if field.default is None else '?'}:{field.node.text((*above, self))}"
            for name, field in sorted(self.fields.items())
        ]
        return "{" + ",".join(parts) + "}"


def _is_link(node: Node) -> bool:
    return isinstance(node, Link) or (
        isinstance(node, OneOf) and isinstance(node.members.get("scalar"), Link)
    )


def _reach(node: Node) -> Iterator[Node]:
    """Every node below this one and itself, each once."""
    seen, todo = {node}, [node]
    while todo:
        here = todo.pop()
        yield here
        fresh = [below for below in here.below if below not in seen]
        seen.update(fresh)
        todo += fresh


def _spell(hint: Any) -> str:
    """A type as text, without module names and memory addresses."""
    if hint is None:
        return ""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"Literal[{','.join(sorted(map(repr, args)))}]"
    if origin is Annotated:
        return _spell(args[0]) + "".join(
            sorted(repr(arg) for arg in args[1:] if isinstance(arg, msgspec.Meta))
        )
    if origin is Union or origin is UnionType:
        return "|".join(sorted(_spell(arg) for arg in args))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"Enum[{','.join(sorted(repr(member.value) for member in hint))}]"
    if args:
        return f"{_spell(origin)}[{','.join('...' if arg is ... else _spell(arg) for arg in args)}]"
    return hint.__name__ if hasattr(hint, "__name__") else repr(hint)


def _converted(hint: Any, data: Any, at: path.Path, errors: Errors) -> Any:
    try:
        return _convert(data, hint, dec_hook=ref.decode_hook)
    except Exception as error:
        return _note(errors, at, str(error).split(" - at ")[0])


def _is_map(data: Any, at: path.Path, errors: Errors) -> bool:
    if not isinstance(data, _MAPS):
        _note(errors, at, f"Expected `object`, got `{_kind(data)}`")
    elif not all(isinstance(key, str) for key in data):
        _note(errors, at, "has a key that is not `str`")
    else:
        return True
    return False


def _note(errors: Errors, at: path.Path, reason: str) -> Any:
    errors[path.text(at)] = reason
    return _BAD


def _kind(data: Any) -> str:
    return "null" if data is None else type(data).__name__


class _Compiler:
    """Makes nodes from type hints; each record once, so that a contract may contain itself."""

    def __init__(self) -> None:
        self.records: dict[Any, Record] = {}
        self.hints: dict[Any, dict[str, Any]] = {}

    def root(self, contract: Any) -> Record:
        made = get_origin(contract) or contract
        if not isinstance(made, type) or not dataclasses.is_dataclass(made):
            raise SchemaError(
                f"{contract!r} is no frozen dataclass", hint="a contract is a @dataclass(frozen=True)"
            )
        root = self._record(contract, made.__name__)
        for record in self.records.values():
            record.native = _takes(record.hint) is None
            record.clocked = [
                (name, field.node)
                for name, field in record.fields.items()
                if any(isinstance(node, Moment) for node in _reach(field.node))
            ]
        return root

    def _record(self, hint: Any, where: str) -> Record:
        if hint in self.records:
            return self.records[hint]
        record = self.records[hint] = Record(hint)
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
            record.fields[field.name] = Field(node, _default(field))
        record.below = [field.node for field in record.fields.values()]
        return record

    def _hints(self, hint: Any, where: str) -> dict[str, Any]:
        if hint not in self.hints:
            try:
                self.hints[hint] = _resolved(hint)
            except (NameError, TypeError, AttributeError) as error:
                raise SchemaError(
                    f"{where}: a type hint cannot be resolved: {error}",
                    hint="define the types it names at the top of their module",
                ) from None
        return self.hints[hint]

    def _node(self, hint: Any, where: str) -> Node:
        hint = _unalias(hint)
        origin = get_origin(hint)
        if hint is Any:
            return Node()
        if origin is Annotated:
            return self._annotated(hint, where)
        if origin is Union or origin is UnionType:
            return self._union(hint, where)
        if ref.is_ref(hint):
            return Link()
        kind = origin or hint
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return self._record(hint, where)
        if kind in (tuple, list, frozenset, dict, Sequence, Mapping):
            return self._container(kind, get_args(hint), hint, where)
        return _leaf(hint, where)

    def _annotated(self, hint: Any, where: str) -> Node:
        inner, *notes = get_args(hint)
        node = self._node(inner, where)
        if isinstance(node, Record) or not any(isinstance(note, msgspec.Meta) for note in notes):
            return node
        if isinstance(node, Leaf):
            return _leaf(hint, where)
        if (reason := _takes(hint)) is not None:
            raise SchemaError(f"{where}: {reason}", hint="put the constraint on its parts", field=where)
        node.rule = hint
        return node

    def _container(self, kind: Any, args: tuple[Any, ...], hint: Any, where: str) -> Node:
        if kind in (dict, Mapping):
            key, item = args or (str, Any)
            if _unalias(key) is not str:
                raise SchemaError(f"{where}: the keys of {_spell(hint)} must be str", field=where)
            return Table(self._node(item, where))
        if kind is tuple and args and args[-1] is not Ellipsis:
            return Fixed(tuple(self._node(item, f"{where}.{i}") for i, item in enumerate(args)))
        build = list if kind is Sequence else kind
        return Many(self._node(args[0], where) if args else Node(), build)

    def _union(self, hint: Any, where: str) -> Node:
        members = list(dict.fromkeys(_members(hint)))
        if Any in members:
            return Node()
        nullable = NoneType in members
        nodes = {member: self._node(member, where) for member in members if member is not NoneType}
        leaves = [member for member, node in nodes.items() if isinstance(node, Leaf)]
        if len(leaves) == len(nodes):
            return _leaf(Union[tuple(members)], where)  # noqa: UP007 - the members are known only now
        kinds: dict[str, list[Node]] = {"object": [], "array": [], "scalar": []}
        records = {member: node for member, node in nodes.items() if isinstance(node, Record)}
        if records:
            kinds["object"].append(
                self._tagged(records, where) if len(records) > 1 else next(iter(records.values()))
            )
        if leaves:
            kinds["scalar"].append(_leaf(Union[tuple(leaves)], where))  # noqa: UP007
        for node in nodes.values():
            if not isinstance(node, Leaf | Record):
                kinds[_place(node)].append(node)
        if any(len(found) > 1 for found in kinds.values()):
            raise SchemaError(
                f"{where}: the members of {_spell(hint)} look alike when stored",
                hint="use one of them, or dataclasses with a Literal field that tells them apart",
                field=where,
            )
        return OneOf(nullable, {kind: found[0] for kind, found in kinds.items() if found})

    def _tagged(self, records: dict[Any, Record], where: str) -> Tagged:
        choices = [_tags(self._hints(member, where)) for member in records]
        for tag in choices[0]:
            named: dict[str, Record] = {}
            for record, found in zip(records.values(), choices, strict=True):
                named |= dict.fromkeys(found.get(tag, ()), record)
            if all(tag in found for found in choices) and len(named) == sum(len(f[tag]) for f in choices):
                return Tagged(tag, named)
        names = " | ".join(record.made.__name__ for record in records.values())
        raise SchemaError(
            f"{where}: nothing tells the members of {names} apart",
            hint='give each a field of the same name with its own value, such as kind: Literal["a"] = "a"',
            field=where,
        )


def _resolved(hint: Any) -> dict[str, Any]:
    """The type hints of a dataclass, with the parameters of generic classes filled in."""
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
            out |= {name: _filled(resolved[name], scopes.get(base, {})) for name in own}
    return out


def _bind(hint: Any, outer: dict[Any, Any], scopes: dict[type, dict[Any, Any]]) -> None:
    made = get_origin(hint) or hint
    args = [_filled(arg, outer) for arg in get_args(hint)]
    scopes[made] = dict(zip(getattr(made, "__parameters__", ()), args, strict=False))
    for base in made.__dict__.get("__orig_bases__", made.__bases__):
        if (get_origin(base) or base) not in (Generic, object):
            _bind(base, scopes[made], scopes)


def _filled(hint: Any, scope: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return scope.get(hint, hint.__bound__ or Any)
    names = () if isinstance(hint, type) else getattr(hint, "__parameters__", ())
    return hint[tuple(_filled(name, scope) for name in names)] if names else hint


def _unalias(hint: Any) -> Any:
    """What a NewType or a `type X = ...` stands for."""
    while True:
        if hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            return NoneType if hint is None else hint


def _members(hint: Any) -> Iterator[Any]:
    """The members of a union, unions inside it opened up; any other type is its own only member."""
    hint = _unalias(hint)
    if get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from _members(member)
    else:
        yield hint


def _bare(hint: Any) -> Iterator[Any]:
    """The members of a union without their constraints."""
    for member in _members(hint):
        if get_origin(member) is Annotated:
            yield from _bare(get_args(member)[0])
        else:
            yield member


def _leaf(hint: Any, where: str) -> Leaf:
    scalars = list(_bare(hint))
    for scalar in scalars:
        known = scalar in _SCALARS or (isinstance(scalar, type) and issubclass(scalar, Enum))
        if not known and get_origin(scalar) is not Literal:
            fix = "use frozenset" if (get_origin(scalar) or scalar) is set else "use what JSON can hold"
            message = f"{where}: {_spell(scalar)} is not a type a contract may have"
            raise SchemaError(message, hint=fix, field=where)
    if (reason := _takes(hint)) is not None:
        raise SchemaError(f"{where}: {reason}", field=where)
    return Moment(hint) if datetime in scalars else Leaf(hint)


def _takes(hint: Any) -> str | None:
    """None when msgspec can convert to this type, and its reason when it cannot."""
    try:
        msgspec.json.Decoder(hint, dec_hook=ref.decode_hook)
    except Exception as error:
        return str(error)
    return None


def _tags(hints: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The fields whose hint is a Literal of texts."""
    found = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
    return {name: values for name, values in found.items() if all(isinstance(v, str) for v in values)}


def _place(node: Node) -> str:
    return "object" if isinstance(node, Table) else "scalar" if isinstance(node, Link) else "array"


def _default(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if field.default is not dataclasses.MISSING:
        return lambda: field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory


class Shape(Generic[T]):
    """A compiled contract: turns data into values and back, and knows where its links are.

    `label` is the contract's name, `fields` maps its fields to their types as text, `defaults` maps
    those that have one to what makes it, and `digest` is 16 hex letters that differ when the fields do.
    """

    def __init__(self, contract: type[T]) -> None:
        root = _Compiler().root(contract)
        below = list(_reach(root))
        self.contract = contract
        self.label = root.made.__name__
        self.fields = {name: field.node.text((root,)) for name, field in root.fields.items()}
        self.defaults = {name: f.default for name, f in root.fields.items() if f.default is not None}
        self.digest = hashlib.sha256(root.text(()).encode()).hexdigest()[:16]
        self.ref_paths: tuple[str, ...] = tuple(dict.fromkeys(root.ref_paths((), ())))
        self._root = root
        self._linked = any(isinstance(node, Link) for node in below)
        self._clocked = bool(root.clocked)
        # msgspec hands out what `Any` holds as it is; a copy keeps a value's owner from changing the datum.
        self._loose = any(type(node) is Node for node in below)
        self._quick = root.native and not self._loose

    def decode(self, data: dict[str, Any]) -> T:
        """The value of the data; DecodeFailed lists every wrong field in `details["fields"]`."""
        if self._quick:
            try:
                value: T = _convert(data, self.contract, dec_hook=ref.decode_hook)
                if not self._clocked or self._root.aware(data):
                    return value
            except Exception:
                pass  # read again below, field by field, to name them all
        errors: Errors = {}
        value = self._root.read(_copy(data) if self._loose else data, (), errors)
        if errors:
            message = f"the data is no {self.label}: {_list(errors)}"
            raise DecodeFailed(message, contract=self.label, fields=errors)
        return value

    def encode(self, value: T) -> dict[str, Any]:
        """The storable data of a value; InputError names every field whose type is wrong."""
        return self.settle(value)[0]

    def settle(self, value: T) -> tuple[dict[str, Any], T]:
        """The storable data of a value, and the value as everyone will read it back."""
        if not isinstance(value, self._root.made):
            raise InputError(f"a {type(value).__name__} is no {self.label}", contract=self.label)
        data: dict[str, Any] = codec.plain(value, enc_hook=ref.encode_hook)
        try:
            again = self.decode(data)
        except DecodeFailed as error:
            fields = error.details["fields"]
            raise InputError(f"{self.label}: {_list(fields)}", contract=self.label, fields=fields) from None
        # A text where the contract wants a datetime passes; writing it again brings it into its one form.
        return (codec.plain(again, enc_hook=ref.encode_hook) if self._clocked else data), again

    def carry(self, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        """New data plus what the old data holds that the contract does not know."""
        out: dict[str, Any] = self._root.carry(old, new)
        return out

    def refs(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The path and the id of every link in the data."""
        return list(self._root.refs(data, ())) if self._linked else []


def describe(contract: type[Any]) -> str:
    """16 hex letters that differ when a contract's fields, their types or which have defaults differ."""
    return Shape(contract).digest


def _list(errors: Errors) -> str:
    return "; ".join(f"{where}: {reason}" if where else reason for where, reason in errors.items())


def _copy(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copy(item) for key, item in data.items()}
    return [_copy(item) for item in data] if isinstance(data, list) else data
