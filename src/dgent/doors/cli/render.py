"""Answers for people: one function for each kind of answer."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click
import msgspec

from dgent.config import settings as config
from dgent.doors.cli.draw import (
    block,
    crumb,
    cupboard,
    fork,
    history,
    record,
    store,
)
from dgent.doors.cli.draw import (
    block as agent,
)
from dgent.doors.cli.draw import (
    block as folder,
)
from dgent.doors.cli.draw import (
    block as version,
)
from dgent.doors.cli.draw import (
    crumb as trail,
)
from dgent.doors.cli.draw import (
    cupboard as beside,
)
from dgent.doors.cli.draw import (
    cupboard as moved,
)
from dgent.doors.cli.options import Said
from dgent.doors.cli.style import Paint, ago
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
    height = shutil.get_terminal_size((100, 24)).lines
    return setting == "always" or (setting == "auto" and lines >= height)


def drawn(found: Any, paint: Paint) -> Lines:
    """An answer as lines."""
    draw = _DRAWN.get(type(found).__name__)
    return _fields(found, paint) if draw is None else draw(found, paint)


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


_DRAWN: dict[str, Callable[[Any, Paint], Lines]] = {
    "Record": record.record,
    "Records": record.records,
    "Entry": history.entry,
    "Log": history.log,
    "Editions": history.editions,
    "Diff": history.diff,
    "Done": history.done,
    "Counted": record.counted,
    "Backup": store.backup,
    "Examined": store.examined,
    "Exported": store.exported,
    "Forgotten": store.forgotten,
    "Imported": store.imported,
    "Restoring": store.restored,
    "Status": store.status,
    "Schemas": store.schemas,
    "Configured": store.configured,
    "Shown": history.shown,
    "Changed": store.changed,
    "Copied": store.copied,
    "Kept": store.outbox,
    "Clashing": store.clashing,
    "Known": store.known,
    "Deleted": store.deleted,
    "Constellations": store.constellations,
    "Associations": record.associations,
    "Offers": record.offers,
    "Crumb": crumb.crumb,
    "Dropped": crumb.dropped,
    "WholeCrumb": crumb.whole_crumb,
    "Crumbs": crumb.crumbs,
    "Queue": crumb.queue,
    "CrumbVersions": crumb.versions,
    "Board": crumb.board,
    "Trail": trail.trail,
    "Trails": trail.trails,
    "WholeTrail": trail.whole_trail,
    "Ended": trail.ended,
    "Link": beside.link,
    "Links": beside.links,
    "Property": beside.property_,
    "Properties": beside.properties,
    "Categories": beside.categories,
    "Value": beside.value,
    "Stash": beside.stash,
    "Stashes": beside.stashes,
    "StashVersions": beside.stash_versions,
    "Held": beside.held,
    "MetadataEntry": beside.entry,
    "MetadataEntries": beside.entries,
    "MetadataSchemas": beside.schemas,
    "Removed": beside.removed,
    "dict": cupboard.row,
    "Rows": cupboard.rows,
    "Opened": cupboard.opened,
    "Compared": trail.compared,
    "Drawn": cupboard.graph,
    "Audited": cupboard.audited,
    "BlockCard": block.card,
    "Blocks": block.cards,
    "BlockText": block.text,
    "BlockInfo": block.info,
    "BlockShares": block.shares,
    "Edited": version.edited,
    "BlockVersions": version.versions,
    "BlockDiff": version.diff,
    "BlockBranches": version.branches,
    "Redacted": version.redacted,
    "BlockCompacted": version.compacted,
    "Checkpoint": version.checkpoint,
    "Checkpoints": version.checkpoints,
    "FolderSynced": folder.synced,
    "BlockNotices": block.notices,
    "BlockActivities": block.activities,
    "Refusals": block.refusals,
    "MemoryContext": block.context,
    "Hits": block.hits,
    "ArchiveEntry": block.entry,
    "Agent": agent.agent,
    "Agents": agent.agents,
    "Group": agent.group,
    "Groups": agent.groups,
    "ImportResult": moved.taken_in,
    "ExportResult": moved.written_out,
    "MadeFork": fork.made,
    "Forks": fork.forks,
    "ForkStatus": fork.apart,
    "ForkMerged": fork.merged,
    "ForkDeleted": fork.deleted,
}
