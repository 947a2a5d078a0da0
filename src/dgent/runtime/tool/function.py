"""Python functions as tools: the schema comes from their annotations and docstring.

def add(a: int, b: Annotated[int, "the second number"] = 1) -> int:
    "Add two numbers."

function_tool(add, effect="read")
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from dgent.errors import InputError
from dgent.runtime.tool.tool import Call, Effect, Kind, Run, Tool

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SECTION = re.compile(r"\s*(Args|Arguments|Parameters):\s*")
_ARGUMENT = re.compile(r"\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s+(\S.*)")
_PLACE = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_REF = "#/$defs/"


def function_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    effect: Effect = "write",
    kind: Kind = "other",
    repeatable: bool | None = None,
) -> Tool:
    """Return a function, sync or async, as a tool; InputError if a model could not call it.

    A sync function runs on a thread. A parameter annotated `Call` gets the circumstances of the call, and is
    not shown to the model. Without `repeatable`, functions that only read are.
    """
    tool_name = name or str(getattr(function, "__name__", ""))
    if not _NAME.fullmatch(tool_name):
        raise InputError(
            f"{tool_name!r} is not a valid name of a tool", hint="pass name=, of letters, digits, _ and -"
        )
    text, helps = parse_docstring(inspect.getdoc(function) or "")
    fields, context = _fields_of(function, tool_name, helps)
    shape = msgspec.defstruct(tool_name.replace("-", "_"), fields, kw_only=True, forbid_unknown_fields=True)
    return Tool(
        tool_name,
        text or tool_name,
        _flat_schema(shape, tool_name),
        _runner(function, shape, context, tool_name),
        effect,
        kind,
        effect == "read" if repeatable is None else repeatable,
    )


def _runner(function: Callable[..., Any], shape: type[Any], context: str | None, tool: str) -> Run:
    waits = inspect.iscoroutinefunction(function)

    async def run(arguments: Mapping[str, Any], call: Call) -> Any:
        given = _convert(arguments, shape, tool)
        if context is not None:
            given[context] = call
        if waits:
            return await function(**given)
        found = await asyncio.to_thread(partial(function, **given))
        return await found if inspect.isawaitable(found) else found

    return run


def _convert(arguments: Mapping[str, Any], shape: type[Any], tool: str) -> dict[str, Any]:
    """Return arguments as the function takes them; None for one that may be left out counts as left out."""
    optional = {each.name for each in msgspec.structs.fields(shape) if not each.required}
    kept = {name: value for name, value in arguments.items() if value is not None or name not in optional}
    try:
        # Models write "5" for 5 now and then.
        made = msgspec.convert(kept, shape, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        fields = ", ".join(each.name for each in msgspec.structs.fields(shape)) or "no arguments"
        raise InputError(_explain(str(error), tool), hint=f"{tool} takes {fields}") from None
    return {each.name: getattr(made, each.name) for each in msgspec.structs.fields(shape)}


def _explain(text: str, tool: str) -> str:
    place = _PLACE.search(text)
    what = _PLACE.sub("", text).replace("`", "'")
    what = what.replace("Object contains", "there is an").replace("Object missing", "there is no")
    at = f"{place[1]} of {tool}" if place and place[1] else tool
    return f"{at}: {what[:1].lower()}{what[1:]}"


def _fields_of(
    function: Callable[..., Any], tool: str, helps: Mapping[str, str]
) -> tuple[list[Any], str | None]:
    """Return the fields that a model fills in, and the name of the parameter for the circumstances."""
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise InputError(f"the signature of {tool!r} cannot be read: {error}") from None
    fields: list[Any] = []
    context = None
    for each in parameters:
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            raise InputError(
                f"{tool!r} has the parameter {str(each)!r}, which has no JSON name",
                hint="use named parameters only",
            )
        kind = hints.get(each.name, Any)
        if kind is Call:
            context = each.name
            continue
        said = _described(kind, helps.get(each.name, ""))
        if each.default is each.empty:
            fields.append((each.name, said))
        elif isinstance(each.default, list | dict | set):
            fields.append(
                (each.name, said, msgspec.field(default_factory=partial(type(each.default), each.default)))
            )
        else:
            fields.append((each.name, said, each.default))
    return fields, context


def _described(kind: Any, help: str) -> Any:
    """Return a type with its description, from `Annotated[str, "text"]` or from the docstring."""
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        texts = [each for each in notes if isinstance(each, str)]
        metas = [each for each in notes if isinstance(each, msgspec.Meta)]
        kind = Annotated[inner, *metas] if metas else inner
        help = texts[0] if texts else help
    return Annotated[kind, msgspec.Meta(description=help)] if help else kind


def _flat_schema(shape: type[Any], tool: str) -> dict[str, Any]:
    """Return the JSON schema of the arguments, with what it refers to written out."""
    try:
        (top,), parts = msgspec.json.schema_components([shape], ref_template=_REF + "{name}")
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the arguments of {tool!r} have no JSON schema: {error}", hint="annotate them with plain types"
        ) from None

    def inline(value: Any, above: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [inline(each, above) for each in value]
        if not isinstance(value, dict):
            return value
        ref = str(value.get("$ref", ""))
        if not ref.startswith(_REF):
            return {key: inline(each, above) for key, each in value.items()}
        name = ref.removeprefix(_REF)
        if name in above:
            raise InputError(f"an argument of {tool!r} contains itself ({name})", hint="take a dict instead")
        rest = {key: each for key, each in value.items() if key != "$ref"}
        return {**inline(parts[name], (*above, name)), **rest}

    made: dict[str, Any] = inline(top, ())
    return {
        "type": "object",
        "properties": made.get("properties", {}),
        "required": made.get("required", []),
        "additionalProperties": False,
    }


def parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of the function, and of each argument under `Args:`."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    helps: dict[str, str] = {}
    last = ""
    for line in lines[start + 1 :]:
        if line.strip() and not line[0].isspace():
            break
        if found := _ARGUMENT.fullmatch(line):
            last = found[1]
            helps[last] = found[2].strip()
        elif line.strip() and last:
            helps[last] += f" {line.strip()}"
    return "\n".join(lines[:start]).strip(), helps
