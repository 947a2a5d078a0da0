"""What a tool takes: read from the signature of its function, told as a flat JSON schema, and checked.

The signature is the one truth: a framework that inspects functions and one that wants a schema see the same.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from dgent.errors import InputError

MAX_ARGUMENTS = 1_000_000  # characters of arguments that come as JSON text, and of one text among them
MAX_NUMBER = 2**53  # JSON numbers are exact up to here
_TYPES: dict[Any, str] = {str: "string", int: "integer", bool: "boolean", list[str]: "array", Any: ""}
_WANTED = {
    "string": "a text",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list of texts",
}
EMPTY: tuple[Any, ...] = (None, "", [], {})
"""What models fill in for an argument that they leave out."""


@dataclass(frozen=True)
class Parameter:
    """One argument of a tool. Without a type it takes any JSON value."""

    name: str
    type: str
    description: str
    required: bool
    choices: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """It as JSON schema."""
        made: dict[str, Any] = {"type": self.type} if self.type else {}
        if self.type == "array":
            made["items"] = {"type": "string"}
        if self.choices:
            made["enum"] = list(self.choices)
        return {**made, "description": self.description}

    def checked(self, value: Any) -> Any:
        """A value that fits, or what to change."""
        if self.type == "integer" and isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON knows one kind of number
        if not self._fits(value):
            raise InputError(
                f"{self.name} must be {_WANTED[self.type]}, not {told(value)}",
                hint=f"{self.name}: {self.description}",
                field=self.name,
            )
        if self.choices and value not in self.choices:
            raise InputError(
                f"{self.name} cannot be {told(value)}", hint=hint(value, self.choices), field=self.name
            )

        for text in value if self.type == "array" else [value] if self.type == "string" else ():
            _check_text(self.name, text)
        return value

    def _fits(self, value: Any) -> bool:
        if self.type == "array":
            return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
        if self.type == "integer":
            return type(value) is int and -MAX_NUMBER < value < MAX_NUMBER
        return not self.type or type(value) is {"string": str, "boolean": bool}[self.type]


def _check_text(name: str, text: str) -> None:
    if len(text) > MAX_ARGUMENTS:
        raise InputError(
            f"{name} has {len(text)} characters; at most {MAX_ARGUMENTS} are taken at once",
            hint="write a long text in parts, with append",
            field=name,
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name} contains half of a surrogate pair", field=name) from None


def parameters_of(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    """The arguments of a tool by name."""
    # By the function itself: a bound method would keep its library.
    return _parameters(getattr(function, "__func__", function))


@cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    hints = get_type_hints(function, include_extras=True)
    found: dict[str, Parameter] = {}
    for name, each in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        plain, description = get_args(hints[name])
        required = each.default is inspect.Parameter.empty
        if get_origin(plain) in (Union, UnionType):
            plain = next(kind for kind in get_args(plain) if kind is not NoneType)
        choices = get_args(plain) if get_origin(plain) is Literal else ()
        kind = "string" if choices else _TYPES[plain]
        found[name] = Parameter(name, kind, description, required, choices)
    return found


def schema_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """A tool as models are told of it: its name, what it is for, and what it takes."""
    known = parameters_of(function)
    return {
        "name": name,
        "description": inspect.getdoc(function) or "",
        "parameters": {
            "type": "object",
            "properties": {each.name: each.schema() for each in known.values()},
            "required": [each.name for each in known.values() if each.required],
            "additionalProperties": False,
        },
    }


def read(arguments: object) -> Mapping[str, Any]:
    """Arguments as a map; they may come as JSON text."""
    if arguments is None:
        return {}
    if isinstance(arguments, str | bytes | bytearray):
        if len(arguments) > MAX_ARGUMENTS:
            raise InputError(
                f"the arguments are {len(arguments)} characters; at most {MAX_ARGUMENTS} are read",
                hint="write a long text in parts, with append",
            )
        arguments = _decoded(arguments)
    if not isinstance(arguments, Mapping):
        raise InputError(
            f"the arguments must be a JSON object, not {told(arguments)}", hint='give {"operation": "…"}'
        )
    return arguments


def _decoded(text: str | bytes | bytearray) -> Any:
    try:
        return msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InputError(f"the arguments are no JSON: {error}", hint="give one JSON object") from None
    except RecursionError:
        raise InputError("the arguments are nested too deeply") from None


def checked(known: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that were given, each of its type; null is as if it were left out."""
    for name in given:
        if name not in known:
            raise InputError(f"there is no argument {told(name)}", hint=hint(name, known))
    missing = [each for each in known.values() if each.required and given.get(each.name) in EMPTY]
    if missing:
        first = missing[0]
        wanted = f"one of {', '.join(first.choices)}" if first.choices else first.description
        raise InputError(f"{first.name} is needed", hint=f"give {first.name}: {wanted}", field=first.name)
    return {
        name: known[name].checked(value)
        for name, value in given.items()
        if value is not None and not (value == "" and known[name].choices)
    }


def hint(word: object, known: Iterable[str]) -> str:
    """The known words that are near one, or all of them."""
    words = list(known)
    near = difflib.get_close_matches(word[:80], words, 3, 0.7) if isinstance(word, str) else []
    return f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(words)}"


def told(value: object) -> str:
    """The beginning of a value, for a message: whatever it is, telling it never fails."""
    try:
        return f"{value!r:.80}"
    except (ValueError, RecursionError):  # a number of thousands of digits, a list in a list in a list
        return f"this {type(value).__name__}"
