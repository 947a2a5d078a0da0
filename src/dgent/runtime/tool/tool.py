"""The contract of tools: a source lists them as JSON schemas and answers calls, and never raises for input.

An answer is `{"ok": bool, "message": str, "data": ...}`, as `dgent.tools.Toolbox` gives it, so that a loop
treats its own memory, Python functions, coding tools and servers alike.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from dgent.errors import DgentError, InputError
from dgent.runtime.tool.errors import ConsentNeeded, ConsentRequest
from dgent.system.near import ask, find_near

Answer: TypeAlias = dict[str, Any]
Arguments: TypeAlias = Mapping[str, Any] | str | bytes | None
Effect: TypeAlias = Literal["read", "append", "write", "destroy", "execute", "network"]
Kind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]
"""The kinds of tools that editors draw, as the Agent Client Protocol names them."""

MAX_ARGUMENTS = 2_000_000  # characters of arguments that come as JSON text
MAX_ANSWER = 200_000  # bytes of JSON
MAX_MESSAGE = 2_000


class Call(msgspec.Struct, frozen=True):
    """The circumstances of a call: the caller, an idempotency key, and the scopes the partner agreed to."""

    caller: str = ""
    key: str | None = None
    trust: str = "partner"
    consents: frozenset[str] = frozenset()


Run: TypeAlias = Callable[[Mapping[str, Any], Call], Awaitable[Any]]


class Tool(msgspec.Struct, frozen=True):
    """One tool: its schema for a model, and what a loop and an editor must know before they call it.

    `repeatable` means that a second call with the same arguments does no harm, so that a call whose outcome
    is unknown may be made again. `trust` is how far its results are trusted, by default not at all if they
    come from a network; `least` is the trust that a call of it takes, by default that of its effect.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Run
    effect: Effect = "write"
    kind: Kind = "other"
    repeatable: bool = False
    trust: str = ""
    least: str = ""

    def schema(self) -> dict[str, Any]:
        """Return name, description and parameters, as models are told of it."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


LEAST: dict[str, str] = {
    "read": "conversant",
    "append": "conversant",
    "write": "friend",
    "network": "friend",
    "destroy": "partner",
    "execute": "partner",
}
"""The least trust that a call of each effect takes."""


class CallInfo(NamedTuple):
    """The facts about a call that a loop needs before it makes it.

    `trust` is that of its result; None where the result is the agent's own. A `keyed` call writes to the
    store alone, under its idempotency key, so that the store knows whether it was made.
    """

    effect: Effect = "write"
    kind: Kind = "other"
    repeatable: bool = False
    trust: str | None = "untrusted"
    least: str = "friend"
    keyed: bool = False


class ToolSource(Protocol):
    """Tools from one place; `dgent.tools.Toolbox` is one."""

    def schemas(self) -> list[dict[str, Any]]:
        """Return name, description, and parameters as flat JSON schema of each tool."""
        ...

    async def call(self, name: str, arguments: Arguments = None) -> Answer:
        """Call a tool by its name, with arguments as a map or as JSON text."""
        ...


class Toolset:
    """Tools of this process, by name: `Toolset([function_tool(add)])`."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self.tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Add a tool; InputError if its name is taken."""
        if tool.name in self.tools:
            raise InputError(f"there are two tools named {tool.name!r}", hint="rename one", field="tools")
        self.tools[tool.name] = tool

    def schemas(self) -> list[dict[str, Any]]:
        """Return name, description, and parameters as flat JSON schema of each tool."""
        return [tool.schema() for tool in self.tools.values()]

    def find(self, name: str) -> Tool | None:
        """Return a tool by its name; None where there is none."""
        return self.tools.get(name)

    async def call(self, name: str, arguments: Arguments = None, call: Call | None = None) -> Answer:
        """Call a tool; wrong arguments, refusals and failures are answers too."""
        try:
            tool = self.tools.get(name) if isinstance(name, str) else None
            if tool is None:
                raise InputError(f"there is no tool {str(name)[:80]!r}", hint=_suggest(name, self.tools))
            return report(await tool.run(parse_arguments(arguments), call or Call()))
        except DgentError as error:
            return refuse(error)
        except Exception as error:  # a tool is others' code: whatever it raises, the loop goes on
            return fail(error)


async def call_tool(source: ToolSource, name: str, arguments: Arguments, call: Call) -> Answer:
    """Call a tool of any source; sources that describe their tools get the circumstances."""
    if hasattr(source, "find"):
        return await source.call(name, arguments, call)  # type: ignore[call-arg]
    return await source.call(name, arguments)


def find_tool(source: ToolSource, name: str) -> Tool | None:
    """Return what a source says about a tool; None where it only has schemas."""
    find: Callable[[str], Tool | None] | None = getattr(source, "find", None)
    return None if find is None else find(name)


def describe_call(source: ToolSource, name: str, arguments: Arguments) -> CallInfo:
    """Return what is known of a call; of a source that only has schemas, nothing good is assumed."""
    describe: Callable[[str, Arguments], CallInfo | None] | None = getattr(source, "describe", None)
    if describe is not None:
        return describe(name, arguments) or CallInfo()
    tool = find_tool(source, name)
    if tool is None:
        return CallInfo()
    outside = tool.effect == "network" or tool.kind == "fetch"
    given = tool.trust or getattr(source, "trust", "")  # of a server, all tools have the trust of its answers
    trust = given or ("untrusted" if outside else None)
    return CallInfo(tool.effect, tool.kind, tool.repeatable, trust, tool.least or LEAST[tool.effect])


def parse_arguments(given: Arguments) -> dict[str, Any]:
    """Return arguments as a map; InputError for what is not a JSON object."""
    if given is None or given in ("", b""):
        return {}
    if isinstance(given, str | bytes):
        if len(given) > MAX_ARGUMENTS:
            raise InputError(f"the arguments have more than {MAX_ARGUMENTS} characters", hint="send less")
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            text = str(error)[:200]
            raise InputError(f"the arguments are not JSON: {text}", hint="send a JSON object") from None
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InputError(
            f"the arguments must be a JSON object, not {type(given).__name__}", hint='as {"path": "a.txt"}'
        )
    return dict(given)


def report(result: Any) -> Answer:
    """Return the answer for what a tool returned: its value as plain JSON, bounded in size."""
    if isinstance(result, dict) and isinstance(result.get("ok"), bool) and "message" in result:
        answer: Answer = result
    else:
        try:
            data = msgspec.to_builtins(result, str_keys=True, enc_hook=str)
        except RecursionError:
            data = str(type(result))
        answer = {"ok": True, "message": "done", "data": {"text": data} if isinstance(data, str) else data}
    if _is_short(answer):
        return answer
    found = answer.get("data")
    text = found.get("text") if isinstance(found, dict) else None
    if isinstance(text, str):
        kept = text[: MAX_ANSWER // 8]
        note = f"the first {len(kept)} of {len(text)} characters are shown"
        answer = {**answer, "message": f"{answer['message']}; {note}", "data": {"text": kept}}
    if _is_short(answer):
        return answer
    return {"ok": answer["ok"], "message": f"{shorten(answer['message'])}; too long to show", "data": None}


def _is_short(answer: Answer) -> bool:
    return len(json.dumps(answer)) <= MAX_ANSWER


def refuse(error: DgentError) -> Answer:
    """Return the answer for what was not done: why, what would help, and what to ask the partner."""
    data: dict[str, Any] = {"code": error.code, "hint": shorten(error.hint), "retryable": error.retryable}
    if isinstance(error, ConsentNeeded):
        data["consent"] = msgspec.to_builtins(error.request)
    return {"ok": False, "message": shorten(error.message), "data": data}


def fail(error: BaseException) -> Answer:
    """Return the answer for a tool that raised an error of its own."""
    text = shorten(f"{type(error).__name__}: {error}")
    return {"ok": False, "message": text, "data": {"code": "tool_failed", "hint": "", "retryable": False}}


def find_consent(answer: Answer) -> ConsentRequest | None:
    """Return what an answer asks the partner for; None where it asks for nothing."""
    data = answer.get("data")
    asked = data.get("consent") if isinstance(data, dict) and data.get("code") == "consent_needed" else None
    return None if asked is None else msgspec.convert(asked, ConsentRequest)


def shorten(text: str, most: int = MAX_MESSAGE) -> str:
    """Return a text of at most so many characters, which can be encoded."""
    whole = str(text)[:most].encode("utf-8", "backslashreplace").decode()
    return whole if len(whole) <= most and len(text) <= most else whole[: most - 1] + "…"


def _suggest(name: object, known: Iterable[str]) -> str:
    names = list(known)
    near = find_near(name, names) if isinstance(name, str) else []
    return ask(near) if near else f"there are {', '.join(names)}" if names else "there are no tools"
