"""The toolbox: the tools of one agent, for any framework that lets a model call functions."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, cast

from dgent.blocks import Library
from dgent.doors.tools.answer import Answer, refuse, report
from dgent.doors.tools.catalog import GROUPS, ROOMS, SETS, USUAL
from dgent.doors.tools.tool import Parameter, Tool, ToolField, describe, suggest, tool_of
from dgent.errors import DgentError, InputError
from dgent.runtime.tool.tool import LEAST, Arguments, CallInfo, Kind
from dgent.universe.gate import Gate
from dgent.universe.universe import Universe
from dgent.verbs import registry
from dgent.verbs.caller import Caller, Trust
from dgent.verbs.context import Context
from dgent.verbs.index import SHORT

# -- hints of verbs, which name commands, in the language of tools ----------------------------

_COMMAND = re.compile(r"`dgent ([^`]*)`")
_OPTION = re.compile(r"--([a-z][a-z-]*)")


class ToolCall(NamedTuple):
    """The place where a verb is offered: the tool, the operation and its fields."""

    tool: str
    operation: str
    fields: Mapping[str, ToolField]


def translate(text: str, offers: Mapping[str, ToolCall]) -> str:
    """Return a text with tool calls in place of commands; clauses with others are left out."""
    kept = []
    for clause in text.split("; "):
        calls = {words: _call_of(words, offers) for words in _COMMAND.findall(clause)}
        for words, call in calls.items():
            clause = clause.replace(f"`dgent {words}`", f"`{call}`")
        if all(calls.values()):
            kept.append(_OPTION.sub(lambda option: option[1].replace("-", "_"), clause))
    return "; ".join(kept)


def _call_of(command: str, offers: Mapping[str, ToolCall]) -> str | None:
    """Return the tool call of a command; None where no tool offers its verb."""
    words = command.split()
    short = SHORT.get(words[0])
    offer = offers.get(short[0] if short else ".".join(words[:2]))
    if offer is None:
        return None
    given: dict[str, Any] = {"operation": offer.operation} if offer.operation else {}
    places = iter([each.name for each in offer.fields.values() if each.place])
    rest = iter(words[1 if short else 2 :])
    for word in rest:
        name = word.removeprefix("--").replace("-", "_") if word.startswith("--") else next(places, "")
        field = offer.fields.get(name)
        if field is not None:
            flag = field.type == "boolean"
            given[name] = True if flag else next(rest, "") if word.startswith("--") else word
    return f"{offer.tool} {json.dumps(given)}"


_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[str],
    "": Any,
}


class Toolbox:
    """The tools of one agent for a model: `Toolbox(Library(u, agent="scout", trust="friend"))`.

    A library has the tools of blocks, and those of other `rooms` when they are named; a universe has those of
    `("blocks", "cupboard", "data")`, and with `rooms` also `"messages"`. `tools` names single ones. A call is
    checked against the trust of the library, or of the principal that the universe acts for. An answer is
    `{"ok": bool, "message": str, "data": ...}`. What a model gets wrong is an answer too, no exception.
    """

    def __init__(
        self,
        source: Library | Universe,
        *,
        rooms: Iterable[str] | None = None,
        tools: Iterable[str] | None = None,
    ) -> None:
        library = source if isinstance(source, Library) else _library_of(source)
        self.library: Library = library
        if tools is None:
            wanted = tuple(rooms) if rooms is not None else USUAL[:1] if library is source else USUAL
            _check_known("room", wanted, ROOMS)
            self.names = tuple(name for name, group in GROUPS.items() if group.room in wanted)
        else:
            self.names = tuple(tools)
            _check_known("tool", self.names, GROUPS)

        async def universe() -> Universe:
            return library.universe

        caller = Caller(library.agent, library.agent, cast(Trust, library.trust))
        self.context = Context(universe, caller=caller, local=False, library=library)

    def schemas(self) -> list[dict[str, Any]]:
        """Return name, description, and parameters as flat JSON schema of each tool."""
        return [tool_of(name).schema() for name in self.names]

    async def call(self, name: str, arguments: Mapping[str, Any] | str | bytes | None = None) -> Answer:
        """Call a tool by its name, with arguments as a map or as JSON text."""
        try:
            if not isinstance(name, str) or name not in self.names:
                raise InputError(f"there is no tool {describe(name)}", hint=suggest(name, self.names))
            operation, given, part = tool_of(name).read(arguments)
            return report(await registry.call(operation.verb, self.context, given), part, self._translate)
        except DgentError as error:
            return refuse(error, self._translate(error.hint))

    def describe(self, name: str, arguments: Arguments = None) -> CallInfo | None:
        """Return the effect of a call, for a loop that decides whether to make it; None for a wrong call."""
        try:
            operation, given, _ = tool_of(name).read(arguments)
            effect = operation.verb.effect_of(registry.read_input(operation.verb, given))
        except (DgentError, KeyError):
            return CallInfo(
                "read", "other", True, None, "conversant", True
            )  # it is refused, and changes nothing
        reads = effect in ("help", "read")
        kind: Kind = "read" if reads else "edit" if effect != "destroy" else "delete"
        made = LEAST["read" if effect == "help" else effect]
        return CallInfo("read" if effect == "help" else effect, kind, reads, None, made, True)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the tools by name, as async functions whose signatures say what they take."""
        return {name: self._function(tool_of(name)) for name in self.names}

    def _function(self, tool: Tool) -> Callable[..., Any]:
        signature = signature_of(tool)

        async def call(*args: Any, **named: Any) -> Answer:
            return await self.call(tool.name, signature.bind(*args, **named).arguments)

        call.__name__ = call.__qualname__ = tool.name
        call.__doc__ = tool.description
        call.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        call.__annotations__["return"] = Answer
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    def _translate(self, hint: str) -> str:
        if "`dgent" not in hint and "--" not in hint:
            return hint
        offers = {
            operation.verb.id: ToolCall(name, each, operation.fields)
            for name in self.names
            for each, operation in tool_of(name).operations.items()
        }
        return translate(hint, offers)


def open_own_tools(universe: Universe, sets: Iterable[str]) -> Toolbox:
    """Return the tools that an agent has for its own memory, work and search, by the names of their sets.

    `AgentRuntime` finds this function by its name: it is below the doors, and imports none.
    """
    names = dict.fromkeys(name for each in sets for name in SETS.get(each, (each,)))
    return Toolbox(universe, tools=names)


def _check_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            hint = suggest(name, known)
            raise InputError(f"there is no {what} {describe(name)}", hint=hint, field=f"{what}s")


def _library_of(universe: Any) -> Library:
    """Return the library of the principal that a universe acts for, or of its author."""
    if not isinstance(universe, Universe):
        raise InputError(
            f"a toolbox is on a Library or a Universe, not on a {type(universe).__name__}",
            hint="with dgent.sync use dgent.sync.tools",
        )
    if isinstance(universe.backend, Gate):
        who = universe.backend.principal
        return Library(universe, who.name, trust=who.trust)
    return Library(universe, universe.author)


def signature_of(tool: Tool) -> inspect.Signature:
    """Return the signature of a tool as a function."""
    return inspect.Signature(
        [_argument(each, each.name in tool.needs) for each in tool.parameters.values()],
        return_annotation=Answer,
    )


def _argument(parameter: Parameter, needed: bool) -> inspect.Parameter:
    kind = Literal[parameter.choices] if parameter.choices else _TYPES[parameter.type]
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=inspect.Parameter.empty if needed else None,
        annotation=Annotated[kind if needed else kind | None, parameter.description],
    )
