"""Draw the cupboard as a whole, and its links, properties, stashes, metadata and tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dgent import clock
from dgent.doors.cli.style import Paint, ago, cut, many, size, table, until
from dgent.doors.cli.wire import as_text
from dgent.verbs.cupboard import answer
from dgent.verbs.registry import Items


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
    when = ago(found.created_at) if found.created_at else ""
    first, *rest = found.content.splitlines() or [""]
    head = f"  {paint(found.schema, fg='cyan')}{paint.dim(about + '  ' + when)}  {paint(first)}"
    return [head, *(f"    {paint(line)}" for line in rest)]


def draw_entry(found: answer.MetadataEntry, paint: Paint) -> Lines:
    """Draw one metadata entry."""
    return [paint(found.id, fg="yellow") + f"  {paint(found.crumb)}", *draw_metadata(found, paint)]


def draw_entries(found: Items[answer.MetadataEntry], paint: Paint) -> Lines:
    """Draw metadata entries."""
    if not found.items:
        return [paint.dim("no entries")]
    return [line for each in found.items for line in draw_entry(each, paint)]


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
        lines.append(f"{many(found.kept, 'line')} kept as they are, because no record can hold them")
    for problem in found.problems[:SHOWN]:
        lines.append(paint(f"{problem.file}, line {problem.line}: {problem.message}", fg="yellow"))
    if found.odd > SHOWN:
        lines.append(paint.dim(f"and {found.odd - SHOWN:,} more; --json lists them"))
    return lines


def draw_export(found: Any, paint: Paint) -> Lines:
    """Draw the result of an export."""
    counts = ", ".join(f"{number:,} {name}" for name, number in found.lines.items() if number)
    where = paint(found.path, fg="cyan")
    return [f"{where}: {counts or 'nothing'}", f"as of commit {found.seq:,}, {size(found.size_bytes)}"]


Lines = list[str]


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
