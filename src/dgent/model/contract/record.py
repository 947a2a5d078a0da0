"""The classes that can be records of a contract: frozen dataclasses, frozen structs, pydantic models."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from dgent import codec
from dgent.errors import SchemaError


def is_record(kind: Any) -> bool:
    """Return whether values of a class can be records: dataclasses, structs and pydantic models."""
    if not isinstance(kind, type):
        return False
    is_model = codec.model_fields(kind) is not None
    return is_model or dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)


def check_record(made: Any, where: str) -> None:
    """Refuse a class whose values can change, and a struct that is not stored as a map of its fields."""
    is_struct = issubclass(made, msgspec.Struct)
    if not (made.__struct_config__ if is_struct else made.__dataclass_params__).frozen:
        fix = (
            f"class {made.__name__}(msgspec.Struct, frozen=True)" if is_struct else "@dataclass(frozen=True)"
        )
        raise SchemaError(f"{where}: {made.__name__} is not frozen", hint=f"write {fix}", field=where)
    if not is_struct:
        return
    config = made.__struct_config__
    options = {
        "rename": made.__struct_fields__ != made.__struct_encode_fields__,
        "tag": config.tag is not None,
        "array_like": config.array_like,
        "omit_defaults": config.omit_defaults,
        "forbid_unknown_fields": config.forbid_unknown_fields,
    }
    option = next((option for option, is_set in options.items() if is_set), None)
    if option is not None:
        raise SchemaError(
            f"{where}: {made.__name__} has the option {option}, which a contract cannot keep",
            hint=f"leave {option} out: {_WHY[option]}",
            field=where,
        )


_WHY = {
    "rename": "data is stored under the names of the fields, by which queries find it",
    "tag": 'a field such as kind: Literal["a"] = "a" tells the members of a union apart',
    "array_like": "data is stored as a map",
    "omit_defaults": "data is stored with every field",
    "forbid_unknown_fields": "fields that the contract does not know are carried along",
}


def list_defaults(made: Any) -> Iterator[tuple[str, Callable[[], Any] | None]]:
    """Yield each field of a dataclass or struct, with the factory of its default."""
    fields: Sequence[Any] = (
        msgspec.structs.fields(made) if issubclass(made, msgspec.Struct) else dataclasses.fields(made)
    )
    for field in fields:
        yield field.name, _default(field)


def _default(field: Any) -> Callable[[], Any] | None:
    if not _is_missing(field.default):
        return lambda: field.default
    factory: Callable[[], Any] = field.default_factory
    return None if _is_missing(factory) else factory


def _is_missing(default: object) -> bool:
    return default is dataclasses.MISSING or default is msgspec.NODEFAULT


def model_default(field: Any) -> Callable[[], Any]:
    """Return the factory of the default of a model's field; one that needs other fields raises."""
    return lambda: field.get_default(call_default_factory=True, validated_data={})


def resolve_hints(hint: Any) -> dict[str, Any]:
    """Return the type hints of a record's class, with the parameters of generic classes filled in."""
    made = get_origin(hint) or hint
    if codec.model_fields(made) is not None:
        return {name: field.annotation for name, field in made.__pydantic_fields__.items()}
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
            out |= {name: substitute(resolved[name], scopes.get(base, {})) for name in own}
    return out


def _bind(hint: Any, outer: dict[Any, Any], scopes: dict[type, dict[Any, Any]]) -> None:
    made = get_origin(hint) or hint
    args = [substitute(arg, outer) for arg in get_args(hint)]
    scopes[made] = dict(zip(getattr(made, "__parameters__", ()), args, strict=False))
    for base in made.__dict__.get("__orig_bases__", made.__bases__):
        if (get_origin(base) or base) not in (Generic, object):
            _bind(base, scopes[made], scopes)


def substitute(hint: Any, scope: dict[Any, Any]) -> Any:
    """Return a type with its parameters filled in; by their bound or Any where the scope has none."""
    if isinstance(hint, TypeVar):
        return scope.get(hint, hint.__bound__ or Any)
    names = () if isinstance(hint, type) else getattr(hint, "__parameters__", ())
    return hint[tuple(substitute(name, scope) for name in names)] if names else hint
