"""The context: the memory part of a prompt, in a fixed order.

Parts that seldom change come first, so that a prompt that is sent again begins with the same text: the core
blocks of the agent, those of others, working blocks, logs, and last the recent changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent import clock
from dgent.blocks import errors
from dgent.blocks.access.actor import BlockPermission
from dgent.blocks.block import Block
from dgent.blocks.context import bulk, notices
from dgent.blocks.context.budget import NAMED, Context, PromptPart, Tokens, fit
from dgent.blocks.context.notices import Look, Notice
from dgent.blocks.context.wrapper import tag_name
from dgent.blocks.record import BlockRecord, SeenRecord, seen_id
from dgent.errors import InputError
from dgent.model.crystal import Crystal
from dgent.universe.origin import ORIGIN, find_marks
from dgent.universe.tail import follow

if TYPE_CHECKING:
    from dgent.blocks.library import Library


VIEW = "view"
"""The key in a header's extra fields for its viewport: the first line, from 1, and the number of lines."""


def check_view(document: str, start: object, lines: object) -> dict[str, Any]:
    """Return the viewport for a header's extra fields; empty when all lines are shown."""
    if document != "text":
        raise errors.WrongKind(f"only a text can be shown in part, not a {document}")
    if lines is None:
        return {}
    for name, value in (("start", start), ("lines", lines)):
        if type(value) is not int or not 1 <= value < 2**53:
            raise InputError(f"expected a number of lines from 1 for {name}, got {value!r:.80}", field=name)
    return {VIEW: [start, lines]}


def cut_to_view(text: str, extra: Mapping[str, Any]) -> str:
    """Return the lines of a text that its viewport shows, with their numbers."""
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


CORE, SHARED_CORE, PINNED, REFERENCED, CHANGES, LOGS, ACTIVITY, OTHERS = range(8)
ORDER = (CORE, SHARED_CORE, PINNED, REFERENCED, LOGS, CHANGES, ACTIVITY)
"""The order of the groups in the prompt; their numbers are their importance."""

_HIDDEN: tuple[dict[str, Any], ...] = ({"kind": "archival"}, {"kind": "working", "pinned": False})
MAX_DIFFS = 10  # blocks whose differences are shown; others are only named
MAX_DIFF_CHARS = 2000
MAX_NAME_CHARS = 80  # of a crumb or a trail
ACTIVITIES = 15
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # of a block, as every one is made


@dataclass(frozen=True)
class ContextRequest:
    """The options of a prompt."""

    budget: int | None
    referenced: frozenset[str]
    priorities: Mapping[str, int]
    changes: bool
    since: int | datetime | None
    mark: bool
    tokens: Tokens
    until: int | None = None  # activity up to this commit

    def __post_init__(self) -> None:
        if self.budget is not None and (type(self.budget) is not int or self.budget < 0):
            raise InputError(
                f"expected a number of tokens from 0 for the budget, got {self.budget!r}",
                field="budget_tokens",
            )

    def names(self, header: BlockRecord, id: str) -> bool:
        """Check whether a block is referenced: by its label, its owner and label, or its id."""
        return not self.referenced.isdisjoint((header.label, f"{header.owner}/{header.label}", id))

    def filters(self) -> list[dict[str, Any]]:
        """Return filters for headers: every block that is shown matches one, and few others do."""
        found: list[dict[str, Any]] = [
            {"kind": {"$in": ["core", "log"]}},
            {"kind": "working", "pinned": True},
        ]
        if any(map(_ID.fullmatch, self.referenced)):
            return [*found, {"kind": "working"}]
        parts = [name.split("/") for name in self.referenced]
        labels = sorted({"/".join(part[start:]) for part in parts for start in range(len(part))})
        return [*found, {"kind": "working", "label": {"$in": labels}}] if labels else found


class Gathered(NamedTuple):
    """The parts of a prompt with their groups, before they are fitted; `versions` are by name.

    `origins` are those of blocks below a partner's, by id.
    """

    parts: tuple[tuple[int, PromptPart], ...]
    versions: Mapping[str, tuple[str, int]]
    others: tuple[str, ...]
    origins: Mapping[str, str]

    def find_seen(self, shown: Iterable[str]) -> dict[str, int]:
        """Return the versions of the blocks among some names, by id, for `notices.record_seen`."""
        return dict(self.versions[name] for name in shown if name in self.versions)


async def build_context(library: Library, wanted: ContextRequest) -> Context:
    """Build the memory part of a prompt for an agent."""
    found = await gather_parts(library, wanted)
    made = fit([part for _, part in found.parts], wanted.budget, wanted.tokens)
    if wanted.mark:
        await notices.record_seen(library, found.find_seen(made.shown))
    return replace(made, others=found.others)


async def gather_parts(library: Library, wanted: ContextRequest) -> Gathered:
    """Read the blocks of a prompt, what others changed in them, and activity, in the order of the prompt."""
    visible, hidden = await library._find_for_context(wanted.filters(), _HIDDEN, NAMED + 1)
    shown = _select_shown(library.agent, visible, wanted)
    rendered = library._rendered
    bulk.forget_others(rendered, [each.header.id for each in visible])
    await bulk.render_blocks(library._universe, [each.header for _, each in shown], rendered)
    origins = await _find_marks(library, [each.header.id for _, each in shown])
    parts = [
        (group, _part(library.agent, group, each, rendered[each.header.id], wanted, origins))
        for group, each in shown
    ]
    if wanted.changes and library._universe.past is None:  # what was seen when is not kept
        others = [each for _, each in shown if each.header.value.document != "log"]
        parts += [(CHANGES, part) for part in await _changes(library, others, origins)]
    if wanted.since is not None:
        parts += [(ACTIVITY, part) for part in await _activity(library, wanted)]
    in_context = {each.header.id for _, each in shown}
    hidden = [each for each in hidden if each.header.id not in in_context]
    parts += [(OTHERS, part) for part in _others(library.agent, hidden)]
    if (offline := library._universe.degraded) is not None:
        said = f"the store is offline, so this may be incomplete or outdated: {offline.reason}"
        parts.append((CHANGES, PromptPart("away", "memory:notice", (), said, (-(2**53), 0), whole=True)))
    versions = {
        _name(library.agent, each.header.value): (each.header.id, rendered[each.header.id].version)
        for _, each in shown
    }
    names = tuple(_name(library.agent, each.header.value) for each in hidden)
    return Gathered(tuple(parts), versions, names, origins)


async def _find_marks(library: Library, ids: list[str]) -> Mapping[str, str]:
    """Return the origins of blocks below a partner's; they are kept until any mark is made or removed."""
    tail, kept = await follow(library._universe) if ids else None, library._marks
    if tail is not None and kept is not None and kept[1] == ids and tail.is_untouched(kept[0], (ORIGIN,)):
        return kept[2]
    point = None if tail is None else tail.point
    found = await find_marks(library._universe, ids)
    library._marks = None if point is None else (point, ids, found)
    return found


def _select_shown(
    agent: str, visible: Iterable[BlockPermission], wanted: ContextRequest
) -> list[tuple[int, BlockPermission]]:
    """Return the blocks to show with their groups, in the order of the prompt."""
    groups: dict[int, list[BlockPermission]] = {group: [] for group in ORDER}
    for block_permission in visible:
        group = _group(agent, block_permission, wanted)
        if group is not None:
            groups[group].append(block_permission)
    return [(group, each) for group in ORDER for each in groups[group]]


def _group(agent: str, block_permission: BlockPermission, wanted: ContextRequest) -> int | None:
    header = block_permission.header.value
    if header.kind == "core":
        return CORE if header.owner == agent else SHARED_CORE
    if header.kind == "log":
        return LOGS
    if header.kind == "working" and header.pinned:
        return PINNED
    if header.kind == "working" and wanted.names(header, block_permission.header.id):
        return REFERENCED
    return None


def _part(
    agent: str,
    group: int,
    block_permission: BlockPermission,
    rendered: bulk.RenderedBlock,
    wanted: ContextRequest,
    origins: Mapping[str, str],
) -> PromptPart:
    header = block_permission.header.value
    said = [("permission", block_permission.permission), ("version", str(rendered.version))]
    if header.owner != agent:
        said.append(("shared_from", header.owner))
    if (origin := origins.get(block_permission.header.id)) is not None:
        said.append(("origin", origin))
    text = cut_to_view(rendered.text, header.extra) if header.document == "text" else rendered.text
    body = f"{header.description}\n\n{text}" if header.description else text
    name = _name(agent, header)
    priority = wanted.priorities.get(name, wanted.priorities.get(header.label, 0))
    return PromptPart(name, f"block:{tag_name(header.label)}", tuple(said), body, (-priority, group))


def _name(agent: str, header: BlockRecord) -> str:
    return header.label if header.owner == agent else f"{header.owner}/{header.label}"


def _others(agent: str, hidden: Sequence[BlockPermission]) -> list[PromptPart]:
    """Return the part that names blocks which are not in the prompt, so that the agent knows of them."""
    if not hidden:
        return []
    names = [f"{_name(agent, each.header.value)} ({each.header.value.kind})" for each in hidden[:NAMED]]
    more = ", and more" if len(hidden) > NAMED else ""
    said = f"not shown here; get one by its label to read it, or search: {', '.join(names)}{more}"
    return [PromptPart("others", "memory:others", (), said, (0, OTHERS), whole=True)]


# -- changes by others -------------------------------------------------------------------------------


async def _changes(
    library: Library, block_permissions: list[BlockPermission], origins: Mapping[str, str]
) -> list[PromptPart]:
    """Return the changes by others to the shown blocks since the agent looked at them."""
    agent, rendered = library.agent, library._rendered
    lines: list[str] = []
    diffs = 0
    # A block that nobody else has written needs no further read.
    some = [
        each
        for each in block_permissions
        if rendered[each.header.id].last_packed or rendered[each.header.id].by != {agent}
    ]
    records = await library._universe.get_many([seen_id(each.header.id, agent) for each in some])
    seen = [found if isinstance(found, Crystal) else None for found in records]
    looks = [
        Look(Block(library._permissions, block_permission), last)
        for block_permission, last in zip(some, seen, strict=True)
        if _may_be_news(agent, rendered[block_permission.header.id], last)
    ]
    await notices.load(library, looks)
    for look in looks:
        try:
            notice = await notices.notice_of(agent, look, diffs < MAX_DIFFS)
        except (errors.BlockNotFound, errors.DocumentCorrupt):
            continue  # deleted since it was listed, or damaged, which its own part says
        if notice is not None:
            diffs += notice.since > 0
            name, origin = _name(agent, look.block._header.value), origins.get(look.block.id)
            lines.append(_describe_notice(name if origin is None else f"{name} (origin: {origin})", notice))
    return [PromptPart("changes", "memory:changes", (), "\n".join(lines), (0, CHANGES))] if lines else []


def _may_be_news(agent: str, rendered: bulk.RenderedBlock, seen: Crystal[SeenRecord] | None) -> bool:
    """Check whether others may have written since the agent looked, without another read."""
    if seen is None:
        return rendered.by != {agent}
    since = seen.value.version
    return since < rendered.version and (since < rendered.last_packed or rendered.by != {agent})


def _describe_notice(name: str, found: Notice) -> str:
    who = ", ".join(found.by)
    if not found.since:
        return f"{name}: new to you, by {who}"
    head = f"{name}: version {found.since} is {found.version} now, by {who}"
    text = str(found.diff).rstrip("\n")
    if not text:
        return head
    return f"{head}\n{text if len(text) <= MAX_DIFF_CHARS else text[:MAX_DIFF_CHARS] + '…'}"


async def _activity(library: Library, wanted: ContextRequest) -> list[PromptPart]:
    """Return the activity since a commit or a time, newest first, as a part of the prompt."""
    found = await library.activity(wanted.since, limit=ACTIVITIES)
    found = [each for each in found if wanted.until is None or each.seq <= wanted.until]
    if not found:
        return []
    lines = []
    for each in found:
        whose = each.label if each.owner == library.agent else f"{each.owner}/{each.label}"
        name = whose if each.kind in ("block", "entry") else f"{each.kind} {each.label[:MAX_NAME_CHARS]}"
        who = "you" if each.by == library.agent else each.by
        lines.append(f"[{clock.text(each.at)[:19]}Z] {who}: {each.what} {name}".rstrip())
    return [PromptPart("activity", "memory:activity", (), "\n".join(lines), (0, ACTIVITY))]


def names_of(referenced: str | Iterable[str]) -> frozenset[str]:
    """Return the referenced blocks as a set; a single text is one name, not its letters."""
    return frozenset((referenced,)) if isinstance(referenced, str) else frozenset(referenced)
