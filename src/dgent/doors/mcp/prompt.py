"""Prompts: what a host offers its user to begin, plan and end work with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import mcp_types as types

from dgent.doors.mcp.client import Client
from dgent.errors import InputError, NotFound


class PromptText(NamedTuple):
    """A prompt: what it is for, what it needs to be told, and its text with places for that."""

    about: str
    arguments: Mapping[str, str]
    text: str


PROMPTS: dict[str, PromptText] = {
    "load-memory": PromptText(
        "Begin with what you know: your memory, open work and lessons.",
        {},
        "{prime}\n\n{memory}\n\nThis is what you know. Say in a few sentences what matters next.",
    ),
    "plan-with-a-trail": PromptText(
        "Plan a task as an exploration that can be given up as a whole.",
        {"task": "what is to be done"},
        "{prime}\n\nThe task: {task}\n\n"
        "Search your memory and the lessons for it. Start a trail (`trail` with operation start) with the "
        "task as its name and what would make it a success as its goal. Add each step as a work item on it "
        "(`work_add` with trail), the first to be done first; `parent` names what a step waits for. "
        "Then take and do them one by one. If it works out, complete the trail; if not, abandon it and say "
        "in `lesson` what others should know before they try it again.",
    ),
    "hand-over": PromptText(
        "End your work so that another agent can go on with it.",
        {},
        "{prime}\n\nYou stop here. For each work item that you hold: end it with done if it is done, or "
        "release it after a comment that says how far you are and what comes next. Bring the blocks of your "
        "memory up to date: what was decided and why, what was tried without success, what surprised you. "
        "End trails that you gave up with a lesson. Then say in a few lines what you leave behind.",
    ),
}


def list_prompts() -> list[types.Prompt]:
    """Return the prompts that there are."""
    return [
        types.Prompt(
            name=name,
            description=prompt.about,
            arguments=[
                types.PromptArgument(name=each, description=about, required=True)
                for each, about in prompt.arguments.items()
            ],
        )
        for name, prompt in PROMPTS.items()
    ]


async def get(client: Client, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
    """Return the text of a prompt for a client."""
    prompt = PROMPTS.get(name)
    if prompt is None:
        raise NotFound(f"there is no prompt {name[:80]!r}", hint=f"use one of {', '.join(PROMPTS)}")
    for each, about in prompt.arguments.items():
        if not arguments.get(each):
            raise InputError(f"{name} needs {each}: {about}", field=each)
    values = {each: arguments[each] for each in prompt.arguments}
    values["prime"] = (await client.call("agent.prime", speak="tools")).text
    if "{memory}" in prompt.text:
        values["memory"] = (await client.call("block.render", changes=True)).text
    content = types.TextContent(type="text", text="".join(_fill(prompt.text, values)))
    return types.GetPromptResult(
        description=prompt.about, messages=[types.PromptMessage(role="user", content=content)]
    )


def _fill(text: str, values: Mapping[str, str]) -> list[str]:
    """Return the parts of a text, with values in place of the names in braces.

    Not by str.format: a value may have braces itself.
    """
    first, *rest = text.split("{")
    parts = [first]
    for each in rest:
        name, _, after = each.partition("}")
        parts += [values[name], after]
    return parts
