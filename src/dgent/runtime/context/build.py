"""Build the context of an agent: read each part, fit it into its budget, and name what did not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dgent.blocks.context import notices
from dgent.blocks.context.budget import PromptPart, fit
from dgent.blocks.context.context import (
    ACTIVITY,
    CHANGES,
    CORE,
    LOGS,
    OTHERS,
    PINNED,
    REFERENCED,
    SHARED_CORE,
    ContextRequest,
    gather_parts,
    names_of,
)
from dgent.blocks.library import Library
from dgent.errors import InputError
from dgent.messages.batch import Batch
from dgent.messages.history import History
from dgent.messages.message import Message
from dgent.messages.messages import Messages
from dgent.model.tokens import estimate
from dgent.runtime.context.budget import ContextBudget
from dgent.runtime.context.history import RecentBatches, choose_first
from dgent.runtime.context.part import ORDER, AgentContext, ContextPart, is_marked
from dgent.runtime.context.work import OpenWork
from dgent.runtime.tool.rule import Rules
from dgent.universe.origin import lowest_trust
from dgent.universe.universe import Universe

GROUPS = {
    "core": (CORE, SHARED_CORE),
    "pinned": (PINNED, REFERENCED, OTHERS),
    "changes": (CHANGES,),
    "activity": (LOGS, ACTIVITY),
}
"""The groups of blocks in each part; logs grow with every call, so they are not among the stable ones."""

LOOK_BACK = 200  # commits in which activity is looked for
IN_PART = " (in part)"
PER_MESSAGE = 4  # tokens around each message
PER_MARK = 6  # tokens of a mark in front of one


class ContextBuilder:
    """Builds the contexts of one agent: `await ContextBuilder(u, "scout").build(batch)`.

    It keeps what it read for the next turn, and proves it again. The same state gives the same bytes, also in
    another process.
    """

    def __init__(
        self,
        universe: Universe,
        agent: str,
        *,
        instructions: str = "",
        rules: Rules | None = None,
        budget: ContextBudget | None = None,
    ) -> None:
        self.agent, self.instructions = agent, instructions
        self.rules, self.budget = rules or Rules(), budget or ContextBudget()
        self._universe = universe
        self._library, self._messages = Library(universe, agent), Messages(universe, agent)
        self._work, self._recent = OpenWork(universe, agent), RecentBatches(self._messages)

    async def build(
        self,
        batch: Batch | None = None,
        *,
        referenced: str | Iterable[str] = (),
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> AgentContext:
        """Return the context of a batch, or of one that would begin now.

        `referenced` names blocks to show beside the pinned ones; `tools` are schemas, which take tokens too.
        """
        budget = self.budget
        instructions = self._write_instructions()
        history = await self._recent.read(batch, budget.history)
        parts: dict[str, ContextPart] = {"instructions": instructions, "rules": self._write_rules()}
        blocks, seen, origins = await self._read_blocks(batch, history, referenced)
        parts |= blocks
        work, work_origin = await self._work.read()
        parts["work"] = _fit("work", work, budget.work)
        parts["summaries"] = self._write_summary(history)
        own = () if batch is None else tuple(await batch.messages())
        size = _count(own)
        taken = estimate(msgspec.json.encode(tools).decode()) if tools else 0
        left = budget.window - budget.answer - taken - size - sum(part.tokens for part in parts.values())
        parts["history"], trust = _choose_history(history, min(budget.history, max(0, left)))
        trust = lowest_trust(trust, work_origin, *origins)
        room = max(0, left - parts["history"].tokens) + size
        parts["batch"] = ContextPart(name="batch", messages=own, tokens=size, budget=room)
        return AgentContext(
            agent=self.agent,
            parts=tuple(parts[name] for name in ORDER),
            window=budget.window,
            answer=budget.answer,
            tools=taken,
            trust=trust if batch is None else lowest_trust(trust, batch.trust),
            seen=seen,
        )

    async def mark_seen(self, context: AgentContext) -> None:
        """Record the blocks of a context as seen, once its batch ended: their changes are not news again."""
        await notices.record_seen(self._library, context.seen)

    # -- the parts ----------------------------------------------------------------------------

    def _write_instructions(self) -> ContextPart:
        size, most = estimate(self.instructions), self.budget.instructions
        if size > most:
            raise InputError(
                f"the instructions of {self.agent} have {size} tokens, and {most} are allowed",
                hint="shorten them, or give a larger budget",
                field="instructions",
            )
        return ContextPart(name="instructions", text=self.instructions, tokens=size, budget=most)

    def _write_rules(self) -> ContextPart:
        lines = self.rules.render()
        parts = [PromptPart("tool rules", "memory:rules", (), lines, (0, 0))] if lines else []
        return _fit("rules", parts, self.budget.rules)

    def _write_summary(self, history: History) -> ContextPart:
        found, budget = history.summary, self.budget.summaries
        if found is None or not found.text:
            return ContextPart(name="summaries", budget=budget)
        said = (("batches", str(found.batches)), ("trust", found.trust))
        return _fit("summaries", [PromptPart("summary", "memory:summary", said, found.text, (0, 0))], budget)

    async def _read_blocks(
        self, batch: Batch | None, history: History, referenced: str | Iterable[str]
    ) -> tuple[dict[str, ContextPart], dict[str, int], Iterable[str]]:
        """Return the parts that are made of blocks, the versions of those shown whole, and all origins."""
        saw = await self._universe.seq() if batch is None else batch.info.saw
        last = history.turns[-1].batch.saw if history.turns else 0
        since = max(last, saw - LOOK_BACK, 0)
        wanted = ContextRequest(None, names_of(referenced), {}, True, since, False, estimate, saw)
        found = await gather_parts(self._library, wanted)
        made: dict[str, ContextPart] = {}
        seen: dict[str, int] = {}
        for name, groups in GROUPS.items():
            parts = [part for group, part in found.parts if group in groups]
            made[name] = _fit(name, parts, getattr(self.budget, name))
            short = {each.removesuffix(IN_PART) for each in made[name].left_out}
            seen |= found.find_seen(part.name for part in parts if part.name not in short)
        return made, seen, found.origins.values()


def _fit(name: str, parts: Sequence[PromptPart], budget: int) -> ContextPart:
    """Return a part of texts, shortened to its budget."""
    if not parts:
        return ContextPart(name=name, budget=budget)
    found = fit(parts, budget)
    left_out = (*found.cut, *(f"{each}{IN_PART}" for each in found.shortened))
    return ContextPart(name=name, text=found.text, tokens=found.tokens, budget=budget, left_out=left_out)


def _count(messages: Sequence[Message]) -> int:
    return sum(message.tokens + PER_MESSAGE + PER_MARK * is_marked(message) for message in messages)


def _choose_history(history: History, budget: int) -> tuple[ContextPart, str]:
    """Return the batches that fit, whole, and the lowest trust of what is shown."""
    turns = list(history.turns)
    sizes = [_count(turn.messages) for turn in turns]
    size, first = sum(sizes), 0
    while size > budget:
        size, first = size - sizes[first], first + 1
    if first or history.more:
        chosen = choose_first(turns[first:], sizes[first:])
        size, first = size - sum(sizes[first : first + chosen]), first + chosen
    left_out: tuple[str, ...] = ()
    if history.more:
        left_out = ("older batches",)
    left_out += tuple(f"batch {turn.batch.id} ({_count(turn.messages)})" for turn in turns[:first])
    shown = turns[first:]
    summary = () if history.summary is None else (history.summary.trust,)
    trust = lowest_trust("partner", *summary, *(turn.batch.trust for turn in shown))
    messages = tuple(message for turn in shown for message in turn.messages)
    part = ContextPart(name="history", messages=messages, tokens=size, budget=budget, left_out=left_out)
    return part, trust
