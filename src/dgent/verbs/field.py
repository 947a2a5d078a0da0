"""The fields of a verb's input, as a door reads them to offer the verb."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from dgent.verbs.registry import Ask, Verb


class VerbField:
    """One field: its name, type, help, default, and the extras that `argument` and `option` give it."""

    def __init__(self, name: str, hint: Any, required: bool, default: Any) -> None:
        self.name, self.required, self.default = name, required, default
        plain, meta = get_args(hint)
        self.help: str = meta.description
        extra = meta.extra or {}
        self.place, self.words = extra.get("place", False), extra.get("words", False)
        self.file, self.prompt = extra.get("file", False), extra.get("prompt", "")
        self.option = extra.get("name") or name.replace("_", "-")
        self.short, self.complete = extra.get("short", ""), extra.get("complete", "")
        kinds = get_args(plain) if get_origin(plain) in (Union, UnionType) else (plain,)
        self.kind = next(kind for kind in kinds if kind is not NoneType)
        self.many = get_origin(plain) is tuple
        self.choices = [str(each) for each in get_args(self.kind)] if get_origin(self.kind) is Literal else []


F = TypeVar("F", bound=VerbField)


_read: dict[tuple[type[Ask], type[VerbField]], tuple[Any, ...]] = {}


def fields_of(verb: Verb, kind: type[F]) -> tuple[F, ...]:
    """Return the fields of a verb's input in their order, each as a `kind` of Field."""
    known = _read.get((verb.input, kind))
    if known is None:  # reading the annotations takes longer than many a call
        known = _read[verb.input, kind] = tuple(_read_fields(verb.input, kind))
    return known


def _read_fields(input: type[Ask], kind: type[F]) -> list[F]:
    hints = get_type_hints(input, include_extras=True)
    fields = []
    for field in msgspec.structs.fields(input):
        default = (
            field.default_factory()
            if field.default is msgspec.NODEFAULT and not field.required
            else field.default
        )
        fields.append(kind(field.name, hints[field.name], field.required, default))
    return fields
