"""One tool: a group of verbs, with arguments that are made from their fields, and checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, get_origin

import msgspec

from dgent.doors.tools.answer import AnswerPart
from dgent.doors.tools.catalog import GROUPS, VerbUse
from dgent.errors import InputError
from dgent.system.near import ask, find_near
from dgent.verbs import registry
from dgent.verbs.field import VerbField, fields_of

MAX_ARGUMENTS = 1_000_000  # characters of arguments that come as JSON text, and of one text among them
MAX_NUMBER = 2**53  # JSON numbers are exact up to here
EMPTY: tuple[Any, ...] = (None, "", [], {}, ())
"""Values that models fill in for an argument that they leave out."""
_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", Any: ""}
_WANTED = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list of texts",
}
_TERMINAL = re.compile(r"^- |standard input|- reads it|more than once")  # clauses about the command line


class ToolField(VerbField):
    """One field of a verb, as a tool takes it; without a type it takes any JSON value."""

    @property
    def type(self) -> str:
        """The name of its type in JSON schema."""
        return "array" if self.many else "string" if self.choices else _TYPES[self.kind]

    @property
    def sentence(self) -> str:
        """Its help, without what is said of the command line."""
        return "; ".join(each for each in self.help.split("; ") if not _TERMINAL.search(each))

    def convert(self, value: Any) -> Any:
        """Return a value of its type, or raise InputError with what to change."""
        value = self._adapt(value)
        if not self._fits(value):
            raise self._wrong(value)
        if self.choices and value not in self.choices:
            raise InputError(
                f"{self.name} cannot be {describe(value)}", hint=suggest(value, self.choices), field=self.name
            )
        for text in value if self.type == "array" else [value] if self.type == "string" else ():
            _check_text(self.name, text)
        return value

    def _adapt(self, value: Any) -> Any:
        """Return a value that models write in another type: one text for a list, a number for a text."""
        if isinstance(value, str) and self.type == "array":
            return [value]
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        if not -MAX_NUMBER < value < MAX_NUMBER:  # nor is NaN
            raise self._wrong(value)
        whole = int(value) if value == int(value) else value  # JSON has one kind of number
        return str(whole) if self.type == "string" else whole if self.type == "integer" else value

    def _fits(self, value: Any) -> bool:
        if self.type == "array":
            return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
        kinds: dict[str, Any] = {"string": str, "integer": int, "boolean": bool, "number": (int, float)}
        return not self.type or (
            isinstance(value, kinds[self.type]) and isinstance(value, bool) == (self.type == "boolean")
        )

    def _wrong(self, value: Any) -> InputError:
        wanted = _WANTED.get(self.type, "a JSON value")
        return InputError(
            f"{self.name} must be {wanted}, not {describe(value)}",
            hint=f"{self.name}: {self.sentence}",
            field=self.name,
        )


class Parameter(NamedTuple):
    """One argument of a tool: what the fields of this name are in all its operations."""

    name: str
    type: str
    choices: tuple[str, ...]
    description: str

    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""
        made: dict[str, Any] = {"type": self.type} if self.type else {}
        if self.type == "array":
            made["items"] = {"type": "string"}
        if self.choices:
            made["enum"] = list(self.choices)
        return {**made, "description": self.description}


def merge(name: str, used: Mapping[str, ToolField], operations: int) -> Parameter:
    """Return the argument for the fields of one name, given by operation, of so many operations."""
    types = {each.type for each in used.values()}
    type = "string" if types == {"string", "array"} else types.pop() if len(types) == 1 else ""
    choices = {each: None for field in used.values() for each in field.choices}
    if not all(field.choices for field in used.values()):
        choices = {}
    said: dict[str, list[str]] = {}
    for operation, field in used.items():
        said.setdefault(field.sentence, []).append(operation)
    ordered = sorted(said, key=lambda sentence: -len(said[sentence]))
    parts = [f"{', '.join(said[each])}: {each}" for each in ordered]
    if len(said[ordered[0]]) > operations / 3:
        parts[0] = ordered[0]  # it holds nearly everywhere, and exceptions follow
    return Parameter(name, type, tuple(choices), "; ".join(parts))


def read_arguments(arguments: object) -> Mapping[str, Any]:
    """Return arguments as a map; they may come as JSON text."""
    if arguments is None:
        return {}
    if isinstance(arguments, str | bytes | bytearray):
        if len(arguments) > MAX_ARGUMENTS:
            raise InputError(
                f"the arguments are {len(arguments)} characters; at most {MAX_ARGUMENTS} are read",
                hint="write a long text in parts, with append",
            )
        try:
            arguments = msgspec.json.decode(arguments) if arguments.strip() else {}
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InputError(f"the arguments are not JSON: {error}", hint="give one JSON object") from None
        except RecursionError:
            raise InputError("the arguments are nested too deeply") from None
    if not isinstance(arguments, Mapping):
        raise InputError(
            f"the arguments must be a JSON object, not {describe(arguments)}", hint='give {"operation": "…"}'
        )
    return arguments


def suggest(word: object, known: Iterable[str]) -> str:
    """Return a hint with the known words that are near one, or with all of them."""
    words = list(known)
    near = find_near(word, words, 3, 0.7) if isinstance(word, str) else []
    return ask(near) or f"use one of {', '.join(words)}"


def describe(value: object) -> str:
    """Return the beginning of a value for a message; never fails, whatever the value is."""
    try:
        return f"{value!r:.80}"
    except (ValueError, RecursionError):  # a number of thousands of digits, a list in a list in a list
        return f"this {type(value).__name__}"


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


# -- operations and tools ---------------------------------------------------------------------

ROWS = 20  # of a list whose verb has no limit of its own, or one that is too high for a tool


_OFFSET = ToolField(
    "offset",
    Annotated[
        int, msgspec.Meta(description="where to go on when an answer was cut: the answer says the number")
    ],
    False,
    0,
)


class ToolOperation:
    """One operation of a tool: a verb, the fields that a model may give, and those that it must give."""

    def __init__(self, name: str, use: VerbUse) -> None:
        self.name, self.use = name, use
        self.verb = registry.find(use.verb)
        own = {each.name: each for each in fields_of(self.verb, ToolField)}
        output = get_origin(self.verb.output) or self.verb.output
        answer = getattr(output, "__struct_fields__", ())
        self.limits = "items" in answer and "limit" in own  # the verb itself answers only so many
        self.skips = "offset" in own  # and from one on
        long = "text" in answer or ("items" in answer and not self.limits)
        if long and self.verb.effect == "read" and not self.skips:
            own["offset"] = _OFFSET
        self.fields = {each: field for each, field in own.items() if each not in use.hide}
        needed = [each for each, field in self.fields.items() if field.required or each in use.needs]
        self.needs = tuple(needed)

    def read(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], AnswerPart]:
        """Return what the verb is called with, and which part of its answer is shown.

        Empty values are as if they were left out, unless the operation needs them.
        """
        name = self.name or "it"
        takes = ", ".join(self.fields) or "nothing"
        values = dict(self.use.preset)
        for each, value in given.items():
            field = self.fields.get(each)
            if field is None and value not in EMPTY:
                raise InputError(f"{name} takes no {each}", hint=f"it takes {takes}", field=each)
            if field is not None and value is not None and (each in self.needs or value not in EMPTY):
                values[each] = field.convert(value)
        for each in self.needs:
            if each not in values:
                raise InputError(
                    f"{name} needs {each}", hint=f"{each}: {self.fields[each].sentence}", field=each
                )
        return values, self._part(values)

    def _part(self, values: dict[str, Any]) -> AnswerPart:
        offset = max(values.get("offset") or 0, 0)
        if "offset" in self.fields and not self.skips:
            values.pop("offset", None)
        if not self.limits:
            return AnswerPart(offset, self.use.rows, None, "offset" in self.fields)
        default = self.fields["limit"].default
        limit = values.setdefault("limit", default if default and default <= self.use.rows else ROWS)
        if not 1 <= limit <= self.use.rows:
            raise InputError(f"limit is from 1 to {self.use.rows}, not {limit}", field="limit")
        return AnswerPart(offset, self.use.rows, limit, self.skips)


class Tool(NamedTuple):
    """A tool as it is offered. One without names of operations has a single one."""

    name: str
    description: str
    operations: Mapping[str, ToolOperation]
    parameters: Mapping[str, Parameter]
    needs: tuple[str, ...]

    def schema(self) -> dict[str, Any]:
        """Return its name, description, and parameters as flat JSON schema."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": {
                "type": "object",
                "properties": {each.name: each.schema() for each in self.parameters.values()},
                "required": list(self.needs),
                "additionalProperties": False,
            },
        }

    def read(self, arguments: object) -> tuple[ToolOperation, dict[str, Any], AnswerPart]:
        """Return the operation that is meant, with what its verb is called with."""
        given = {
            each: value
            for each, value in read_arguments(arguments).items()
            if each in self.parameters or value not in EMPTY
        }
        for each in given:
            if each not in self.parameters:
                raise InputError(
                    f"there is no argument {describe(each)}", hint=suggest(each, self.parameters)
                )
        operation = self.operations.get("")
        if operation is None:
            wanted = given.pop("operation", None)
            if wanted in EMPTY:
                raise InputError(
                    "operation is needed", hint=suggest(None, self.operations), field="operation"
                )
            if not isinstance(wanted, str) or wanted not in self.operations:
                hint = suggest(wanted, self.operations)
                raise InputError(f"operation cannot be {describe(wanted)}", hint=hint, field="operation")
            operation = self.operations[wanted]
        return operation, *operation.read(given)


@cache
def tool_of(name: str) -> Tool:
    """Return a tool by its name; the modules of its verbs load now."""
    group = GROUPS[name]
    operations = {each: ToolOperation(each, use) for each, use in group.operations.items()}
    used: dict[str, dict[str, ToolField]] = {}
    for each, operation in operations.items():
        for field in operation.fields.values():
            used.setdefault(field.name, {})[each] = field
    parameters = {each: merge(each, fields, len(operations)) for each, fields in used.items()}
    for each, said in (group.says or {}).items():
        parameters[each] = parameters[each]._replace(description=said)
    if "" in operations:
        return Tool(name, group.about, operations, parameters, operations[""].needs)
    lines = [] if group.says else [f"{each}: {use.verb.help}" for each, use in operations.items()]
    choice = Parameter("operation", "string", tuple(operations), "what to do")
    description = "\n".join([group.about, *lines])
    return Tool(name, description, operations, {"operation": choice, **parameters}, ("operation",))
