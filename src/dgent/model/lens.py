"""Optics: read and change one part of an immutable value, or many parts at once.

    Lens        exactly one part        get, set
    Prism       one case of several     preview, review
    Affine      at most one part        preview, set
    Traversal   any number of parts     get_all, modify

`a >> b` looks with `b` inside what `a` found. MISSING says that nothing is there, so None stays an
ordinary value. Only `key` takes MISSING (it removes the key), so MISSING never ends up in data; once
a lens is composed with anything but a lens, finding MISSING counts as finding nothing.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar, overload

import msgspec

from dgent import codec
from dgent.errors import InputError
from dgent.model.path import MISSING, Missing

S = TypeVar("S")
A = TypeVar("A")
B = TypeVar("B")


class _Optic(Generic[S, A]):
    # Each optic writes its slots out: `slots=True` makes `Lens[X, Y](...)` raise in Python 3.11.
    __slots__: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # Copying slots sets attributes, which a frozen class refuses; calling the class works.
        return type(self), tuple(getattr(self, name) for name in self.__slots__)


@dataclasses.dataclass(frozen=True)
class Lens(_Optic[S, A]):
    """Exactly one part of a value."""

    __slots__ = ("get", "set")
    get: Callable[[S], A]
    set: Callable[[S, A], S]

    def modify(self, s: S, f: Callable[[A], A]) -> S:
        """Return a copy of `s` with `f` applied to the part."""
        return self.set(s, f(self.get(s)))

    @overload
    def __rshift__(self, other: Lens[A, B]) -> Lens[S, B]: ...
    @overload
    def __rshift__(self, other: Prism[A, B] | Affine[A, B]) -> Affine[S, B]: ...
    @overload
    def __rshift__(self, other: Traversal[A, B]) -> Traversal[S, B]: ...
    def __rshift__(self, other: Any) -> Any:
        return _compose(self, other)


@dataclasses.dataclass(frozen=True)
class Prism(_Optic[S, A]):
    """One case of a value that can be several things; `review` builds the whole from that case."""

    __slots__ = ("preview", "review")
    preview: Callable[[S], A | Missing]
    review: Callable[[A], S]

    def modify(self, s: S, f: Callable[[A], A]) -> S:
        """Return the whole built from the changed case, or `s` itself when it is another case."""
        found = self.preview(s)
        return s if found is MISSING else self.review(f(found))

    def set(self, s: S, a: A) -> S:
        """Return the whole built from `a`, or `s` itself when it is another case."""
        return self.modify(s, lambda _: a)

    @overload
    def __rshift__(self, other: Prism[A, B]) -> Prism[S, B]: ...
    @overload
    def __rshift__(self, other: Lens[A, B] | Affine[A, B]) -> Affine[S, B]: ...
    @overload
    def __rshift__(self, other: Traversal[A, B]) -> Traversal[S, B]: ...
    def __rshift__(self, other: Any) -> Any:
        return _compose(self, other)


@dataclasses.dataclass(frozen=True)
class Affine(_Optic[S, A]):
    """At most one part of a value; `set` changes nothing when the part is not there."""

    __slots__ = ("preview", "set")
    preview: Callable[[S], A | Missing]
    set: Callable[[S, A], S]

    def modify(self, s: S, f: Callable[[A], A]) -> S:
        """Return a copy of `s` with `f` applied to the part, or `s` itself when the part is not there."""
        found = self.preview(s)
        return s if found is MISSING else self.set(s, f(found))

    @overload
    def __rshift__(self, other: Lens[A, B] | Prism[A, B] | Affine[A, B]) -> Affine[S, B]: ...
    @overload
    def __rshift__(self, other: Traversal[A, B]) -> Traversal[S, B]: ...
    def __rshift__(self, other: Any) -> Any:
        return _compose(self, other)


@dataclasses.dataclass(frozen=True)
class Traversal(_Optic[S, A]):
    """Any number of parts of a value, in a fixed order."""

    __slots__ = ("get_all", "modify")
    get_all: Callable[[S], list[A]]
    modify: Callable[[S, Callable[[A], A]], S]

    def set(self, s: S, a: A) -> S:
        """Return a copy of `s` with every part replaced by `a`."""
        return self.modify(s, lambda _: a)

    def filter(self, pred: Callable[[A], bool]) -> Traversal[S, A]:
        """Return a traversal of the parts that satisfy `pred`; lawful for changes that keep it satisfied."""
        return Traversal(
            lambda s: [a for a in self.get_all(s) if pred(a)],
            lambda s, f: self.modify(s, lambda a: f(a) if pred(a) else a),
        )

    def __rshift__(self, other: Lens[A, B] | Prism[A, B] | Affine[A, B] | Traversal[A, B]) -> Traversal[S, B]:
        composed: Traversal[S, B] = _compose(self, other)
        return composed


def _compose(first: Any, second: Any) -> Any:
    match first, second:
        case Lens(), Lens():
            get, put = first.get, first.set
            return Lens(lambda s: second.get(get(s)), lambda s, b: put(s, second.set(get(s), b)))
        case Prism(), Prism():
            return Prism(_chain(first, second).preview, lambda b: first.review(second.review(b)))
        case (Traversal(), _Optic()) | (_, Traversal()):
            outer, inner = _as_traversal(first), _as_traversal(second)
            return Traversal(
                lambda s: [b for a in outer.get_all(s) for b in inner.get_all(a)],
                lambda s, f: outer.modify(s, lambda a: inner.modify(a, f)),
            )
        case _, _Optic():
            return _chain(_as_affine(first), _as_affine(second))
    return NotImplemented


def _chain(first: Any, second: Any) -> Affine[Any, Any]:
    def preview(s: Any) -> Any:
        found = first.preview(s)
        return MISSING if found is MISSING else second.preview(found)

    def put(s: Any, b: Any) -> Any:
        return s if preview(s) is MISSING else first.modify(s, lambda a: second.set(a, b))

    return Affine(preview, put)


def _as_affine(optic: Any) -> Affine[Any, Any]:
    if isinstance(optic, Lens):
        return Affine(optic.get, lambda s, a: s if optic.get(s) is MISSING else optic.set(s, _present(a)))
    return Affine(optic.preview, optic.set)


def _as_traversal(optic: Any) -> Traversal[Any, Any]:
    if isinstance(optic, Traversal):
        return optic
    affine = _as_affine(optic)
    return Traversal(lambda s: [a for a in [affine.preview(s)] if a is not MISSING], affine.modify)


def _present(value: A) -> A:
    if value is MISSING:
        raise InputError("MISSING cannot be put here", hint="set a key() lens to MISSING to remove that key")
    return value


def _part(what: str, has: Callable[[Any], bool], get: Callable[[Any], Any], put: Any) -> Lens[Any, Any]:
    """Return a lens that refuses a value without the part; in MISSING it finds MISSING, so lenses compose."""

    def check(s: Any) -> Any:
        if s is MISSING or not has(s):
            raise InputError(f"a {type(s).__name__} has no {what}")
        return s

    return Lens(
        lambda s: MISSING if s is MISSING else get(check(s)),
        lambda s, a: MISSING if s is MISSING and a is MISSING else put(check(s), a),
    )


def identity() -> Lens[S, S]:
    """Return the lens of the whole value."""
    return Lens(lambda s: s, lambda _, a: a)


def key(name: Hashable) -> Lens[Any, Any]:
    """Return the lens of a mapping's key; MISSING when absent, and setting MISSING removes the key."""

    def put(s: Any, a: Any) -> Any:
        changed = {**s, name: a}
        if a is MISSING:
            del changed[name]
        return changed

    return _part(
        f"keys, so no {name!r}", lambda s: isinstance(s, Mapping), lambda s: s.get(name, MISSING), put
    )


def field(name: str) -> Lens[Any, Any]:
    """Return the lens of a field of a dataclass, a struct or a pydantic model, which is changed on a copy."""

    def has(s: Any) -> bool:
        if isinstance(s, msgspec.Struct):
            return name in s.__struct_fields__
        if dataclasses.is_dataclass(s) and not isinstance(s, type):
            return any(known.name == name and known.init for known in dataclasses.fields(s))
        return name in (codec.model_fields(type(s)) or ())

    def put(s: Any, a: Any) -> Any:
        return codec.change_fields(s, {name: _present(a)})

    return _part(f"dataclass field {name!r} that can be set", has, lambda s: getattr(s, name), put)


def index(i: int) -> Lens[Any, Any]:
    """Return the lens of a position in a list or tuple; negative positions count from the end."""

    def put(s: Any, a: Any) -> Any:
        changed = list(s)
        changed[i] = _present(a)
        return _like(s, changed)

    return _part(
        f"item {i}", lambda s: isinstance(s, list | tuple) and -len(s) <= i < len(s), lambda s: s[i], put
    )


def attribute(name: str) -> Lens[Any, Any]:
    """Return the lens of an object's attribute, which is changed on a shallow copy."""

    def put(s: Any, a: Any) -> Any:
        changed = copy.copy(s)
        if changed is s:
            raise InputError(f"a {type(s).__name__} cannot be copied, so its {name!r} cannot be changed")
        try:
            setattr(changed, name, _present(a))
        except AttributeError as error:
            raise InputError(str(error), hint="use field() for a frozen dataclass") from None
        return changed

    return _part(f"attribute {name!r}", lambda s: hasattr(s, name), lambda s: getattr(s, name), put)


def optional_key(name: Hashable) -> Affine[Any, Any]:
    """Return the affine of a key, if the value is a mapping that has it; it never adds the key."""
    return _optional(key(name))


def optional_field(name: str) -> Affine[Any, Any]:
    """Return the affine of a field, if the value is a dataclass that has it."""
    return _optional(field(name))


def optional_index(i: int) -> Affine[Any, Any]:
    """Return the affine of a position, if the value is a list or tuple that is long enough."""
    return _optional(index(i))


def _optional(lens: Lens[Any, Any]) -> Affine[Any, Any]:
    def get(s: Any) -> Any:
        with suppress(InputError):
            return lens.get(s)
        return MISSING

    return _as_affine(Lens(get, lens.set))


def instance_of(cls: type[A]) -> Prism[Any, A]:
    """Return the prism of the value itself, if it is an instance of a class."""

    def review(a: A) -> Any:
        if not isinstance(a, cls):
            raise InputError(f"a {type(a).__name__} is not a {cls.__name__}")
        return a

    return Prism(lambda s: s if isinstance(s, cls) else MISSING, review)


def variant(tag_field: str, tag_value: Hashable) -> Prism[Any, dict[str, Any]]:
    """Return the prism of a mapping whose tag has one value: its other entries; `review` adds the tag."""

    def preview(s: Any) -> dict[str, Any] | Missing:
        tag = s.get(tag_field, MISSING) if isinstance(s, Mapping) else MISSING
        # 1 equals True, but only one of them is the tag that `review` puts back.
        if type(tag) is not type(tag_value) or tag != tag_value:
            return MISSING
        return {name: value for name, value in s.items() if name != tag_field}

    def review(a: dict[str, Any]) -> Any:
        if not isinstance(a, Mapping) or tag_field in a:
            raise InputError(f"the entries beside the tag must be a mapping without {tag_field!r}")
        return {tag_field: tag_value, **a}

    return Prism(preview, review)


def each() -> Traversal[Any, Any]:
    """Return the traversal of every item of a list or tuple."""

    def get_all(s: Any) -> list[Any]:
        if not isinstance(s, list | tuple):
            raise InputError(f"a {type(s).__name__} is not a list or tuple")
        return list(s)

    return Traversal(get_all, lambda s, f: _like(s, [_present(f(a)) for a in get_all(s)]))


def items() -> Traversal[Any, tuple[Any, Any]]:
    """Return the traversal of a mapping's (key, value) pairs; two keys that would become one are refused."""

    def get_all(s: Any) -> list[tuple[Any, Any]]:
        if not isinstance(s, Mapping):
            raise InputError(f"a {type(s).__name__} is not a mapping")
        return list(s.items())

    def modify(s: Any, f: Callable[[tuple[Any, Any]], tuple[Any, Any]]) -> Any:
        changed: dict[Any, Any] = {}
        for pair in map(f, get_all(s)):
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise InputError(f"a {type(pair).__name__} is not a (key, value) tuple")
            if pair[0] in changed:
                raise InputError(f"two keys would become {pair[0]!r}", hint="one value would be lost")
            changed[_present(pair[0])] = _present(pair[1])
        return changed

    return Traversal(get_all, modify)


def keys() -> Traversal[Any, Any]:
    """Return the traversal of a mapping's keys; two keys that would become one are refused."""
    return items() >> index(0)


def values() -> Traversal[Any, Any]:
    """Return the traversal of a mapping's values."""
    return items() >> index(1)


def _like(s: Any, changed: list[Any]) -> Any:
    """Return the items in a sequence of the same type as `s`."""
    if isinstance(s, list):
        copied = copy.copy(s)
        copied[:] = changed
        return copied
    # A named tuple takes its items as separate arguments; `_make` takes them together.
    return getattr(type(s), "_make", type(s))(changed)
