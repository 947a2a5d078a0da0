"""The items of a conversation, as the Agents SDK describes them: kinds, tools, turns and texts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from agents import Usage
from agents._tool_identity import is_reserved_synthetic_tool_namespace, tool_qualified_name

from dgent.model.datum import Datum

NAMED_BY_TYPE = {
    *("computer_call", "file_search_call", "web_search_call", "code_interpreter_call", "shell_call"),
    "apply_patch_call",
}
CALLS = NAMED_BY_TYPE | {
    *("tool_call", "function_call", "tool_search_call", "custom_tool_call", "mcp_call"),
    "mcp_approval_request",
}
PREVIEW = 100  # characters of a turn in a list


class Turn(NamedTuple):
    """A message of the user, and the number of the turn that it begins."""

    number: int
    content: Any
    at: str


def find_kind(item: Any) -> str:
    """Return the kind of an item: its role for users and assistants, else its type."""
    if not isinstance(item, dict):
        return "other"
    role = item.get("role")
    return str(role if role in ("user", "assistant") else item.get("type") or "other")


def find_tool(item: Any) -> str | None:
    """Return the name of the tool that an item is about; None without one."""
    if not isinstance(item, dict):
        return None
    kind, name = item.get("type"), item.get("name")
    if kind in ("mcp_call", "mcp_approval_request") and "server_label" in item:
        return ".".join(str(part) for part in (item["server_label"], name) if part) or None
    if kind in ("tool_search_call", "tool_search_output"):
        return "tool_search"
    if kind in NAMED_BY_TYPE:
        return str(kind)
    if name is None:
        return None
    space = item.get("namespace")
    space = None if space is None else str(space)
    if is_reserved_synthetic_tool_namespace(str(name), space):
        return str(name)
    return tool_qualified_name(str(name), space) or str(name)


def find_texts(item: Any) -> Iterator[str]:
    """Yield the words of an item: what was said, thought, asked of a tool or answered by it."""
    if isinstance(item, dict):
        for key in ("content", "summary", "arguments", "output"):
            yield from _texts(item.get(key))


def _texts(content: Any) -> Iterator[str]:
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str) and text:
            yield text


def list_turns(items: Iterable[Datum]) -> list[Turn]:
    """Return the turns in items, the first one first."""
    return [
        Turn(each.data["turn"], json.loads(each.content).get("content", ""), tell_time(each))
        for each in items
        if each.data["kind"] == "user"
    ]


def tell_time(item: Datum) -> str:
    """Return the time of an item as the SDK's own sessions write it."""
    return item.created_at.strftime("%Y-%m-%d %H:%M:%S")


def find_turns(turns: Iterable[Turn], words: str) -> list[Turn]:
    """Return the turns that contain words; only the case of ASCII letters does not matter."""
    pattern = re.compile(re.escape(words), re.IGNORECASE | re.ASCII)
    return [turn for turn in turns if any(map(pattern.search, _searched(turn.content)))]


def _searched(content: Any) -> list[str]:
    return [content] if isinstance(content, str) else [*_texts(content)]


def describe_turn(turn: Turn, length: int | None = PREVIEW) -> dict[str, Any]:
    """Return a turn as the SDK lists it."""
    shown = turn.content if isinstance(turn.content, str) else json.dumps(turn.content, ensure_ascii=False)
    if length is not None and len(shown) > length:
        shown = f"{shown[:length]}..."
    return {
        "turn": turn.number,
        "content": shown,
        "full_content": turn.content,
        "timestamp": turn.at,
        "can_branch": True,
    }


def count_tools(items: Iterable[Datum]) -> list[tuple[str | None, int, int]]:
    """Return how often each tool was used in each turn: (tool, uses, turn)."""
    uses: Counter[tuple[int, str | None]] = Counter()
    searches: Counter[tuple[int, str | None]] = Counter()
    for each in items:
        turn, kind, tool = (each.data[key] for key in ("turn", "kind", "tool"))
        if kind in CALLS:
            uses[turn, tool or (kind if kind in ("shell_call", "apply_patch_call") else None)] += 1
        if kind == "tool_search_output":
            searches[turn, tool] += 1
        elif kind == "tool_search_call":
            searches[turn, tool] = -1 << 60  # the call counts, so its outputs do not
    uses.update({key: count for key, count in searches.items() if count > 0})
    order = sorted(uses, key=lambda key: (key[0], key[1] is not None, key[1] or ""))
    return [(tool, uses[turn, tool], turn) for turn, tool in order]


USAGE_COUNTS = ("requests", "input_tokens", "output_tokens", "total_tokens")
USAGE_FIELDS = (*USAGE_COUNTS, "input_tokens_details", "output_tokens_details")


def describe_usage(usage: Usage) -> dict[str, Any]:
    """Return the counts of a run, with details where the model gave some."""
    counts: dict[str, Any] = {key: getattr(usage, key) or 0 for key in USAGE_COUNTS}
    for key in USAGE_FIELDS[len(USAGE_COUNTS) :]:
        details = getattr(usage, key, None)
        counts[key] = dict(details.__dict__) if details else None
    return counts
