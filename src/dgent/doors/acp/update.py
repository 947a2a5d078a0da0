"""Events and messages of an agent as updates of the Agent Client Protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from acp import helpers, schema
from acp.helpers import ToolCallContentVariant

from dgent.messages.message import Message
from dgent.messages.part import Part
from dgent.runtime import event as events
from dgent.runtime.code.plan import Step
from dgent.runtime.code.room import FILE
from dgent.universe.universe import Universe

MAX_SHOWN = 20_000  # characters of a tool's output
MAX_TITLE = 200
RESTARTED = "\n\n_The answer begins again._\n\n"
_WORDS = ("path", "pattern", "command", "query", "label", "name", "operation", "url")
_STATUS = {"open": "pending", "doing": "in_progress", "done": "completed"}
PLANNING = ("plan", "step", "give_up")


def call_id(batch: str, call: str) -> str:
    """Return the id of a tool call for an editor; those of models are unique in a batch only."""
    return f"{batch}/{call}"


def name_call(name: str, arguments: Any) -> str:
    """Return a call in a few words, as the title of its card."""
    given = arguments if isinstance(arguments, Mapping) else {}
    words = [str(given[each]) for each in _WORDS if isinstance(given.get(each), str | int)]
    return " ".join(f"{name} {' '.join(words)}".split())[:MAX_TITLE]


def find_locations(root: Path, arguments: Any) -> list[schema.ToolCallLocation] | None:
    """Return the file that a call is about, which an editor may follow."""
    given = arguments if isinstance(arguments, Mapping) else {}
    path, line = given.get("path"), given.get("offset")
    if not isinstance(path, str) or not path:
        return None
    place = int(line) if isinstance(line, int) and line > 0 else None
    return [schema.ToolCallLocation(path=str(root / path), line=place)]


def start_call(
    root: Path, id: str, name: str, arguments: Any, kind: str, status: str = "in_progress"
) -> schema.ToolCallStart:
    """Return the update of a call that begins."""
    return schema.ToolCallStart(
        session_update="tool_call",
        tool_call_id=id,
        title=name_call(name, arguments),
        kind=cast("schema.ToolKind", kind),
        status=cast("schema.ToolCallStatus", status),
        locations=find_locations(root, arguments),
        raw_input=arguments,
    )


def finish_call(
    id: str, text: str, failed: bool, content: Sequence[ToolCallContentVariant] = ()
) -> schema.ToolCallProgress:
    """Return the update of a call that ended; `content` replaces what its answer says."""
    shown = list(content) or [helpers.tool_content(helpers.text_block(show_answer(text)))]
    return schema.ToolCallProgress(
        session_update="tool_call_update",
        tool_call_id=id,
        status="failed" if failed else "completed",
        content=shown,
        raw_output=_read(text),
    )


def show_answer(text: str) -> str:
    """Return the answer of a tool for a person: its output or text, else its message."""
    answer = _read(text)
    if not isinstance(answer, dict):
        return text[:MAX_SHOWN]
    message, data = str(answer.get("message", "")), answer.get("data")
    given = data if isinstance(data, dict) else {}
    shown = given.get("output") or given.get("text")
    if not isinstance(shown, str):
        return message[:MAX_SHOWN]
    fence = "```" if "```" not in shown else "~~~~~~"
    return f"{message}\n{fence}\n{shown[:MAX_SHOWN]}\n{fence}"


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text[:MAX_SHOWN]


def find_undo(text: str) -> int | None:
    """Return the commit that takes back what a tool changed; None where it changed no file."""
    answer = _read(text)
    data = answer.get("data") if isinstance(answer, dict) else None
    seq = data.get("undo") if isinstance(data, dict) else None
    return seq if isinstance(seq, int) else None


async def read_diffs(universe: Universe, seq: int) -> list[ToolCallContentVariant]:
    """Return what a commit did to files, each whole before and after."""
    before = {each.id: each.before for each in await universe.backend.states_before(seq)}
    found: list[ToolCallContentVariant] = []
    for change in await universe.changes(seq - 1, limit=1):
        for item in change.items:
            if change.seq == seq and item.schema == FILE and item.datum is not None:
                data, old = item.datum.data, before.get(str(item.id))
                path = str(Path(data["root"]) / data["path"])
                then = None if old is None else old.data["text"]
                found.append(helpers.tool_diff_content(path, data["text"] or "", then))
    return found


def preview(root: Path, tool: str, arguments: Any) -> list[ToolCallContentVariant]:
    """Return what a call would change, for a question to the partner; empty where that is not known."""
    given = arguments if isinstance(arguments, Mapping) else {}
    path, new, old = given.get("path"), given.get("new", given.get("text")), given.get("old")
    if tool in ("edit", "write") and isinstance(path, str) and isinstance(new, str):
        return [helpers.tool_diff_content(str(root / path), new, old if isinstance(old, str) else None)]
    return []


def show_plan(steps: Iterable[Step]) -> schema.AgentPlanUpdate:
    """Return the plan of a task; dropped steps are left out."""
    return helpers.update_plan(
        helpers.plan_entry(each.name, status=cast("schema.PlanEntryStatus", _STATUS[each.state]))
        for each in steps
        if each.state in _STATUS
    )


def show_usage(event: events.UsageReport, window: int) -> schema.UsageUpdate:
    """Return how much of the context is used, and what the answer cost."""
    usage = event.usage
    cost = None if usage.cost is None else schema.Cost(amount=usage.cost, currency="USD")
    used = usage.input_tokens + usage.output_tokens
    return schema.UsageUpdate(session_update="usage_update", used=used, size=window, cost=cost)


async def replay(universe: Universe, root: Path, messages: Sequence[Message]) -> list[Any]:
    """Return the messages of a batch as the updates that showed them."""
    results = {part.call: part for each in messages for part in each.parts if part.type == "tool_result"}
    made: list[Any] = []
    for message in messages:
        for part in message.parts:
            made += await _replay_part(universe, root, message, part, results)
    return made


async def _replay_part(
    universe: Universe, root: Path, message: Message, part: Part, results: Mapping[str, Part]
) -> list[Any]:
    if part.type == "tool_call":
        id, result = call_id(message.batch, part.call), results.get(part.call)
        kind = _KINDS.get(part.name, "other")
        started = start_call(root, id, part.name, part.arguments, kind, "pending")
        if result is None:
            return [started]
        seq = find_undo(result.text)
        content = [] if seq is None else await read_diffs(universe, seq)
        return [started, finish_call(id, result.text, result.error, content)]
    if message.role == "user":
        text = part.text or (f"[{part.type} {part.name}]".replace(" ]", "]") if part.blob else "")
        return [helpers.update_user_message_text(text)] if text else []
    if message.role == "assistant" and part.text and part.type in ("text", "thinking"):
        thought = part.type == "thinking"
        show = helpers.update_agent_thought_text if thought else helpers.update_agent_message_text
        return [show(part.text)]
    return []


_KINDS = {
    "read": "read",
    "glob": "search",
    "grep": "search",
    "find": "search",
    "edit": "edit",
    "write": "edit",
    "patch": "edit",
    "give_up": "edit",
    "remove": "delete",
    "run": "execute",
    "plan": "think",
    "step": "think",
}
