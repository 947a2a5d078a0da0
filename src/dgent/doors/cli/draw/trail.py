"""Trails, their crumbs as a tree, and how they ended, for people."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from dgent.doors.cli.draw.beside import stash_table
from dgent.doors.cli.draw.crumb import neighbour, properties, short_ids, state
from dgent.doors.cli.paint import Paint, ago, cut, fitted, many, table
from dgent.doors.cli.wire import as_text
from dgent.verbs import entity

Lines = list[str]


def trail(found: entity.Trail, paint: Paint) -> Lines:
    """One trail."""
    head = f"{paint(found.id, fg='yellow', bold=True)}  {state(found.state, paint)}"
    lines = [f"{head}  {paint.bold(found.name)}"]
    for label in ("goal", "reason", "lesson"):
        if said := getattr(found, label):
            lines += [f"  {paint.dim(label)}  {paint(line)}" for line in said.splitlines()]
    return lines + properties(found.properties, paint)


def trails(found: entity.Trails, paint: Paint) -> Lines:
    """Trails, a line each; what was learned where they were given up."""
    if not found.items:
        return [paint.dim("no trails")]
    rows = [
        [
            paint(each.id, fg="yellow"),
            state(each.state, paint),
            paint.dim(ago(each.created_at) if each.created_at else ""),
            paint(cut(each.name, 60)),
            paint(cut(each.lesson or each.reason or each.goal, 200)),
        ]
        for each in found.items
    ]
    return table(paint, ("id", "state", "made", "name", "goal or lesson"), rows)


def whole_trail(found: entity.WholeTrail, paint: Paint) -> Lines:
    """One trail with its crumbs as a tree."""
    lines = trail(found, paint)
    if found.branches_from:
        lines.append(f"  {paint.dim('branches from')} {neighbour(found.branches_from, paint)}")
    if found.crumbs or found.kept:
        lines += ["", *tree(found.crumbs or found.kept, paint)]
    if found.removed:
        lines.append(paint.dim(f"  {many(found.removed, 'crumb')} of it removed since"))
    if not (found.crumbs or found.kept or found.removed):
        lines.append(paint.dim("  no crumbs"))
    return lines + (["", *stash_table(found.stashes, paint)] if found.stashes else [])


def tree(members: list[entity.Member], paint: Paint) -> Lines:
    """Crumbs below what they come after; one that comes after several is below the first."""
    names = short_ids([each.id for each in members])
    above = {each.id: next((id for id in each.parents if id in names), "") for each in members}
    for each in members:
        _untie(each.id, above)
    children: dict[str, list[entity.Member]] = {}
    for each in members:
        children.setdefault(above[each.id], []).append(each)
    lines: Lines = []
    # Without recursion: a chain of a thousand crumbs is deep.
    waiting = [("", each, each is children[""][-1]) for each in reversed(children.get("", []))]
    while waiting:
        indent, each, last = waiting.pop()
        also = [names.get(id, id) for id in each.parents if id != above[each.id]]
        line = f"{indent}{'`- ' if last else '|- '}{state(each.state, paint)} {paint(each.name)}"
        line += paint.dim(f"  {names[each.id]}" + (f"  {each.holder}" if each.holder else ""))
        lines.append(line + (paint.dim(f"  also after {', '.join(also)}") if also else ""))
        below = children.get(each.id, [])
        deeper = indent + ("   " if last else "|  ")
        waiting += [(deeper, child, child is below[-1]) for child in reversed(below)]
    return lines


def _untie(id: str, above: dict[str, str]) -> None:
    """Begin at a crumb that is on its own way up, as only a broken import leaves one."""
    step, seen = above[id], {id}
    while step and step not in seen:
        seen.add(step)
        step = above[step]
    if step == id:
        above[id] = ""


def ended(found: entity.Ended, paint: Paint) -> Lines:
    """How a trail ended, and how to have it back."""
    number = many(len(found.crumbs), "crumb")
    told = f"{number} kept" if found.trail.state == "completed" else f"{number} removed"
    lines = [*trail(found.trail, paint), f"  {told}"]
    if found.freed:
        lines.append(f"  {paint(', '.join(found.freed), fg='yellow')} no longer waits for them")
    if found.seq is not None:
        lines.append(paint.dim(f"  `dgent undo {found.seq}` takes it back"))
    return lines


def compared(found: Any, paint: Paint) -> Lines:
    """Two trails side by side."""
    room = max((paint.width - 3) // 2, 20)
    sides = []
    for each in (found.a, found.b):
        counts = ", ".join(f"{count} {name}" for name, count in each.counts.items() if count)
        lines = [line for line in trail(each.trail, Paint(False, room)) if line]
        lines.append(counts or ("no crumbs" if each.known else "what it had is no longer kept"))
        sides.append(lines + [f"  {crumb.state}  {crumb.name}" for crumb in each.crumbs])
    out = []
    for left, right in zip_longest(*sides, fillvalue=""):
        out.append(f"{paint(fitted(left, room))} | {paint(fitted(right, room))}".rstrip(" |"))
    for name, (one, other) in {**found.properties, **found.stashes}.items():
        color = "white" if one == other else "yellow"
        out.append(f"{paint(name, fg=color)}  {paint(as_text(one))} | {paint(as_text(other))}")
    return out
