"""Draw crumbs, trails, the board, and the work in progress."""

from __future__ import annotations

from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from dgent import clock
from dgent.doors.cli.style import Paint, ago, cut, fit, many, size, table, until, width
from dgent.verbs.cupboard import answer
from dgent.verbs.cupboard.answer import Crumb
from dgent.verbs.registry import Items
from dgent.verbs.wire import as_text

if TYPE_CHECKING:
    from dgent.verbs.cupboard import answer


def draw_links(found: Items[answer.LinkInfo], paint: Paint) -> Lines:
    """Draw links, a line each."""
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


def draw_link(found: answer.LinkInfo, paint: Paint) -> Lines:
    """Draw one link."""
    return draw_links(Items([found]), paint)


def draw_properties(found: Items[answer.PropertyInfo], paint: Paint) -> Lines:
    """Draw properties, a line each."""
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


def draw_property(found: answer.PropertyInfo, paint: Paint) -> Lines:
    """Draw one property."""
    return draw_properties(Items([found]), paint)


def draw_categories(found: answer.CategoryList, paint: Paint) -> Lines:
    """Draw the categories of a property, a line each."""
    rows = [[f"{each.ordinal}", paint(each.name, fg="cyan")] for each in found.items]
    return table(paint, ("rank", found.property), rows) or [paint.dim("no categories")]


def draw_value(found: answer.Value, paint: Paint) -> Lines:
    """Draw only the value of a property, for scripts."""
    value = found.value
    return [paint("null" if value is None else value if isinstance(value, str) else as_text(value))]


def draw_stash_table(items: list[answer.StashInfo], paint: Paint) -> Lines:
    """Draw stashes, a line each."""
    rows = [
        [
            paint(each.id, fg="yellow"),
            paint(each.type, fg="cyan"),
            paint(each.name),
            paint.dim(each.version),
            paint(cut(_stash_text(each), 200)),
        ]
        for each in items
    ]
    return table(paint, ("id", "type", "stash", "version", "value"), rows)


def _stash_text(found: answer.StashInfo) -> str:
    held = found.value
    if found.type == "lock":
        return f"held by {held['holder']}" if isinstance(held, dict) and held.get("holder") else "free"
    if found.type == "counter" and isinstance(held, dict) and set(held) == {"value"}:
        return as_text(held["value"])
    return held if isinstance(held, str) else as_text(held)


def draw_stashes(found: Items[answer.StashInfo], paint: Paint) -> Lines:
    """Draw stashes, a line each."""
    return draw_stash_table(found.items, paint) or [paint.dim("no stashes")]


def draw_stash(found: answer.StashInfo, paint: Paint) -> Lines:
    """Draw one stash."""
    return draw_stash_table([found], paint)


def draw_stash_versions(found: Items[answer.StashVersion], paint: Paint) -> Lines:
    """Draw the versions of a stash, a line each."""
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


def draw_holder(found: answer.Held, paint: Paint) -> Lines:
    """Draw the holder of something, and until when."""
    lease = f" {until(found.until)}" if found.until else ""
    token = "" if found.token is None else f", token {found.token}"
    return [f"{paint(found.id, fg='yellow')}  {paint(found.holder)} has it{lease}{paint.dim(token)}"]


def draw_metadata(found: answer.MetadataEntry, paint: Paint) -> Lines:
    """Draw a metadata entry below its crumb."""
    about = f" about {found.property}" if found.property else ""
    when = f"{found.author}, " * bool(found.author) + (ago(found.created_at) if found.created_at else "")
    first, *rest = found.content.splitlines() or [""]
    head = f"  {paint(found.schema, fg='cyan')}{paint.dim(about + '  ' + when)}  {paint(first)}"
    return [head, *(f"    {paint(line)}" for line in rest)]


def draw_entry(found: answer.MetadataEntry, paint: Paint) -> Lines:
    """Draw one metadata entry below the id of its crumb."""
    return [paint(found.crumb_short_id or found.crumb, fg="yellow"), *draw_metadata(found, paint)]


def draw_entries(found: Items[answer.MetadataEntry], paint: Paint) -> Lines:
    """Draw metadata entries."""
    if not found.items:
        return [paint.dim("no entries")]
    lines: Lines = []
    for each in found.items:
        crumb, *rest = draw_entry(each, paint)
        lines += [f"{crumb}  {paint.dim(each.id)}", *rest]  # whose id `metadata delete` takes
    return lines


def draw_schemas(found: Items[answer.SchemaInfo], paint: Paint) -> Lines:
    """Draw kinds of metadata, a line each."""
    rows = [[paint(each.name, fg="cyan"), each.content_type, paint(each.description)] for each in found.items]
    return table(paint, ("schema", "content", "what it is"), rows)


def draw_removal(found: answer.Removed, paint: Paint) -> Lines:
    """Draw a removed entity."""
    return [f"removed {paint(found.table)} {paint(found.id, fg='yellow')}  {paint(found.name)}".rstrip()]


SHOWN = 20


def draw_import(found: Any, paint: Paint) -> Lines:
    """Draw the result of an import, and its problems."""
    names = ("added", "changed", "unchanged", "skipped")
    counts = ", ".join(f"{number:,} {name}" for name in names if (number := getattr(found, name)))
    lines = [("would be: " if found.dry_run else "") + (counts or "nothing in it")]
    if found.kept:
        one, them = ("it is", "it") if found.kept == 1 else ("they are", "them")
        lines.append(f"{many(found.kept, 'line')} kept as {one}, because no record can hold {them}")
    for problem in found.problems[:SHOWN]:
        lines.append(paint(f"{problem.file}, line {problem.line}: {problem.message}", fg="yellow"))
    if found.odd > SHOWN:
        lines.append(paint.dim(f"and {found.odd - SHOWN:,} more; --json lists them"))
    return lines


def draw_export(found: Any, paint: Paint) -> Lines:
    """Draw the result of an export."""
    one = [*found.lines] == [found.path.rpartition("/")[2]]  # the file itself, whose name is said already
    counts = ", ".join(
        many(number, "line") if one else f"{number:,} {name}"
        for name, number in found.lines.items()
        if number
    )
    where = paint(found.path, fg="cyan")
    return [f"{where}: {counts or 'nothing'}", f"as of commit {found.seq:,}, {size(found.size_bytes)}"]


def draw_row(found: dict[str, Any], paint: Paint) -> Lines:
    """Draw an entity, field by field."""
    most = max(map(len, found), default=0)
    return [
        f"{paint.dim(name)}{' ' * (most - len(name))}  {paint(_cell(value))}" for name, value in found.items()
    ]


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return clock.text(value)
    return value if isinstance(value, str) else "" if value is None else as_text(value)


def draw_rows(found: Any, paint: Paint) -> Lines:
    """Draw entities, one below the other."""
    if not found.items:
        return [paint.dim("nothing found")]
    lines: Lines = []
    for each in found.items:
        lines += [*draw_row(each, paint), ""]
    return lines[:-1]


def draw_cupboard(found: Any, paint: Paint) -> Lines:
    """Draw a cupboard, and the sizes of its tables."""
    rows = [[paint(name, fg="cyan"), f"{count:,}"] for name, count in found.tables.items()]
    return [paint(found.place), "", *table(paint, ("table", "entities"), rows)]


def draw_graph(found: Any, paint: Paint) -> Lines:
    """Print the graph as text for other programs."""
    return [paint(line) for line in found.text.splitlines()]


def draw_audit(found: Any, paint: Paint) -> Lines:
    """Draw the findings of an audit."""
    lines = []
    for each in found.findings:
        fixed = paint(" (repaired)", fg="green") if each.repaired else ""
        lines.append(f"{paint(each.rule, fg='red')}: {paint(each.text)}{fixed}")
        lines += [] if each.repaired else [f"    {paint.dim(each.suggestion)}"]
    held = f"{found.on_trail:,} crumbs on trails, {found.permanent:,} permanent, {found.orphan:,} on none"
    verdict = paint("healthy", fg="green", bold=True) if found.healthy else paint("not healthy", fg="red")
    lines.append(f"{verdict}  {paint.dim(held)}")
    if found.seq is not None:
        lines.append(paint.dim(f"`dgent undo {found.seq}` takes the repair back"))
    return lines


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
PLACED = frozenset(
    (
        *("id", "name", "state", "properties", "created_at", "updated_at"),
        *("defer_until", "holder", "lease_until", "token", "seq", "short_id", "open_parents"),
    )
)
"""Fields of a crumb that have a place of their own; any other is drawn like a property."""


def draw_state(word: str, paint: Paint) -> str:
    """Draw a state in its colour."""
    return paint(word, fg=COLORS.get(word, "white"))


def _texts(properties: dict[str, Any]) -> dict[str, str]:
    """Return the values that are not empty, as texts."""
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


def draw_crumb(found: answer.Crumb, paint: Paint) -> Lines:
    """Draw one crumb."""
    lines = [f"{paint(found.handle, fg='yellow', bold=True)}  {draw_standing(found, paint)}"]
    lines[0] += f"  {paint.bold(found.name)}"
    if found.holder and found.state == "taken":
        text = f"taken by {found.holder}"
        text += f" {until(found.lease_until)}" if found.lease_until else ""
        lines.append(paint(text, fg="yellow") + paint.dim(f", token {found.token}"))
    if found.defer_until is not None and found.defer_until > clock.now():
        lines.append(paint(f"put off {until(found.defer_until)}", fg="yellow"))
    others = {name: getattr(found, name) for name in Crumb.__struct_fields__ if name not in PLACED}
    return lines + draw_values(others | found.properties, paint)


def draw_added(found: answer.Added, paint: Paint) -> Lines:
    """Draw new crumbs, a line each."""
    return [draw_neighbour(each, paint) for each in found.items]


def draw_finished(found: answer.Finished, paint: Paint) -> Lines:
    """Draw a crumb, and a line for each of those that were changed with it."""
    return [*draw_crumb(found, paint), *(draw_neighbour(each, paint) for each in found.others)]


def draw_duplicates(found: answer.Duplicates, paint: Paint) -> Lines:
    """Draw groups of crumbs with nearly the same names, a line between them."""
    if not found.groups:
        return [paint.dim("no two crumbs have nearly the same name")]
    groups = [[draw_neighbour(each, paint) for each in group] for group in found.groups]
    lines = [line for group in groups for line in (*group, "")]
    return [*lines, paint.dim("`dgent drop ID`, or `dgent crumb set ID --duplicate-of OTHER`")]


def draw_drop(found: answer.Dropped, paint: Paint) -> Lines:
    """Draw a dropped crumb, and the crumbs that still wait for it."""
    lines = draw_finished(found, paint)
    for other in found.waiting:
        lines.append(f"  {paint('still waits for it:', fg='yellow')} {draw_neighbour(other, paint)}")
    if found.waiting:
        lines.append(paint.dim("  drop those too, or `dgent link remove child_of THAT THIS`"))
    return lines


def draw_values(properties: dict[str, Any], paint: Paint) -> Lines:
    texts = _texts(properties)
    most = max(map(len, texts), default=0)
    return [f"  {paint.dim(name)}{' ' * (most - len(name))}  {paint(text)}" for name, text in texts.items()]


def draw_whole_crumb(found: answer.WholeCrumb, paint: Paint) -> Lines:
    """Draw one crumb with its links and metadata."""
    lines = draw_crumb(found, paint)
    made = f"  made {ago(found.created_at)}" if found.created_at else ""
    if found.updated_at and found.updated_at != found.created_at:
        made += f", changed {ago(found.updated_at)}"
    lines.append(paint.dim(made))
    for label, others in (
        ("on the trail", [found.trail] if found.trail else []),
        ("came from", [found.origin] if found.origin else []),
        ("part of", found.part_of),
        ("after", found.parents),
        ("before", found.children),
        ("related to", found.related),
        ("discovered from", found.discovered_from),
        ("led to", found.led_to),
        ("duplicate of", found.duplicate_of),
        ("has a duplicate", found.duplicates),
        ("supersedes", found.supersedes),
        ("superseded by", found.superseded_by),
    ):
        for other in others:
            lines.append(f"  {paint.dim(label)} {draw_neighbour(other, paint)}")
    if found.parts:
        done = sum(each.state == "pebble" for each in found.parts)
        lines.append(paint.dim(f"  {done} of {many(len(found.parts), 'part')} done"))
        lines += [f"    {draw_neighbour(each, paint)}" for each in found.parts]
    if found.state not in ("pebble", "dust"):
        lead = "can be taken" if found.ready else "cannot be taken now"
        lines.append(f"  {paint.dim(lead + ':')} {paint('; '.join(found.reasons))}")
    for each in found.metadata:
        lines += draw_metadata(each, paint)
    return lines


def draw_neighbour(found: answer.Neighbour | answer.Crumb, paint: Paint) -> str:
    """Draw a crumb or trail in one line."""
    return f"{paint(found.handle, fg='yellow')}  {draw_standing(found, paint)}  {paint(found.name)}"


def draw_standing(found: answer.Neighbour | answer.Crumb, paint: Paint) -> str:
    """Draw the state of a crumb or trail; a ready crumb that waits for others is blocked."""
    if found.state == "ready" and getattr(found, "open_parents", None):
        return paint("blocked", fg="magenta")
    return draw_state(found.state, paint)


def draw_crumbs(found: Any, paint: Paint) -> Lines:
    """Draw crumbs, a line each."""
    if not found.items:
        return [paint.dim("no crumbs")]
    return _crumb_table(found.items, paint)


def _crumb_table(items: list[Any], paint: Paint) -> Lines:
    rows = [
        [
            paint(each.handle, fg="yellow"),
            draw_standing(each, paint),
            paint(each.properties.get("priority") or "-"),
            paint(each.properties.get("type") or "-"),
            paint.dim(ago(each.created_at) if each.created_at else ""),
            paint(cut(each.name, 200)) + (paint.dim(f"  {each.holder}") if each.holder else ""),
        ]
        for each in items
    ]
    return table(paint, ("id", "state", "priority", "type", "made", "name"), rows)


def draw_queue(found: answer.Queue, paint: Paint) -> Lines:
    """Draw crumbs in the order in which they are taken, with reasons."""
    if not found.items:
        lead = "nothing waits" if found.explain == "nothing waits for anything" else "nothing is ready"
        return [paint.dim(lead if lead == "nothing waits" else f"{lead}; {found.explain}".rstrip("; "))]
    if not any(each.reasons for each in found.items):
        return _crumb_table(found.items, paint)
    lines: Lines = []
    for each in found.items:
        lines.append(draw_neighbour(each, paint))
        lines += [f"    {paint.dim(reason)}" for reason in each.reasons]
    return lines


def draw_versions(found: Items[answer.CrumbVersion], paint: Paint) -> Lines:
    """Draw the versions of a crumb, a line each."""
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
                paint("removed", fg="red") if was is None else draw_state(was.state, paint),
                paint(was.holder or "" if was else ""),
                paint(cut("  ".join(about), 200)),
            ]
        )
    return table(paint, ("rev", "commit", "when", "by", "state", "holder", "crumb"), rows)


def draw_board(found: answer.Board, paint: Paint) -> Lines:
    """Draw crumbs in columns by state, without empty columns."""
    columns = [column for column in found.columns if column.count]
    if not columns:
        return [paint.dim("no crumbs")]
    room = max((paint.width - 2 * (len(columns) - 1)) // len(columns), 12)
    cells = [_draw_column(column, room, paint) for column in columns]
    lines = []
    for row in range(max(map(len, cells))):
        parts = [cell[row] if row < len(cell) else "" for cell in cells]
        lines.append("  ".join(part + " " * (room - width(part)) for part in parts).rstrip())
    return lines


def _draw_column(column: answer.Column, room: int, paint: Paint) -> Lines:
    color = COLORS[column.state]
    lines = [paint(fit(f"{column.state} ({column.count})", room), fg=color, bold=True), "-" * room]
    for each in column.crumbs:
        lines.append(paint(fit(each.name, room)))
        text = " ".join(filter(None, (each.handle, each.properties.get("priority"), each.holder)))
        lines.append(paint.dim(fit(f"  {text}", room)))
    if column.count > len(column.crumbs):
        lines.append(paint.dim(fit(f"and {column.count - len(column.crumbs)} more", room)))
    return lines


def draw_work(found: answer.Work | None, paint: Paint) -> Lines:
    """Draw the work in progress in a few lines; none without a cupboard."""
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


def draw_trail(found: answer.TrailInfo, paint: Paint) -> Lines:
    """Draw one trail."""
    head = f"{paint(found.handle, fg='yellow', bold=True)}  {draw_state(found.state, paint)}"
    lines = [f"{head}  {paint.bold(found.name)}"]
    for label in ("goal", "reason", "lesson"):
        if said := getattr(found, label):
            lines += [f"  {paint.dim(label)}  {paint(line)}" for line in said.splitlines()]
    return lines + draw_values(found.properties, paint)


def draw_lessons(found: answer.Lessons, paint: Paint) -> Lines:
    """Draw abandoned trails with their lessons, a line each."""
    return draw_trails(Items(found.items), paint) if found.items else [paint.dim("no lessons yet")]


def draw_trails(found: Items[answer.TrailInfo], paint: Paint) -> Lines:
    """Draw trails, a line each, with the lessons of abandoned ones."""
    if not found.items:
        return [paint.dim("no trails")]
    rows = [
        [
            paint(each.handle, fg="yellow"),
            draw_state(each.state, paint),
            paint.dim(ago(each.created_at) if each.created_at else ""),
            paint(cut(each.name, 60)),
            paint(cut(each.lesson or each.reason or each.goal, 200)),
        ]
        for each in found.items
    ]
    return table(paint, ("id", "state", "made", "name", "goal or lesson"), rows)


def draw_whole_trail(found: answer.WholeTrail, paint: Paint) -> Lines:
    """Draw one trail with its crumbs as a tree."""
    lines = draw_trail(found, paint)
    if found.branches_from:
        lines.append(f"  {paint.dim('branches from')} {draw_neighbour(found.branches_from, paint)}")
    if found.crumbs or found.kept:
        lines += ["", *draw_tree(found.crumbs or found.kept, paint)]
    if found.removed:
        lines.append(paint.dim(f"  {many(found.removed, 'crumb')} of it removed since"))
    if not (found.crumbs or found.kept or found.removed):
        lines.append(paint.dim("  no crumbs"))
    return lines + (["", *draw_stash_table(found.stashes, paint)] if found.stashes else [])


def draw_tree(members: list[answer.TrailCrumb], paint: Paint) -> Lines:
    """Draw crumbs below their parents; one with several parents is below the first."""
    names = {each.id: each.handle for each in members}
    above = {each.id: next((id for id in each.parents if id in names), "") for each in members}
    for each in members:
        _untie(each.id, above)
    children: dict[str, list[answer.TrailCrumb]] = {}
    for each in members:
        children.setdefault(above[each.id], []).append(each)
    lines: Lines = []
    # Without recursion: a line of a thousand crumbs is deep.
    waiting = [("", each, each is children[""][-1]) for each in reversed(children.get("", []))]
    while waiting:
        indent, each, last = waiting.pop()
        lines.append(f"{indent}{'`- ' if last else '|- '}{_draw_member(each, above[each.id], names, paint)}")
        below = children.get(each.id, [])
        deeper = indent + ("   " if last else "|  ")
        waiting += [(deeper, child, child is below[-1]) for child in reversed(below)]
    return lines


def _draw_member(found: answer.TrailCrumb, above: str, names: dict[str, str], paint: Paint) -> str:
    """Draw one crumb of a tree, with the parents that it is not drawn below."""
    also = [names.get(id, id) for id in found.parents if id != above]
    line = f"{draw_state(found.state, paint)} {paint(found.name)}"
    line += paint.dim(f"  {names[found.id]}" + (f"  {found.holder}" if found.holder else ""))
    return line + (paint.dim(f"  also after {', '.join(also)}") if also else "")


def _untie(id: str, above: dict[str, str]) -> None:
    """Make a crumb in a cycle of parents a root; only a broken import leaves a cycle."""
    step, seen = above[id], {id}
    while step and step not in seen:
        seen.add(step)
        step = above[step]
    if step == id:
        above[id] = ""


def draw_trail_end(found: answer.TrailEnd, paint: Paint) -> Lines:
    """Draw the end of a trail, and how to undo it."""
    number = many(len(found.crumbs), "crumb")
    text = f"{number} kept" if found.trail.state == "completed" else f"{number} removed"
    lines = [*draw_trail(found.trail, paint), f"  {text}"]
    if found.freed:
        lines.append(f"  {paint(', '.join(found.freed), fg='yellow')} no longer waits for them")
    if found.seq is not None:
        lines.append(paint.dim(f"  `dgent undo {found.seq}` takes it back"))
    return lines


def draw_comparison(found: Any, paint: Paint) -> Lines:
    """Draw two trails side by side."""
    room = max((paint.width - 3) // 2, 20)
    sides = []
    for each in (found.a, found.b):
        counts = ", ".join(f"{count} {name}" for name, count in each.counts.items() if count)
        lines = [line for line in draw_trail(each.trail, Paint(False, room)) if line]
        lines.append(counts or ("no crumbs" if each.known else "what it had is no longer kept"))
        sides.append(lines + [f"  {crumb.state}  {crumb.name}" for crumb in each.crumbs])
    out = []
    for left, right in zip_longest(*sides, fillvalue=""):
        out.append(f"{paint(fit(left, room))} | {paint(fit(right, room))}".rstrip(" |"))
    for name, (one, other) in {**found.properties, **found.stashes}.items():
        color = "white" if one == other else "yellow"
        out.append(f"{paint(name, fg=color)}  {paint(as_text(one))} | {paint(as_text(other))}")
    return out
