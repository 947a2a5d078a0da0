"""Crumbs, the board, and what is going on, for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dgent import clock
from dgent.doors.cli.draw.beside import said
from dgent.doors.cli.paint import Paint, ago, cut, fitted, many, table, until, width
from dgent.doors.cli.wire import as_text
from dgent.verbs import entity

Lines = list[str]

COLORS = {
    "draft": "white",
    "pending": "white",
    "ready": "green",
    "taken": "yellow",
    "pebble": "cyan",
    "dust": "red",
    "active": "green",
    "completed": "cyan",
    "abandoned": "red",
}
SHORTEST = 8  # letters of an id at least, where ids are cut


def state(word: str, paint: Paint) -> str:
    """A state in its colour."""
    return paint(word, fg=COLORS.get(word, "white"))


def short_ids(ids: list[str]) -> dict[str, str]:
    """The beginning of each id that tells it from the others."""
    ordered = sorted(set(ids))
    out = {}
    for place, id in enumerate(ordered):
        near = [*ordered[max(place - 1, 0) : place], *ordered[place + 1 : place + 2]]
        out[id] = id[: max(SHORTEST, *(_common(id, other) + 1 for other in near), 0)]
    return out


def _common(one: str, other: str) -> int:
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def _texts(properties: dict[str, Any]) -> dict[str, str]:
    """The values that say something, as texts."""
    return {
        name: value
        if isinstance(value, str)
        else ", ".join(value)
        if isinstance(value, list)
        else _value(value)
        for name, value in properties.items()
        if value not in (None, "", [], 0, False)
    }


def _value(value: Any) -> str:
    return f"{value:%Y-%m-%d %H:%M} UTC" if isinstance(value, datetime) else as_text(value)


def crumb(found: entity.Crumb, paint: Paint) -> Lines:
    """One crumb."""
    lines = [f"{paint(found.id, fg='yellow', bold=True)}  {state(found.state, paint)}"]
    lines[0] += f"  {paint.bold(found.name)}"
    if found.holder and found.state == "taken":
        told = f"taken by {found.holder}"
        told += f" {until(found.lease_until)}" if found.lease_until else ""
        lines.append(paint(told, fg="yellow") + paint.dim(f", token {found.token}"))
    if found.defer_until is not None and found.defer_until > clock.now():
        lines.append(paint(f"put off {until(found.defer_until)}", fg="yellow"))
    lines += properties(found.properties, paint)
    return lines


def dropped(found: entity.Dropped, paint: Paint) -> Lines:
    """A crumb that was given up, and what waits for it for ever if nobody looks."""
    lines = crumb(found, paint)
    for other in found.waiting:
        lines.append(f"  {paint('still waits for it:', fg='yellow')} {neighbour(other, paint)}")
    if found.waiting:
        lines.append(paint.dim("  drop those too, or take the link away with `dgent link delete`"))
    return lines


def properties(properties: dict[str, Any], paint: Paint) -> Lines:
    texts = _texts(properties)
    most = max(map(len, texts), default=0)
    return [f"  {paint.dim(name)}{' ' * (most - len(name))}  {paint(text)}" for name, text in texts.items()]


def whole_crumb(found: entity.WholeCrumb, paint: Paint) -> Lines:
    """One crumb with all that hangs on it."""
    lines = crumb(found, paint)
    made = f"  made {ago(found.created_at)}" if found.created_at else ""
    if found.updated_at and found.updated_at != found.created_at:
        made += f", changed {ago(found.updated_at)}"
    lines.append(paint.dim(made))
    for label, others in (
        ("on the trail", [found.trail] if found.trail else []),
        ("came from", [found.origin] if found.origin else []),
        ("after", found.parents),
        ("before", found.children),
    ):
        for other in others:
            lines.append(f"  {paint.dim(label)} {neighbour(other, paint)}")
    if found.state not in ("pebble", "dust"):
        lead = "can be taken" if found.ready else "cannot be taken now"
        lines.append(f"  {paint.dim(lead + ':')} {paint('; '.join(found.reasons))}")
    for each in found.metadata:
        lines += said(each, paint)
    return lines


def neighbour(found: entity.Neighbour, paint: Paint) -> str:
    return f"{paint(found.id, fg='yellow')} {state(found.state, paint)} {paint(found.name)}"


def crumbs(found: Any, paint: Paint) -> Lines:
    """Crumbs, a line each."""
    if not found.items:
        return [paint.dim("no crumbs")]
    return _crumb_table(found.items, paint)


def _crumb_table(items: list[Any], paint: Paint) -> Lines:
    rows = [
        [
            paint(each.id, fg="yellow"),
            state(each.state, paint),
            paint(each.properties.get("priority") or "-"),
            paint(each.properties.get("type") or "-"),
            paint.dim(ago(each.created_at) if each.created_at else ""),
            paint(cut(each.name, 200)) + (paint.dim(f"  {each.holder}") if each.holder else ""),
        ]
        for each in items
    ]
    return table(paint, ("id", "state", "priority", "type", "made", "name"), rows)


def queue(found: entity.Queue, paint: Paint) -> Lines:
    """Crumbs in the order in which they are taken, and why."""
    if not found.items:
        lead = "nothing waits" if found.explain == "nothing waits for anything" else "nothing is ready"
        return [paint.dim(lead if lead == "nothing waits" else f"{lead}; {found.explain}".rstrip("; "))]
    if not any(each.reasons for each in found.items):
        return _crumb_table(found.items, paint)
    lines: Lines = []
    for each in found.items:
        lines.append(f"{paint(each.id, fg='yellow')}  {state(each.state, paint)}  {paint(each.name)}")
        lines += [f"    {paint.dim(reason)}" for reason in each.reasons]
    return lines


def versions(found: entity.CrumbVersions, paint: Paint) -> Lines:
    """The versions of a crumb, a line each."""
    rows = []
    for each in found.items:
        was = each.crumb
        about = [] if was is None else [was.name, *(f"{k}={v}" for k, v in _texts(was.properties).items())]
        rows.append(
            [
                paint(each.rev, fg="yellow"),
                paint.dim(each.seq),
                paint.dim(ago(each.at)),
                paint(each.author or "", fg="cyan"),
                paint("removed", fg="red") if was is None else state(was.state, paint),
                paint(was.holder or "" if was else ""),
                paint(cut("  ".join(about), 200)),
            ]
        )
    return table(paint, ("rev", "commit", "when", "by", "state", "holder", "crumb"), rows)


def board(found: entity.Board, paint: Paint) -> Lines:
    """Crumbs in columns by state; the columns that are empty give their room to the others."""
    columns = [column for column in found.columns if column.count]
    if not columns:
        return [paint.dim("no crumbs")]
    names = short_ids([each.id for column in columns for each in column.crumbs])
    room = max((paint.width - 2 * (len(columns) - 1)) // len(columns), 12)
    cells = [_cards(column, names, room, paint) for column in columns]
    lines = []
    for row in range(max(map(len, cells))):
        parts = [cell[row] if row < len(cell) else "" for cell in cells]
        lines.append("  ".join(part + " " * (room - width(part)) for part in parts).rstrip())
    return lines


def _cards(column: entity.Column, names: dict[str, str], room: int, paint: Paint) -> Lines:
    color = COLORS[column.state]
    lines = [paint(fitted(f"{column.state} ({column.count})", room), fg=color, bold=True), "-" * room]
    for each in column.crumbs:
        lines.append(paint(fitted(each.name, room)))
        told = " ".join(filter(None, (names[each.id], each.properties.get("priority"), each.holder)))
        lines.append(paint.dim(fitted(f"  {told}", room)))
    if column.count > len(column.crumbs):
        lines.append(paint.dim(fitted(f"and {column.count - len(column.crumbs)} more", room)))
    return lines


def work(found: entity.Work | None, paint: Paint) -> Lines:
    """What is going on, in a few lines; nothing where there is no cupboard."""
    if found is None or not (found.trails or found.ready):
        return []
    lines = []
    if found.trails:
        names = ", ".join(each.name or each.id for each in found.trails)
        lines.append(
            f"{paint(many(len(found.trails), 'active trail'), fg='green')}  {paint(cut(names, 200))}"
        )
    if found.ready:
        number = f"{len(found.ready)}{'+' if found.more else ''} ready"
        names = ", ".join(each.name for each in found.ready)
        lines.append(f"{paint(number, fg='green')}  {paint(cut(names, max(paint.width - 20, 40)))}")
    return lines
