"""Agents and groups, for people."""

from __future__ import annotations

from dgent.doors.cli.paint import Paint, cut, table
from dgent.verbs import memory

Lines = list[str]

STATUSES = {"active": "green", "hibernated": "blue", "archived": "red"}


def agents(found: memory.Agents, paint: Paint) -> Lines:
    """Agents, a line each."""
    rows = [
        [
            paint(each.name, fg="cyan"),
            paint(each.status, fg=STATUSES.get(each.status, "white")),
            paint(cut(each.description, 200)),
        ]
        for each in found.items
    ]
    return table(paint, ("agent", "status", "what it is there for"), rows) or [paint.dim("no agents")]


def agent(found: memory.Agent, paint: Paint) -> Lines:
    """One agent."""
    return agents(memory.Agents([found]), paint)


def group(found: memory.Group, paint: Paint) -> Lines:
    """A group and its members."""
    lines = [f"{paint(found.name, fg='yellow', bold=True)}  {paint(found.description)}".rstrip()]
    for each in found.members:
        able = paint.dim(f"  {', '.join(each.capabilities)}" if each.capabilities else "")
        lines.append(f"  {paint(each.agent, fg='cyan')}  {paint(each.role)}{able}")
    return lines if found.members else [*lines, paint.dim("  no members")]


def groups(found: memory.Groups, paint: Paint) -> Lines:
    """Groups, each with its members."""
    return [line for each in found.items for line in group(each, paint)] or [paint.dim("no groups")]
