"""The context: the memory part of a prompt, in a fixed order.

What seldom changes comes first, so that a prompt that is sent again begins with the same text: the core
blocks of the agent, those of others, working blocks, logs, and last what has just happened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dgent import clock
from dgent.blocks import errors
from dgent.blocks.access.standing import Standing
from dgent.blocks.block import Block
from dgent.blocks.context import bulk, notices
from dgent.blocks.context.budget import Context, Part, Tokens, fit
from dgent.blocks.context.notices import Look, Notice
from dgent.blocks.context.wrapper import tag_name
from dgent.blocks.record import BlockRecord, SeenRecord, seen_id
from dgent.errors import InputError
from dgent.model.crystal import Crystal

if TYPE_CHECKING:
    from dgent.blocks.library import Library


VIEW = "view"
"""Where a card keeps its viewport: the first line, counted from 1, and how many lines."""


def check_view(document: str, start: object, lines: object) -> dict[str, Any]:
    """What a card keeps of a viewport; nothing when all lines are shown."""
    if document != "text":
        raise errors.WrongKind(f"only a text is shown in part, not a {document}")
    if lines is None:
        return {}
    for name, value in (("start", start), ("lines", lines)):
        if type(value) is not int or not 1 <= value < 2**53:
            raise InputError(f"{name} is a number of lines from 1, not {value!r:.80}", field=name)
    return {VIEW: [start, lines]}


def viewed(text: str, extra: Mapping[str, Any]) -> str:
    """A text as its viewport shows it, with a word about which lines these are."""
    match extra.get(VIEW):
        case [int(start), int(lines)] if start >= 1 and lines >= 1:
            pass
        case _:
            return text
    every = text.splitlines()
    if start == 1 and lines >= len(every):
        return text
    if start > len(every):
        return f"[lines {start} to {start + lines - 1} are not there: the text has {len(every)}]"
    last = min(start + lines - 1, len(every))
    return "\n".join([f"[lines {start} to {last} of {len(every)}]", *every[start - 1 : last]])


CORE, SHARED_CORE, PINNED, REFERENCED, CHANGES, LOGS, ACTIVITY = range(7)
ORDER = (CORE, SHARED_CORE, PINNED, REFERENCED, LOGS, CHANGES, ACTIVITY)
"""How they stand in the prompt; the numbers are how important they are."""

MAX_DIFFS = 10  # blocks whose differences are shown; others are only named
MAX_DIFF_CHARS = 2000
MAX_NAME_CHARS = 80  # of a crumb or a trail
ACTIVITIES = 15
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # of a block, as every one is made


@dataclass(frozen=True)
class Wanted:
    """What a prompt should have."""

    budget: int | None
    referenced: frozenset[str]
    priorities: Mapping[str, int]
    changes: bool
    since: int | datetime | None
    mark: bool
    tokens: Tokens

    def __post_init__(self) -> None:
        if self.budget is not None and (type(self.budget) is not int or self.budget < 0):
            raise InputError(
                f"a budget is a number of tokens from 0, not {self.budget!r}", field="budget_tokens"
            )

    def names(self, card: BlockRecord, id: str) -> bool:
        """Whether a block is referenced: by its label, its owner and label, or its id."""
        return not self.referenced.isdisjoint((card.label, f"{card.owner}/{card.label}", id))

    def filters(self) -> list[dict[str, Any]]:
        """What to look for: every block that is shown fits one of these, and few others do."""
        found: list[dict[str, Any]] = [
            {"kind": {"$in": ["core", "log"]}},
            {"kind": "working", "pinned": True},
        ]
        if any(map(_ID.fullmatch, self.referenced)):
            return [*found, {"kind": "working"}]
        parts = [name.split("/") for name in self.referenced]
        labels = sorted({"/".join(part[start:]) for part in parts for start in range(len(part))})
        return [*found, {"kind": "working", "label": {"$in": labels}}] if labels else found


async def context(library: Library, wanted: Wanted) -> Context:
    """The memory part of a prompt for an agent."""
    groups: dict[int, list[Standing]] = {group: [] for group in ORDER}
    visible = await library._caller.visible(library._universe, *wanted.filters())
    for standing in visible:
        group = _group(library.agent, standing, wanted)
        if group is not None:
            groups[group].append(standing)
    shown = [(group, each) for group in ORDER for each in groups[group]]
    drawn = library._drawn
    bulk.keep(drawn, [each.card.id for each in visible])
    await bulk.draw(library._universe, [each.card for _, each in shown], drawn)
    parts = [_part(library.agent, group, each, drawn[each.card.id], wanted) for group, each in shown]
    if wanted.changes:
        parts += await _changes(library, [each for _, each in shown if each.card.value.document != "log"])
    if wanted.since is not None:
        parts += await _activity(library, wanted.since)
    if (away := library._universe.degraded) is not None:
        said = f"the store is away, so this may not be all, nor the newest: {away.reason}"
        parts.append(Part("away", "memory:notice", (), said, (-(2**53), 0), whole=True))
    made = fit(parts, wanted.budget, wanted.tokens)
    if wanted.mark:
        whole = frozenset(made.shown)
        seen = [each.card for _, each in shown if _name(library.agent, each.card.value) in whole]
        await notices.keep(library, {card.id: drawn[card.id].version for card in seen})
    return made


def _group(agent: str, standing: Standing, wanted: Wanted) -> int | None:
    card = standing.card.value
    if card.kind == "core":
        return CORE if card.owner == agent else SHARED_CORE
    if card.kind == "log":
        return LOGS
    if card.kind == "working" and card.pinned:
        return PINNED
    if card.kind == "working" and wanted.names(card, standing.card.id):
        return REFERENCED
    return None


def _part(agent: str, group: int, standing: Standing, drawn: bulk.Drawn, wanted: Wanted) -> Part:
    card = standing.card.value
    said = [("permission", standing.permission), ("version", str(drawn.version))]
    if card.owner != agent:
        said.append(("shared_from", card.owner))
    text = viewed(drawn.text, card.extra) if card.document == "text" else drawn.text
    body = f"{card.description}\n\n{text}" if card.description else text
    name = _name(agent, card)
    priority = wanted.priorities.get(name, wanted.priorities.get(card.label, 0))
    return Part(name, f"block:{tag_name(card.label)}", tuple(said), body, (-priority, group))


def _name(agent: str, card: BlockRecord) -> str:
    return card.label if card.owner == agent else f"{card.owner}/{card.label}"


# -- what changed -------------------------------------------------------------------------------


async def _changes(library: Library, standings: list[Standing]) -> list[Part]:
    """What others did to the blocks that are shown since the agent looked at them."""
    agent, drawn = library.agent, library._drawn
    lines: list[str] = []
    diffs = 0
    # Of a block that nobody else has written, nothing need be read.
    some = [each for each in standings if drawn[each.card.id].folded or drawn[each.card.id].by != {agent}]
    records = await library._universe.get_many([seen_id(each.card.id, agent) for each in some])
    seen = [found if isinstance(found, Crystal) else None for found in records]
    looks = [
        Look(Block(library, standing), last)
        for standing, last in zip(some, seen, strict=True)
        if _may_be_news(agent, drawn[standing.card.id], last)
    ]
    await notices.load(library, looks)
    for look in looks:
        try:
            told = await notices.notice_of(agent, look, diffs < MAX_DIFFS)
        except (errors.BlockNotFound, errors.DocumentCorrupt):
            continue  # deleted since it was listed, or damaged, which is told in its place
        if told is not None:
            diffs += told.since > 0
            lines.append(_told(_name(agent, look.block._card.value), told))
    return [Part("changes", "memory:changes", (), "\n".join(lines), (0, CHANGES))] if lines else []


def _may_be_news(agent: str, drawn: bulk.Drawn, seen: Crystal[SeenRecord] | None) -> bool:
    """Whether others may have written since the agent looked; by what was read of the block anyway."""
    if seen is None:
        return drawn.by != {agent}
    since = seen.value.version
    return since < drawn.version and (since < drawn.folded or drawn.by != {agent})


def _told(name: str, found: Notice) -> str:
    who = ", ".join(found.by)
    if not found.since:
        return f"{name}: new to you, by {who}"
    head = f"{name}: version {found.since} is {found.version} now, by {who}"
    text = str(found.diff).rstrip("\n")
    if not text:
        return head
    return f"{head}\n{text if len(text) <= MAX_DIFF_CHARS else text[:MAX_DIFF_CHARS] + '…'}"


async def _activity(library: Library, since: int | datetime) -> list[Part]:
    """Who did what to which block, crumb or trail since a commit or a time, the newest first."""
    found = await library.activity(since, limit=ACTIVITIES)
    if not found:
        return []
    lines = []
    for each in found:
        whose = each.label if each.owner == library.agent else f"{each.owner}/{each.label}"
        name = whose if each.kind in ("block", "entry") else f"{each.kind} {each.label[:MAX_NAME_CHARS]}"
        who = "you" if each.by == library.agent else each.by
        lines.append(f"[{clock.text(each.at)[:19]}Z] {who}: {each.what} {name}".rstrip())
    return [Part("activity", "memory:activity", (), "\n".join(lines), (0, ACTIVITY))]


def names_of(referenced: str | Iterable[str]) -> frozenset[str]:
    """The blocks somebody refers to; a bare text is one of them, not its letters."""
    return frozenset((referenced,)) if isinstance(referenced, str) else frozenset(referenced)
