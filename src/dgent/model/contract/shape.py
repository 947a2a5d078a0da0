"""A contract compiled once: data to value, value to data, and the places of its links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from dgent import codec
from dgent.errors import Corrupt, DecodeFailed, InputError
from dgent.model import ref
from dgent.model.contract.compile import Compiler
from dgent.model.contract.lookup import Lookup
from dgent.model.contract.node import ContractNode, Errors, LeafNode, LinkNode, RecordNode, convert, reach

T = TypeVar("T")


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
        self.quick: Callable[[bytes | None], T] | None = None
        if self._native and not self._clocked:
            self.quick = msgspec.json.Decoder(contract, dec_hook=ref.decode_hook).decode  # type: ignore[assignment]

    @cached_property
    def digest(self) -> str:
        """16 hex letters that differ when the fields do."""
        import hashlib  # loads OpenSSL, and only a schema that is declared needs it

        return hashlib.sha256(self._root.text(()).encode()).hexdigest()[:16]

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
            again = self.decode(data)
        except DecodeFailed as error:
            fields = error.details["fields"]
            raise InputError(f"{self.label}: {_list(fields)}", contract=self.label, fields=fields) from None
        # A text where the contract wants a datetime passes; writing it again brings it into its one form.
        return (codec.plain(again, enc_hook=ref.encode_hook) if self._clocked else data), again

    def _settle_flat(self, value: T) -> dict[str, Any] | None:
        """Return the data of a value whose fields hold exactly the scalars that the contract names.

        Such a value is read back unchanged. None when that is not so, or not certain.
        """
        if type(value) is not self._root.made or not self._flat:
            return None
        data = {}
        for name, kinds in self._flat.items():
            item = getattr(value, name, ...)  # a field that init leaves out may not be there
            kind = type(item)
            if kind not in kinds or not _SAFE[kind](item):
                return None
            data[name] = item
        return data

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
    int: lambda number: -(2**63) <= number < 2**63,
    float: isfinite,
    bool: lambda _: True,
    NoneType: lambda _: True,
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
