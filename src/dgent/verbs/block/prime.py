"""The verb that tells an agent at the start of a session who it is and what there is to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

from dgent.verbs.block.answer import Primer
from dgent.verbs.block.library import library_of
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.registry import Ask, option, verb

if TYPE_CHECKING:
    from dgent.blocks import Library
    from dgent.cupboard import Cupboard

MOST_CHARACTERS = 6_000  # about 1,500 tokens
MOST_ROWS = 12
MOST_IN_ROW = 160

_SHELL = """\
`dgent block render` shows your memory, `dgent search WORDS` finds anything by its words. Write down what the
next session needs: `dgent block append LABEL "..."`, `dgent archive insert "..."`. Work:
`dgent ready` lists it, `dgent take` claims the next, `dgent done ID` ends it, `dgent release ID` returns it.
Try things out on a trail: `dgent explore "..."`, then `dgent trail complete ID` or
`dgent trail abandon ID --lesson "..."`.
`dgent undo` takes the newest change back. Add `--agent {agent}`, so that what you do carries your name."""
_TOOLS = """\
`memory` shows your memory, `find` finds anything by its words. Write down what the next session needs with
`block_append`, `block_replace` or `remember`. Work: `work_ready` lists it, `work_take` claims the next,
`work_end` ends it. Try things out with `trail`: work on it is kept or given up as a whole; a lesson stays."""


class PrimeAgent(Ask):
    """Input of `agent.prime`."""

    speak: Annotated[
        Literal["shell", "tools"], option("how to say what can be done: in commands, or in tools")
    ] = "shell"


@verb("agent.prime", effect="read")
async def prime(context: Context, ask: PrimeAgent) -> Primer:
    """Print who an agent is, its open work, lessons and how to go on, for the start of a session."""
    library = await library_of(context)
    cupboard = await input.cupboard_of(context)
    parts = [f"You are {library.agent}. What you and others know is kept in dgent, with every version."]
    parts += await _memory(library)
    parts += await _work(cupboard, library.agent)
    parts += await _lessons(cupboard)
    usage = _SHELL.replace("{agent}", library.agent) if ask.speak == "shell" else _TOOLS
    return Primer(library.agent, _fit(parts, f"## How to use it\n{usage}"))


async def _memory(library: Library) -> list[str]:
    found = await library.list(shared=True)
    rows = [
        f"{each.label if each.owner == library.agent else f'{each.owner}/{each.label}'}: {each.description}"
        for each in found
    ]
    return _section("Your memory has these blocks", rows)


async def _work(cupboard: Cupboard, agent: str) -> list[str]:
    held = await cupboard.crumbs.fetch({"states": ["taken"], "holder": agent, "limit": MOST_ROWS + 1})
    ready = await cupboard.ready(MOST_ROWS + 1)
    return [
        *_section("Work that you hold", (f"{each.name} ({each.id})" for each in held)),
        *_section("Work that is ready", (f"{each.name} ({each.id})" for each in ready)),
    ]


async def _lessons(cupboard: Cupboard) -> list[str]:
    found = [each for each in await cupboard.lessons(limit=MOST_ROWS) if each.lesson]
    return _section("Lessons from what was given up", (f"{each.name}: {each.lesson}" for each in found))


def _section(title: str, rows: Iterable[str]) -> list[str]:
    """Return a heading and its rows, each on one line; nothing without rows."""
    lines = [" ".join(row.split()) for row in rows]
    shown = [
        line if len(line) <= MOST_IN_ROW else line[: MOST_IN_ROW - 1] + "…" for line in lines[:MOST_ROWS]
    ]
    more = ["- and more"] if len(lines) > MOST_ROWS else []
    return [f"## {title}", *(f"- {line}" for line in shown), *more] if shown else []


def _fit(parts: list[str], end: str) -> str:
    """Return the parts that fit, and the end."""
    room = MOST_CHARACTERS - len(end) - 1
    kept: list[str] = []
    for part in parts:
        room -= len(part) + 1
        if room < 0:
            break
        kept.append(part)
    return "\n".join([*kept, end])
