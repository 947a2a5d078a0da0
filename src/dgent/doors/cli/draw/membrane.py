"""Draw sessions, running programs, proposals, the agents of a project, and an import of the ancestor's."""

from __future__ import annotations

from typing import Any

from dgent.doors.cli.style import Paint, ago, table
from dgent.verbs.wire import as_text

Lines = list[str]
_COLOURS = {"active": "green", "failed": "red", "stale": "yellow", "interrupted": "yellow"}


def _state(text: str, paint: Paint) -> str:
    return paint(text, fg=_COLOURS.get(text))


def draw_sessions(found: Any, paint: Paint) -> Lines:
    """Draw a list of sessions."""
    if not found.items:
        return [paint.dim("no sessions; the setting sessions logs each command of a shell in one")]
    rows = [
        [
            paint(each.id, fg="cyan"),
            _state(each.state, paint),
            paint.dim(ago(each.started_at)),
            paint(each.session_type),
            paint(each.name),
        ]
        for each in found.items
    ]
    return table(paint, ("id", "state", "started", "kind", "name"), rows)


def draw_whole_session(found: Any, paint: Paint) -> Lines:
    """Draw a session with what happened in it."""
    session = found.session
    lines = [
        f"{paint(session.id, fg='cyan')}  {_state(session.state, paint)}  {paint.bold(session.name)}",
        paint.dim(f"{session.session_type}, started {ago(session.started_at)}")
        + (f"  {paint(session.project_path)}" if session.project_path else "")
        + (f"  {paint.dim('project ' + session.project_hash)}" if session.project_hash else ""),
        "",
    ]
    for event in found.events:
        data = f"  {paint.dim(as_text(event.data))}" if event.data else ""
        when = paint.dim(f"{event.timestamp:%Y-%m-%d %H:%M:%S}")
        lines.append(f"{when}  {paint(event.event_type, fg='cyan')}  {paint(event.message)}{data}")
    for agent in found.agents:
        error = f": {paint(agent.error, fg='red')}" if agent.error else ""
        lines.append(
            f"agent {paint(agent.name, fg='cyan')} ({paint(agent.genus)}) {paint(agent.status)}{error}"
        )
    for each in found.artifacts:
        place = f"  {paint(each.path)}" if each.path else ""
        lines.append(f"artifact {paint(each.name, fg='cyan')} ({paint(each.artifact_type)}){place}")
    return lines


def draw_hits(found: Any, paint: Paint) -> Lines:
    """Draw the sessions that a search found."""
    if not found.items:
        return [paint.dim("no session has these words")]
    rows = [
        [
            paint(each.session.id, fg="cyan"),
            paint.dim(ago(each.session.started_at)),
            paint(each.session.name),
            paint(each.message),
        ]
        for each in found.items
    ]
    return table(paint, ("id", "started", "name", "found"), rows)


def draw_instances(found: Any, paint: Paint) -> Lines:
    """Draw a list of running programs."""
    if not found.items:
        return [paint.dim("no program has registered itself")]
    rows = [
        [
            _state(each.status, paint),
            paint(f"{each.hostname}:{each.pid}"),
            paint.dim(ago(each.last_heartbeat)),
            paint(each.project_path or ""),
        ]
        for each in found.items
    ]
    return table(paint, ("status", "process", "last heartbeat", "project"), rows)


def draw_growth(found: Any, paint: Paint) -> Lines:
    """Draw proposals, the nursery and the tokens of promotions."""
    rows = [
        [paint(each.id, fg="cyan"), paint(each.status), paint.dim(ago(each.proposed_at)), paint(each.entity)]
        for each in found.proposals
    ]
    rows += [
        [
            paint(each.id, fg="cyan"),
            f"tried {each.usage_count:,}, helped {each.success_count:,}",
            paint.dim(ago(each.germinated_at)),
            paint(each.handle),
        ]
        for each in found.nursery
    ]
    rows += [
        [
            paint(each.id, fg="cyan"),
            "rolled back" if each.used_at else f"until {each.expires_at:%Y-%m-%d}",
            paint.dim(ago(each.promoted_at)),
            paint(each.handle),
        ]
        for each in found.tokens
    ]
    return (
        table(paint, ("id", "state", "since", "name"), rows) if rows else [paint.dim("nothing is proposed")]
    )


def draw_agents(found: Any, paint: Paint) -> Lines:
    """Draw the agents of a project."""
    if not found.items:
        return [paint.dim("no agents; `dgent catalog register` adds one")]
    rows = [
        [
            paint(each.name, fg="cyan"),
            paint(each.genus),
            paint(each.entry),
            paint(", ".join(each.capabilities)),
        ]
        for each in found.items
    ]
    return table(paint, ("name", "genus", "entry", "capabilities"), rows)


def draw_legacy(found: Any, paint: Paint) -> Lines:
    """Draw the result of an import of a legacy folder."""
    if not found.entries:
        return [paint.dim(f"nothing is in {found.folder}")]
    rows = [
        [
            paint(each.name, fg="cyan"),
            paint(each.state, fg={"migrated": "green", "left": "yellow"}.get(each.state)),
            f"{each.files:,}",
            f"{each.records:,}",
            f"{each.blobs:,}",
            paint(each.target),
        ]
        for each in found.entries
    ]
    lines = table(paint, ("entry", "state", "files", "records", "blobs", "became"), rows)
    lines += [f"{paint(each.file, fg='yellow')}  {paint(each.message)}" for each in found.problems]
    if found.odd > len(found.problems):
        lines.append(paint.dim(f"and {found.odd - len(found.problems):,} more"))
    return lines
