"""One tool: a group of verbs under one name, with the arguments that they take together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple

import msgspec

from dgent.doors.tools.answer import AnswerPart
from dgent.doors.tools.catalog import GROUPS, VerbUse
from dgent.doors.tools.parameter import EMPTY, Parameter, ToolField, describe, merge, read_arguments, suggest
from dgent.errors import InputError
from dgent.verbs import registry
from dgent.verbs.field import fields_of

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
        answer = getattr(self.verb.output, "__struct_fields__", ())
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
        given = dict(read_arguments(arguments))
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
    if "" in operations:
        return Tool(name, group.about, operations, parameters, operations[""].needs)
    lines = [f"{each}: {operation.verb.help}" for each, operation in operations.items()]
    choice = Parameter("operation", "string", tuple(operations), "what to do")
    description = "\n".join([group.about, *lines])
    return Tool(name, description, operations, {"operation": choice, **parameters}, ("operation",))
