"""Hints of verbs, which name commands, in the language of tools: the calls that do the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dgent.doors.tools.parameter import ToolField
from dgent.verbs.index import SHORT

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
