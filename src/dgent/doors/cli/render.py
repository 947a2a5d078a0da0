"""Render answers as text: one drawing for each kind of answer."""

from __future__ import annotations

import os
import sys
from dataclasses import is_dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, get_args

import click
import msgspec

from dgent.config import settings as config
from dgent.doors.cli.options import DoorOptions
from dgent.doors.cli.style import Paint, ago, terminal_size
from dgent.verbs.registry import Items
from dgent.verbs.wire import as_text

Lines = list[str]


def show(
    found: Any,
    settings: config.Settings,
    chosen: DoorOptions,
    kind: Any = None,
    page: bool = True,
    err: bool = False,
) -> None:
    """Print an answer; a long one goes through a pager on a terminal. `kind` is as `draw` takes it."""
    terminal = (sys.stderr if err else sys.stdout).isatty()
    color = config.wants_color(chosen.color or settings.color, terminal)
    paint = Paint(color, sided=chosen.side_by_side, terminal=terminal)
    lines = draw(found, paint, kind)
    if page and terminal and not err and _needs_pager(settings.pager, len(lines)):
        # Otherwise less shows the codes of colours instead of colours.
        flags = os.environ.get("LESS", "")
        os.environ["LESS"] = flags if "R" in flags.upper() else f"{flags}R"
        click.echo_via_pager("\n".join(lines) + "\n", color=paint.color)
    elif lines:
        click.echo("\n".join(lines), err=err, color=paint.color)


def _needs_pager(setting: str, lines: int) -> bool:
    return setting == "always" or (setting == "auto" and lines >= terminal_size().lines)


def draw(found: Any, paint: Paint, kind: Any = None) -> Lines:
    """Return an answer as lines; `kind` is the output of its verb, which says what many items are."""
    items = f"Items[{get_args(kind)[0].__name__}]" if isinstance(found, Items) and kind else ""
    name = _DRAWINGS.get(items or type(found).__name__)
    if name is None:
        return _fields(found, paint)
    module, _, function = name.partition(".")
    lines: Lines = getattr(import_module(f"dgent.doors.cli.draw.{module}"), function)(found, paint)
    return lines


def exit_code(found: Any) -> int:
    """Return 1 for an answer that is not healthy, else 0."""
    return 0 if getattr(found, "healthy", True) else 1


def _fields(found: Any, paint: Paint) -> Lines:
    """Draw any answer, field by field."""
    fields = vars(found) if is_dataclass(found) else msgspec.structs.asdict(found)
    most = max(map(len, fields), default=0)
    return [
        f"{paint.dim(name.replace('_', ' '))}{' ' * (most - len(name))}  {_text_of(value, paint)}"
        for name, value in fields.items()
    ]


def _text_of(value: Any, paint: Paint) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC, {ago(value)}"
    return paint(value if isinstance(value, str) else "" if value is None else as_text(value))


_DRAWINGS: dict[str, str] = {
    "Record": "record.draw_record",
    "Records": "record.draw_records",
    "LogEntry": "record.draw_entry",
    "Log": "record.draw_log",
    "Items[RecordVersion]": "record.draw_versions",
    "RecordDiff": "record.draw_diff",
    "ChangeResult": "record.draw_change",
    "SearchHits": "record.draw_hits",
    "RecordCount": "record.draw_count",
    "ValueCounts": "record.draw_values",
    "Swept": "record.draw_swept",
    "EmbeddingReport": "embed.draw_report",
    "Items[TableModel]": "tables.draw_models",
    "Items[TableRow]": "tables.draw_rows",
    "TableRow": "tables.draw_row",
    "TablesState": "tables.draw_state",
    "Items[TableRevision]": "tables.draw_revisions",
    "Items[TableHalf]": "tables.draw_halves",
    "Items[TelemetryEvent]": "telemetry.draw_events",
    "UsageTable": "telemetry.draw_usage",
    "PruneResult": "telemetry.draw_prune",
    "EmbeddingRun": "embed.draw_run",
    "FunctorLaws": "flow.draw_laws",
    "Backup": "store.draw_backup",
    "Examination": "store.draw_examination",
    "FolderCheck": "store.draw_folder_check",
    "Exported": "store.draw_export",
    "ForgetResult": "store.draw_erasure",
    "UserErasure": "store.draw_user_erasure",
    "Imported": "store.draw_import",
    "RestoreResult": "store.draw_restore",
    "Status": "store.draw_status",
    "ProjectStore": "store.draw_project",
    "Upgrade": "store.draw_upgrade",
    "Schemas": "store.draw_schemas",
    "SettingsInfo": "store.draw_settings",
    "WholeCommit": "record.draw_commit",
    "SettingChange": "store.draw_setting_change",
    "Copied": "store.draw_copy",
    "OutboxInfo": "store.draw_outbox",
    "RefusedCommit": "store.draw_conflict",
    "SettingInfo": "store.draw_setting",
    "BlobAnswer": "store.draw_blob",
    "Items[BlobAnswer]": "store.draw_blobs",
    "Collected": "store.draw_collected",
    "NewToken": "store.draw_new_token",
    "TokenInfo": "store.draw_token",
    "Items[TokenInfo]": "store.draw_tokens",
    "ConstellationDeletion": "store.draw_deletion",
    "Items[Constellation]": "store.draw_constellations",
    "Items[RecordLink]": "record.draw_associations",
    "Offers": "record.draw_offers",
    "Crumb": "crumb.draw_crumb",
    "Added": "crumb.draw_added",
    "Finished": "crumb.draw_finished",
    "Dropped": "crumb.draw_drop",
    "Duplicates": "crumb.draw_duplicates",
    "WholeCrumb": "crumb.draw_whole_crumb",
    "Items[Crumb]": "crumb.draw_crumbs",
    "Queue": "crumb.draw_queue",
    "Items[CrumbVersion]": "crumb.draw_versions",
    "Board": "crumb.draw_board",
    "TrailInfo": "crumb.draw_trail",
    "Items[TrailInfo]": "crumb.draw_trails",
    "Lessons": "crumb.draw_lessons",
    "WholeTrail": "crumb.draw_whole_trail",
    "TrailEnd": "crumb.draw_trail_end",
    "LinkInfo": "crumb.draw_link",
    "Items[LinkInfo]": "crumb.draw_links",
    "PropertyInfo": "crumb.draw_property",
    "Items[PropertyInfo]": "crumb.draw_properties",
    "CategoryList": "crumb.draw_categories",
    "Value": "crumb.draw_value",
    "StashInfo": "crumb.draw_stash",
    "Items[StashInfo]": "crumb.draw_stashes",
    "Items[StashVersion]": "crumb.draw_stash_versions",
    "Held": "crumb.draw_holder",
    "MetadataEntry": "crumb.draw_entry",
    "Items[MetadataEntry]": "crumb.draw_entries",
    "Items[SchemaInfo]": "crumb.draw_schemas",
    "Removed": "crumb.draw_removal",
    "dict": "crumb.draw_row",
    "Items[dict]": "crumb.draw_rows",
    "CupboardInfo": "crumb.draw_cupboard",
    "TrailComparison": "crumb.draw_comparison",
    "GraphText": "crumb.draw_graph",
    "AuditReport": "crumb.draw_audit",
    "BlockHeader": "block.draw_block",
    "Blocks": "block.draw_blocks",
    "BlockText": "block.draw_text",
    "BlockInfo": "block.draw_info",
    "Items[BlockShare]": "block.draw_shares",
    "EditResult": "block.draw_edit",
    "BlockVersions": "block.draw_versions",
    "BlockDiff": "block.draw_diff",
    "BlockBranches": "block.draw_branches",
    "RedactResult": "block.draw_redaction",
    "BlockCompaction": "block.draw_compaction",
    "Checkpoint": "block.draw_checkpoint",
    "Checkpoints": "block.draw_checkpoints",
    "SyncResult": "block.draw_sync",
    "Items[BlockNotice]": "block.draw_notices",
    "Items[BlockActivity]": "block.draw_activities",
    "Items[RefusalInfo]": "block.draw_refusals",
    "Context": "block.draw_context",
    "Items[Hit]": "block.draw_hits",
    "ArchiveEntry": "block.draw_entry",
    "Primer": "block.draw_primer",
    "AgentInfo": "block.draw_agent",
    "Items[AgentInfo]": "block.draw_agents",
    "GroupInfo": "block.draw_group",
    "Items[GroupInfo]": "block.draw_groups",
    "Items[CLISession]": "membrane.draw_sessions",
    "WholeSession": "membrane.draw_whole_session",
    "Items[SessionHit]": "membrane.draw_hits",
    "Items[Instance]": "membrane.draw_instances",
    "Growth": "membrane.draw_growth",
    "LegacyResult": "membrane.draw_legacy",
    "Migration": "migration.draw_migration",
    "Items[CatalogAgent]": "membrane.draw_agents",
    "MessagePage": "message.draw_page",
    "Message": "message.draw_message",
    "Items[MessageHit]": "message.draw_hits",
    "BatchInfo": "message.draw_batch",
    "Items[BatchInfo]": "message.draw_batches",
    "Compressed": "message.draw_compressed",
    "Items[Summary]": "message.draw_summaries",
    "Items[Incoming]": "message.draw_queue",
    "Incoming": "message.draw_incoming",
    "AgentContext": "runtime.draw_context",
    "Consent": "runtime.draw_consent",
    "Items[Consent]": "runtime.draw_consents",
    "Grant": "runtime.draw_grant",
    "Items[Grant]": "runtime.draw_grants",
    "ImportResult": "crumb.draw_import",
    "ExportResult": "crumb.draw_export",
    "NewFork": "fork.draw_fork",
    "Items[Fork]": "fork.draw_forks",
    "ForkStatus": "fork.draw_distance",
    "ForkMerged": "fork.draw_merge",
    "ForkDeletion": "fork.draw_deletion",
}
"""The module and function that draw each kind of answer, as plain text: a call loads only its own."""
