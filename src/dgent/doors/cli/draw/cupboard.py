"""Crumbs, trails and what hangs on them, for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dgent import clock
from dgent.doors.cli.paint import Paint, ago, cut, fitted, many, table, width
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


def until(moment: datetime) -> str:
    """When something ends or begins, as people say it."""
    seconds = (moment - clock.now()).total_seconds()
    if seconds <= 0:
        return f"until {ago(moment)}"
    for below, unit, name in ((90, 1, "second"), (5400, 60, "minute"), (172800, 3600, "hour")):
        if seconds < below:
            return f"for {many(round(seconds / unit), name)}"
    return f"until {moment:%Y-%m-%d %H:%M} UTC"


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


# -- crumbs -----------------------------------------------------------------------------------


def _said(properties: dict[str, Any]) -> dict[str, str]:
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
    lines += _properties(found.properties, paint)
    return lines


def _properties(properties: dict[str, Any], paint: Paint) -> Lines:
    said = _said(properties)
    most = max(map(len, said), default=0)
    return [f"  {paint.dim(name)}{' ' * (most - len(name))}  {paint(text)}" for name, text in said.items()]


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
            lines.append(f"  {paint.dim(label)} {_neighbour(other, paint)}")
    if found.state not in ("pebble", "dust"):
        lead = "can be taken" if found.ready else "cannot be taken now"
        lines.append(f"  {paint.dim(lead + ':')} {paint('; '.join(found.reasons))}")
    for each in found.metadata:
        lines += _entry(each, paint)
    return lines


def _neighbour(found: entity.Neighbour, paint: Paint) -> str:
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
        about = [] if was is None else [was.name, *(f"{k}={v}" for k, v in _said(was.properties).items())]
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


# -- trails -----------------------------------------------------------------------------------


def trail(found: entity.Trail, paint: Paint) -> Lines:
    """One trail."""
    head = f"{paint(found.id, fg='yellow', bold=True)}  {state(found.state, paint)}"
    lines = [f"{head}  {paint.bold(found.name)}"]
    for label in ("goal", "reason", "lesson"):
        if said := getattr(found, label):
            lines += [f"  {paint.dim(label)}  {paint(line)}" for line in said.splitlines()]
    return lines + _properties(found.properties, paint)


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
        lines.append(f"  {paint.dim('branches from')} {_neighbour(found.branches_from, paint)}")
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
    children: dict[str, list[entity.Member]] = {}
    for each in members:
        above = next((parent for parent in each.parents if parent in names), "")
        children.setdefault(above, []).append(each)
    lines: Lines = []
    # Without recursion: a chain of a thousand crumbs is deep. An id, and how its line begins.
    waiting = [(each, "", each is children[""][-1]) for each in reversed(children.get("", []))]
    while waiting:
        each, indent, last = waiting.pop()
        stem = "`- " if last else "|- "
        also = [names.get(parent, parent) for parent in each.parents]
        also = [
            name for name in also if name != names.get(next(iter(p for p in each.parents if p in names), ""))
        ]
        line = f"{indent}{stem}{state(each.state, paint)} {paint(each.name)}"
        line += paint.dim(f"  {names[each.id]}" + (f"  {each.holder}" if each.holder else ""))
        lines.append(line + (paint.dim(f"  also after {', '.join(also)}") if also else ""))
        below = children.get(each.id, [])
        deeper = indent + ("   " if last else "|  ")
        waiting += [(child, deeper, child is below[-1]) for child in reversed(below)]
    return lines


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


# -- what hangs on them -----------------------------------------------------------------------


def links(found: entity.Links, paint: Paint) -> Lines:
    """Links, a line each."""
    rows = [
        [
            paint(each.id, fg="yellow"),
            paint(cut(each.from_name or each.from_id, 40)),
            paint(each.type, fg="cyan"),
            paint(cut(each.to_name or each.to_id, 200)),
        ]
        for each in found.items
    ]
    return table(paint, ("id", "from", "type", "to"), rows) or [paint.dim("no links")]


def link(found: entity.Link, paint: Paint) -> Lines:
    """One link."""
    return links(entity.Links([found]), paint)


def properties(found: entity.Properties, paint: Paint) -> Lines:
    """Properties, a line each."""
    rows = [
        [
            paint(each.name, fg="cyan"),
            paint(each.scope),
            paint(each.type),
            paint(", ".join(each.categories) or each.description),
        ]
        for each in found.items
    ]
    return table(paint, ("property", "of a", "type", "categories or meaning"), rows) or [
        paint.dim("no properties")
    ]


def property_(found: entity.Property, paint: Paint) -> Lines:
    """One property."""
    return properties(entity.Properties([found]), paint)


def categories(found: entity.Categories, paint: Paint) -> Lines:
    """The categories of a property, a line each."""
    rows = [[f"{each.ordinal}", paint(each.name, fg="cyan")] for each in found.items]
    return table(paint, ("rank", found.property), rows) or [paint.dim("no categories")]


def value(found: entity.Value, paint: Paint) -> Lines:
    """The value of a property, alone: a script may want it."""
    told = found.value
    return [paint("null" if told is None else told if isinstance(told, str) else as_text(told))]


def stash_table(items: list[entity.Stash], paint: Paint) -> Lines:
    """Stashes, a line each."""
    rows = [
        [
            paint(each.id, fg="yellow"),
            paint(each.type, fg="cyan"),
            paint(each.name),
            paint.dim(each.version),
            paint(cut(_stashed(each), 200)),
        ]
        for each in items
    ]
    return table(paint, ("id", "type", "stash", "version", "value"), rows)


def _stashed(found: entity.Stash) -> str:
    held = found.value
    if found.type == "lock":
        return f"held by {held['holder']}" if isinstance(held, dict) and held.get("holder") else "free"
    if found.type == "counter" and isinstance(held, dict) and set(held) == {"value"}:
        return as_text(held["value"])
    return held if isinstance(held, str) else as_text(held)


def stashes(found: entity.Stashes, paint: Paint) -> Lines:
    """Stashes, a line each."""
    return stash_table(found.items, paint) or [paint.dim("no stashes")]


def stash(found: entity.Stash, paint: Paint) -> Lines:
    """One stash."""
    return stash_table([found], paint)


def stash_versions(found: entity.StashVersions, paint: Paint) -> Lines:
    """What was done to a stash, a line each."""
    rows = [
        [
            paint(each.version, fg="yellow"),
            paint(each.operation, fg="cyan"),
            paint.dim(ago(each.at)),
            paint(each.changed_by or ""),
            paint(cut(as_text(each.value), 200)),
        ]
        for each in found.items
    ]
    return table(paint, ("version", "operation", "when", "by", "value"), rows)


def held(found: entity.Held, paint: Paint) -> Lines:
    """Who has something, and until when."""
    lease = f" {until(found.until)}" if found.until else ""
    token = "" if found.token is None else f", token {found.token}"
    return [f"{paint(found.id, fg='yellow')}  {paint(found.holder)} has it{lease}{paint.dim(token)}"]


def _entry(found: entity.MetadataEntry, paint: Paint) -> Lines:
    about = f" about {found.property}" if found.property else ""
    when = ago(found.created_at) if found.created_at else ""
    first, *rest = found.content.splitlines() or [""]
    head = f"  {paint(found.schema, fg='cyan')}{paint.dim(about + '  ' + when)}  {paint(first)}"
    return [head, *(f"    {paint(line)}" for line in rest)]


def entry(found: entity.MetadataEntry, paint: Paint) -> Lines:
    """One metadata entry."""
    return [paint(found.id, fg="yellow") + f"  {paint(found.crumb)}", *_entry(found, paint)]


def entries(found: entity.MetadataEntries, paint: Paint) -> Lines:
    """Metadata entries."""
    if not found.items:
        return [paint.dim("no entries")]
    return [line for each in found.items for line in entry(each, paint)]


def schemas(found: entity.MetadataSchemas, paint: Paint) -> Lines:
    """Kinds of metadata, a line each."""
    rows = [[paint(each.name, fg="cyan"), each.content_type, paint(each.description)] for each in found.items]
    return table(paint, ("schema", "content", "what it is"), rows)


def removed(found: entity.Removed, paint: Paint) -> Lines:
    """What was removed."""
    return [f"removed {paint(found.table)} {paint(found.id, fg='yellow')}  {paint(found.name)}".rstrip()]


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


# -- the tables as they are ---------------------------------------------------------------------


def row(found: dict[str, Any], paint: Paint) -> Lines:
    """An entity, field by field."""
    most = max(map(len, found), default=0)
    return [
        f"{paint.dim(name)}{' ' * (most - len(name))}  {paint(_cell(value))}" for name, value in found.items()
    ]


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return clock.text(value)
    return value if isinstance(value, str) else "" if value is None else as_text(value)


def rows(found: Any, paint: Paint) -> Lines:
    """Entities, one below the other."""
    if not found.items:
        return [paint.dim("nothing found")]
    lines: Lines = []
    for each in found.items:
        lines += [*row(each, paint), ""]
    return lines[:-1]


def opened(found: Any, paint: Paint) -> Lines:
    """A cupboard, and what it holds."""
    rows = [[paint(name, fg="cyan"), f"{count:,}"] for name, count in found.tables.items()]
    return [paint(found.place), "", *table(paint, ("table", "entities"), rows)]
