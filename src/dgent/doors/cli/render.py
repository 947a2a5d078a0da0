"""Answers for people: one function for each kind of answer."""

from __future__ import annotations

import sys
from datetime import datetime
from importlib import import_module
from typing import Any

import click
import msgspec

from dgent.config import settings as config
from dgent.doors.cli.options import Said
from dgent.doors.cli.style import Paint, ago, terminal_size
from dgent.doors.cli.wire import as_text

Lines = list[str]


def show(found: Any, settings: config.Settings, chosen: Said, page: bool = True, err: bool = False) -> None:
    """Print an answer; a long one goes through a pager when someone is there to turn the pages."""
    terminal = (sys.stderr if err else sys.stdout).isatty()
    color = config.wants_color(chosen.color or settings.color, terminal)
    paint = Paint(color, sided=chosen.side_by_side, terminal=terminal)
    lines = drawn(found, paint)
    if page and terminal and not err and _pages(settings.pager, len(lines)):
        click.echo_via_pager("\n".join(lines) + "\n", color=paint.color)
    elif lines:
        click.echo("\n".join(lines), err=err, color=paint.color)


def _pages(setting: str, lines: int) -> bool:
    return setting == "always" or (setting == "auto" and lines >= terminal_size().lines)


def drawn(found: Any, paint: Paint) -> Lines:
    """An answer as lines."""
    name = _DRAWINGS.get(type(found).__name__)
    if name is None:
        return _fields(found, paint)
    module, _, function = name.partition(".")
    lines: Lines = getattr(import_module(f"dgent.doors.cli.draw.{module}"), function)(found, paint)
    return lines


def exit_code(found: Any) -> int:
    """1 when the answer itself says that something is wrong."""
    return 0 if getattr(found, "healthy", True) else 1


def _fields(found: Any, paint: Paint) -> Lines:
    """Any answer, field by field."""
    fields = msgspec.structs.asdict(found)
    most = max(map(len, fields), default=0)
    return [
        f"{paint.dim(name.replace('_', ' '))}{' ' * (most - len(name))}  {_told(value, paint)}"
        for name, value in fields.items()
    ]


def _told(value: Any, paint: Paint) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC, {ago(value)}"
    return paint(value if isinstance(value, str) else "" if value is None else as_text(value))


_DRAWINGS: dict[str, str] = {
    "Record": "record.record",
    "Records": "record.records",
    "Entry": "history.entry",
    "Log": "history.log",
    "Editions": "history.editions",
    "Diff": "history.diff",
    "Done": "history.done",
    "Counted": "record.counted",
    "Backup": "store.backup",
    "Examined": "store.examined",
    "Exported": "store.exported",
    "Forgotten": "store.forgotten",
    "Imported": "store.imported",
    "Restoring": "store.restored",
    "Status": "store.status",
    "Schemas": "store.schemas",
    "Configured": "store.configured",
    "Shown": "history.shown",
    "Changed": "store.changed",
    "Copied": "store.copied",
    "Kept": "store.outbox",
    "Clashing": "store.clashing",
    "Known": "store.known",
    "Deleted": "store.deleted",
    "Constellations": "store.constellations",
    "Associations": "record.associations",
    "Offers": "record.offers",
    "Crumb": "crumb.crumb",
    "Dropped": "crumb.dropped",
    "WholeCrumb": "crumb.whole_crumb",
    "Crumbs": "crumb.crumbs",
    "Queue": "crumb.queue",
    "CrumbVersions": "crumb.versions",
    "Board": "crumb.board",
    "Trail": "crumb.trail",
    "Trails": "crumb.trails",
    "WholeTrail": "crumb.whole_trail",
    "Ended": "crumb.ended",
    "Link": "cupboard.link",
    "Links": "cupboard.links",
    "Property": "cupboard.property_",
    "Properties": "cupboard.properties",
    "Categories": "cupboard.categories",
    "Value": "cupboard.value",
    "Stash": "cupboard.stash",
    "Stashes": "cupboard.stashes",
    "StashVersions": "cupboard.stash_versions",
    "Held": "cupboard.held",
    "MetadataEntry": "cupboard.entry",
    "MetadataEntries": "cupboard.entries",
    "MetadataSchemas": "cupboard.schemas",
    "Removed": "cupboard.removed",
    "dict": "cupboard.row",
    "Rows": "cupboard.rows",
    "Opened": "cupboard.opened",
    "Compared": "crumb.compared",
    "Drawn": "cupboard.graph",
    "Audited": "cupboard.audited",
    "BlockCard": "block.card",
    "Blocks": "block.cards",
    "BlockText": "block.text",
    "BlockInfo": "block.info",
    "BlockShares": "block.shares",
    "Edited": "block.edited",
    "BlockVersions": "block.versions",
    "BlockDiff": "block.diff",
    "BlockBranches": "block.branches",
    "Redacted": "block.redacted",
    "BlockCompacted": "block.compacted",
    "Checkpoint": "block.checkpoint",
    "Checkpoints": "block.checkpoints",
    "FolderSynced": "block.synced",
    "BlockNotices": "block.notices",
    "BlockActivities": "block.activities",
    "Refusals": "block.refusals",
    "MemoryContext": "block.context",
    "Hits": "block.hits",
    "ArchiveEntry": "block.entry",
    "Agent": "block.agent",
    "Agents": "block.agents",
    "Group": "block.group",
    "Groups": "block.groups",
    "TakenIn": "cupboard.taken_in",
    "WrittenOut": "cupboard.written_out",
    "MadeFork": "fork.made",
    "Forks": "fork.forks",
    "Apart": "fork.apart",
    "ForkMerged": "fork.merged",
    "ForkDeleted": "fork.deleted",
}
"""The module and function that draw each kind of answer: plain texts, so that a call loads only its own."""
