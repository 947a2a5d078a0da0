"""The places of a contract, and the data that fits each.

msgspec converts all it can in one call. The nodes do what it does not: unions of dataclasses, naming
every wrong field at once, finding links, and keeping fields that the contract does not know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from dgent import codec
from dgent.errors import InputError
from dgent.model import path, ref

Errors = dict[str, str]
Parts = Iterable[tuple[str, "ContractNode", Any]]

BAD: Any = object()  # what a reader gives after it noted an error
_ARRAYS = (list, tuple, set, frozenset)  # what msgspec takes for an array
_SETS = (set, frozenset)
_MAPS = (dict, Mapping)  # dict first: asking an abstract class takes longer
convert = msgspec.convert


class ContractNode:
    """One place in a contract; this class itself is `Any`, where everything fits and nothing is known."""

    below: Sequence[ContractNode] = ()
    rule: Any = None  # a constraint on a whole container, such as its length

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        """Return the value of the data, or BAD after adding the reason to `errors`."""
        return data

    def parts(self, data: Any) -> Parts:
        """Return the key, node and data of each place below; none for data that does not fit."""
        return ()

    def refs(self, data: Any, at: path.Path) -> Iterator[tuple[str, str]]:
        """Yield the path and id of each link in the data."""
        for key, node, item in self.parts(data):
            yield from node.refs(item, (*at, key))

    def ref_paths(self, at: path.Path, above: tuple[ContractNode, ...]) -> Iterator[str]:
        """Yield the paths that an engine indexes for links."""
        return iter(())

    def unknown(self, data: Any) -> bool:
        """Return whether the data holds a field that the contract does not know."""
        return any(node.unknown(item) for _, node, item in self.parts(data))

    def aware(self, data: Any) -> bool:
        """Return whether each datetime that msgspec accepted has a time zone; msgspec does not check that."""
        return all(node.aware(item) for _, node, item in self.parts(data))

    def carry(self, old: Any, new: Any) -> Any:
        """Return the new data plus the fields that only the old data has."""
        return new

    def text(self, above: tuple[ContractNode, ...]) -> str:
        """Return the type as text, the same in every process."""
        return "any"

    def _apply_rule(self, data: Any, value: Any, at: path.Path, errors: Errors) -> Any:
        if value is BAD or self.rule is None:
            return value
        return BAD if _convert(self.rule, data, at, errors) is BAD else value


class LeafNode(ContractNode):
    """A scalar, or a union of scalars, that msgspec converts."""

    def __init__(self, hint: Any) -> None:
        self.hint = hint

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        return _convert(self.hint, data, at, errors)

    def text(self, above: tuple[ContractNode, ...]) -> str:
        return spell(self.hint)


class MomentNode(LeafNode):
    """A datetime, possibly in a union with scalars that are not texts."""

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        value = super().read(data, at, errors)
        if isinstance(value, datetime) and value.tzinfo is None:
            return note_error(errors, at, "Expected `datetime` with a timezone component")
        return value

    def aware(self, data: Any) -> bool:
        if not isinstance(data, str) or data[-1:] == "Z":
            return True
        return any(mark in data[10:] for mark in "z+-")


class LinkNode(ContractNode):
    """A Ref."""

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        try:
            return ref.decode_hook(ref.Ref, data)
        except InputError as error:
            return note_error(errors, at, error.message)

    def refs(self, data: Any, at: path.Path) -> Iterator[tuple[str, str]]:
        if isinstance(data, str):
            yield path.text(at), data

    def ref_paths(self, at: path.Path, above: tuple[ContractNode, ...]) -> Iterator[str]:
        yield path.text(at)

    def text(self, above: tuple[ContractNode, ...]) -> str:
        return "ref"


class ListNode(ContractNode):
    """A tuple, list, frozenset or set of any length."""

    def __init__(self, item: ContractNode, build: type[Any]) -> None:
        self.item, self.build = item, build
        self.below = (item,)

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        if not isinstance(data, _ARRAYS):
            return note_error(errors, at, f"Expected `array`, got `{_kind(data)}`")
        values = [node.read(item, (*at, key), errors) for key, node, item in self.parts(data)]
        if any(value is BAD for value in values):
            return BAD
        try:
            return self._apply_rule(data, self.build(values), at, errors)
        except TypeError as error:  # a frozenset of something that cannot be hashed
            return note_error(errors, at, str(error))

    def parts(self, data: Any) -> Parts:
        if not isinstance(data, _ARRAYS):
            return ()
        return ((str(i), self.item, item) for i, item in enumerate(data))

    def ref_paths(self, at: path.Path, above: tuple[ContractNode, ...]) -> Iterator[str]:
        yield from self.item.ref_paths(at if _is_link(self.item) else (*at, path.EACH), above)

    def carry(self, old: Any, new: Any) -> Any:
        if not self.unknown(old):
            return new
        before = list(old)
        pairs = self._pair_equal(before, new)
        if self.build not in _SETS:
            _pair_changed(pairs, len(before), len(new))
        out = [self.item.carry(before[pairs[n]], item) if n in pairs else item for n, item in enumerate(new)]
        return sorted(out, key=codec.canonical) if self.build in _SETS else out

    def _pair_equal(self, old: Sequence[Any], new: Sequence[Any]) -> dict[int, int]:
        """Return the old place of each new item that the contract sees as equal.

        Equal items pair up in order; where some of them came or went, those in their old place first.
        """
        places, wanted = self._group(old), self._group(new)
        pairs: dict[int, int] = {}
        for known, now in wanted.items():
            was = places.get(known, [])
            if len(was) != len(now):
                stayed = {n: n for n in now if n in was}
                pairs |= stayed
                was, now = [n for n in was if n not in stayed], [n for n in now if n not in stayed]
            pairs |= dict(zip(now, was, strict=False))
        return pairs

    def _group(self, items: Sequence[Any]) -> dict[bytes | None, list[int]]:
        """Return the places of the items, grouped by what the contract sees of each."""
        places: dict[bytes | None, list[int]] = {}
        for place, item in enumerate(items):
            places.setdefault(self._encode_known(item), []).append(place)
        return places

    def _encode_known(self, data: Any) -> bytes | None:
        """Return what the contract sees of an item, defaults filled in, as comparable bytes."""
        errors: Errors = {}
        value = self.item.read(data, (), errors)
        return None if errors else codec.canonical(codec.plain([value], enc_hook=ref.encode_hook))

    def text(self, above: tuple[ContractNode, ...]) -> str:
        return f"{self.build.__name__}[{self.item.text(above)}]{spell(self.rule)}"


class TupleNode(ContractNode):
    """A tuple with one type per position."""

    def __init__(self, items: tuple[ContractNode, ...]) -> None:
        self.below = items

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        if not isinstance(data, _ARRAYS):
            return note_error(errors, at, f"Expected `array`, got `{_kind(data)}`")
        if len(data) != len(self.below):
            return note_error(errors, at, f"Expected `array` of length {len(self.below)}, got {len(data)}")
        values = tuple(node.read(item, (*at, key), errors) for key, node, item in self.parts(data))
        return BAD if any(value is BAD for value in values) else self._apply_rule(data, values, at, errors)

    def parts(self, data: Any) -> Parts:
        if not isinstance(data, _ARRAYS):
            return ()
        return ((str(i), node, item) for i, (node, item) in enumerate(zip(self.below, data, strict=False)))

    def ref_paths(self, at: path.Path, above: tuple[ContractNode, ...]) -> Iterator[str]:
        for node in self.below:
            yield from node.ref_paths(at if _is_link(node) else (*at, path.EACH), above)

    def carry(self, old: Any, new: Any) -> Any:
        if not isinstance(old, _ARRAYS) or len(old) != len(new):
            return new
        return [node.carry(was, now) for node, was, now in zip(self.below, old, new, strict=True)]

    def text(self, above: tuple[ContractNode, ...]) -> str:
        return f"tuple({','.join(node.text(above) for node in self.below)}){spell(self.rule)}"


class MapNode(ContractNode):
    """A dict from texts to values of one type."""

    def __init__(self, item: ContractNode) -> None:
        self.item = item
        self.below = (item,)

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        if not check_map(data, at, errors):
            return BAD
        values = {key: node.read(item, (*at, key), errors) for key, node, item in self.parts(data)}
        bad = any(value is BAD for value in values.values())
        return BAD if bad else self._apply_rule(data, values, at, errors)

    def parts(self, data: Any) -> Parts:
        return ((key, self.item, item) for key, item in data.items()) if isinstance(data, _MAPS) else ()

    def ref_paths(self, at: path.Path, above: tuple[ContractNode, ...]) -> Iterator[str]:
        yield from self.item.ref_paths((*at, path.EACH), above)

    def carry(self, old: Any, new: Any) -> Any:
        if not isinstance(old, _MAPS):
            return new
        return {key: self.item.carry(old[key], item) if key in old else item for key, item in new.items()}

    def text(self, above: tuple[ContractNode, ...]) -> str:
        return f"dict[{self.item.text(above)}]{spell(self.rule)}"


class UnionNode(ContractNode, ABC):
    """A union: the data decides which of the nodes below reads it."""

    @abstractmethod
    def pick(self, data: Any) -> ContractNode | None:
        """Return the node for this data, or None when there is none."""

    def parts(self, data: Any) -> Parts:
        node = self.pick(data)
        return () if node is None else node.parts(data)

    def refs(self, data: Any, at: path.Path) -> Iterator[tuple[str, str]]:
        node = self.pick(data)
        return iter(()) if node is None else node.refs(data, at)

    def ref_paths(self, at: path.Path, above: tuple[ContractNode, ...]) -> Iterator[str]:
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

    def text(self, above: tuple[ContractNode, ...]) -> str:
        return "(" + "|".join(sorted(node.text(above) for node in self.below)) + ")"


class KindUnionNode(UnionNode):
    """A union whose members differ in JSON: null, scalar, list or map."""

    def __init__(self, nullable: bool, members: dict[str, ContractNode]) -> None:
        self.nullable, self.members = nullable, members
        self.below = tuple(members.values())

    def pick(self, data: Any) -> ContractNode | None:
        if isinstance(data, _MAPS):
            return self.members.get("object")
        return self.members.get("array" if isinstance(data, _ARRAYS) else "scalar")

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        if data is None and self.nullable:
            return None
        node = self.pick(data)
        if node is None:
            wanted = " | ".join([*self.members, "null"] if self.nullable else self.members)
            return note_error(errors, at, f"Expected `{wanted}`, got `{_kind(data)}`")
        return self._apply_rule(data, node.read(data, at, errors), at, errors)

    def text(self, above: tuple[ContractNode, ...]) -> str:
        return super().text(above) + "?" * self.nullable + spell(self.rule)


class TaggedUnionNode(UnionNode):
    """A union of dataclasses that the text in one field distinguishes."""

    def __init__(self, tag: str, records: dict[str, RecordNode]) -> None:
        self.tag, self.records = tag, records
        self.below = tuple(dict.fromkeys(records.values()))

    def pick(self, data: Any) -> ContractNode | None:
        name = data.get(self.tag) if isinstance(data, _MAPS) else None
        return self.records.get(name) if isinstance(name, str) else None

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        record = self.pick(data)
        if record is not None:
            return record.read(data, at, errors)
        if not check_map(data, at, errors):
            return BAD
        found = f"is {data[self.tag]!r}" if self.tag in data else "is missing"
        return note_error(
            errors, (*at, self.tag), f"{found}; it must be one of {', '.join(map(repr, self.records))}"
        )

    def carry(self, old: Any, new: Any) -> Any:
        same = self.pick(old) is not None and old[self.tag] == new[self.tag]
        return super().carry(old, new) if same else new


class RecordField(msgspec.Struct, frozen=True):
    """One field of a record; `default` makes its default and is None when there is none."""

    node: ContractNode
    default: Callable[[], Any] | None


class RecordNode(ContractNode):
    """A frozen dataclass or struct."""

    rest: ContractNode | None = None  # the node of fields without a name; None: they are unknown

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        self.made: type[Any] = get_origin(hint) or hint
        self.fields: dict[str, RecordField] = {}
        self.native = False  # whether msgspec can convert it whole
        self.clocked: list[tuple[str, ContractNode]] = []  # the fields with datetimes in them
        self.after: Callable[[Any], None] | None = getattr(self.made, "__post_init__", None)

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        if self.native:
            try:
                value = convert(data, self.hint, dec_hook=ref.decode_hook)
                if self.aware(data):
                    return value
            except Exception:
                pass  # read again below, field by field, to name them all
        if not check_map(data, at, errors):
            return BAD
        values = {name: self._field(name, field, data, at, errors) for name, field in self.fields.items()}
        return BAD if any(value is BAD for value in values.values()) else self._build(values, at, errors)

    def _field(
        self, name: str, field: RecordField, data: Mapping[str, Any], at: path.Path, errors: Errors
    ) -> Any:
        if name in data:
            return field.node.read(data[name], (*at, name), errors)
        return note_error(errors, (*at, name), "is missing") if field.default is None else field.default()

    def _build(self, values: dict[str, Any], at: path.Path, errors: Errors) -> Any:
        """Return an instance made as msgspec makes it: attributes first, then __post_init__."""
        try:
            if issubclass(self.made, msgspec.Struct):
                return self.made(**values)
            value = object.__new__(self.made)
            for name, item in values.items():
                object.__setattr__(value, name, item)
            if self.after is not None:
                self.after(value)
        except Exception as error:
            return note_error(errors, at, explain(error))
        return value

    def parts(self, data: Any) -> Parts:
        if not isinstance(data, _MAPS):
            return ()
        return ((name, field.node, data[name]) for name, field in self.fields.items() if name in data)

    def aware(self, data: Any) -> bool:
        # A plain loop, not `all`: this runs on each read of a record with datetimes.
        for name, node in self.clocked:
            item = data.get(name)
            if item is None or (type(item) is str and item[-1:] == "Z"):
                continue  # as dgent writes them
            if not node.aware(item):
                return False
        return True

    def ref_paths(self, at: path.Path, above: tuple[ContractNode, ...]) -> Iterator[str]:
        if self not in above:  # a contract inside itself has endlessly many paths; the first ones are indexed
            for name, field in self.fields.items():
                yield from field.node.ref_paths((*at, name), (*above, self))

    def unknown(self, data: Any) -> bool:
        if not isinstance(data, _MAPS):
            return False
        return (self.rest is None and not data.keys() <= self.fields.keys()) or super().unknown(data)

    def carry(self, old: Any, new: Any) -> Any:
        if not isinstance(old, _MAPS):
            return new
        out = dict(new)
        for key, item in old.items():
            if key not in self.fields:
                if self.rest is None:
                    out.setdefault(key, item)
            elif key in new:
                out[key] = self.fields[key].node.carry(item, new[key])
        return out

    def text(self, above: tuple[ContractNode, ...]) -> str:
        if self in above:
            return f"^{len(above) - above.index(self)}"
        parts = [
            f"{name}{'' if field.default is None else '?'}:{field.node.text((*above, self))}"
            for name, field in sorted(self.fields.items())
        ]
        if self.rest is not None:
            parts.append(f"*:{self.rest.text((*above, self))}")
        return "{" + ",".join(parts) + "}"


class OpenNode(RecordNode):
    """Plain dicts, of a schema without a contract: any field may be there."""

    def __init__(self) -> None:
        super().__init__(dict[str, Any])
        self.rest = ContractNode()
        self.below = (self.rest,)

    def read(self, data: Any, at: path.Path, errors: Errors) -> Any:
        return dict(data) if check_map(data, at, errors) else BAD


def _pair_changed(pairs: dict[int, int], old: int, new: int) -> None:
    """Pair each other item with the unpaired old one at the same distance behind the same neighbour."""
    taken = set(pairs.values())
    here = -1
    for n in range(new):
        here = pairs.get(n, here + 1)
        if n not in pairs and here < old and here not in taken:
            pairs[n] = here
            taken.add(here)


def _is_link(node: ContractNode) -> bool:
    return isinstance(node, LinkNode) or (
        isinstance(node, KindUnionNode) and isinstance(node.members.get("scalar"), LinkNode)
    )


def reach(node: ContractNode) -> Iterator[ContractNode]:
    """Yield every node below this one and itself, each once."""
    seen, todo = {node}, [node]
    while todo:
        here = todo.pop()
        yield here
        fresh = [below for below in here.below if below not in seen]
        seen.update(fresh)
        todo += fresh


def spell(hint: Any) -> str:
    """Return a type as text, without module names and memory addresses."""
    if hint is None:
        return ""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"Literal[{_join(map(repr, args))}]"
    if origin is Annotated:
        limits = (repr(arg) for arg in args[1:] if isinstance(arg, msgspec.Meta))
        return spell(args[0]) + _join(limits, "")
    if origin is Union or origin is UnionType:
        return _join(map(spell, args), "|")
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"Enum[{_join(repr(member.value) for member in hint)}]"
    if args:
        return f"{spell(origin)}[{','.join('...' if arg is ... else spell(arg) for arg in args)}]"
    return hint.__name__ if hasattr(hint, "__name__") else repr(hint)


def _join(texts: Iterable[str], by: str = ",") -> str:
    """Join texts whose order says nothing."""
    return by.join(sorted(texts))


def _convert(hint: Any, data: Any, at: path.Path, errors: Errors) -> Any:
    try:
        return convert(data, hint, dec_hook=ref.decode_hook)
    except Exception as error:
        return note_error(errors, at, str(error).split(" - at ")[0])


def check_map(data: Any, at: path.Path, errors: Errors) -> bool:
    """Return whether data is a map with text keys; adds the reason to `errors` when it is not."""
    if not isinstance(data, _MAPS):
        note_error(errors, at, f"Expected `object`, got `{_kind(data)}`")
    elif not all(isinstance(key, str) for key in data):
        note_error(errors, at, "has a key that is not `str`")
    else:
        return True
    return False


def note_error(errors: Errors, at: path.Path, reason: str) -> Any:
    """Add a reason to `errors` and return BAD."""
    errors[path.text(at)] = reason
    return BAD


def explain(error: Exception) -> str:
    """Return the text of an error that is not dgent's own; the name of its type when it has none."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _kind(data: Any) -> str:
    return "null" if data is None else type(data).__name__
