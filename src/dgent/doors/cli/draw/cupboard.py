"""The cupboard as a whole, and its tables as they are, for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dgent import clock
from dgent.doors.cli.style import Paint, ago, cut, many, size, table, until
from dgent.doors.cli.wire import as_text
from dgent.verbs.cupboard import answer


def links(found: answer.Links, paint: Paint) -> Lines:
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


def link(found: answer.Link, paint: Paint) -> Lines:
    """One link."""
    return links(answer.Links([found]), paint)


def properties(found: answer.Properties, paint: Paint) -> Lines:
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


def property_(found: answer.Property, paint: Paint) -> Lines:
    """One property."""
    return properties(answer.Properties([found]), paint)


def categories(found: answer.Categories, paint: Paint) -> Lines:
    """The categories of a property, a line each."""
    rows = [[f"{each.ordinal}", paint(each.name, fg="cyan")] for each in found.items]
    return table(paint, ("rank", found.property), rows) or [paint.dim("no categories")]


def value(found: answer.Value, paint: Paint) -> Lines:
    """The value of a property, alone: a script may want it."""
    told = found.value
    return [paint("null" if told is None else told if isinstance(told, str) else as_text(told))]


def stash_table(items: list[answer.Stash], paint: Paint) -> Lines:
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


def _stashed(found: answer.Stash) -> str:
    held = found.value
    if found.type == "lock":
        return f"held by {held['holder']}" if isinstance(held, dict) and held.get("holder") else "free"
    if found.type == "counter" and isinstance(held, dict) and set(held) == {"value"}:
        return as_text(held["value"])
    return held if isinstance(held, str) else as_text(held)


def stashes(found: answer.Stashes, paint: Paint) -> Lines:
    """Stashes, a line each."""
    return stash_table(found.items, paint) or [paint.dim("no stashes")]


def stash(found: answer.Stash, paint: Paint) -> Lines:
    """One stash."""
    return stash_table([found], paint)


def stash_versions(found: answer.StashVersions, paint: Paint) -> Lines:
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


def held(found: answer.Held, paint: Paint) -> Lines:
    """Who has something, and until when."""
    lease = f" {until(found.until)}" if found.until else ""
    token = "" if found.token is None else f", token {found.token}"
    return [f"{paint(found.id, fg='yellow')}  {paint(found.holder)} has it{lease}{paint.dim(token)}"]


def said(found: answer.MetadataEntry, paint: Paint) -> Lines:
    """A metadata entry below the crumb that it is about."""
    about = f" about {found.property}" if found.property else ""
    when = ago(found.created_at) if found.created_at else ""
    first, *rest = found.content.splitlines() or [""]
    head = f"  {paint(found.schema, fg='cyan')}{paint.dim(about + '  ' + when)}  {paint(first)}"
    return [head, *(f"    {paint(line)}" for line in rest)]


def entry(found: answer.MetadataEntry, paint: Paint) -> Lines:
    """One metadata entry."""
    return [paint(found.id, fg="yellow") + f"  {paint(found.crumb)}", *said(found, paint)]


def entries(found: answer.MetadataEntries, paint: Paint) -> Lines:
    """Metadata entries."""
    if not found.items:
        return [paint.dim("no entries")]
    return [line for each in found.items for line in entry(each, paint)]


def schemas(found: answer.MetadataSchemas, paint: Paint) -> Lines:
    """Kinds of metadata, a line each."""
    rows = [[paint(each.name, fg="cyan"), each.content_type, paint(each.description)] for each in found.items]
    return table(paint, ("schema", "content", "what it is"), rows)


def removed(found: answer.Removed, paint: Paint) -> Lines:
    """What was removed."""
    return [f"removed {paint(found.table)} {paint(found.id, fg='yellow')}  {paint(found.name)}".rstrip()]


SHOWN = 20


def taken_in(found: Any, paint: Paint) -> Lines:
    """What an import did, and what was odd."""
    names = ("added", "changed", "unchanged", "skipped")
    told = ", ".join(f"{number:,} {name}" for name in names if (number := getattr(found, name)))
    lines = [("would be: " if found.dry_run else "") + (told or "nothing in it")]
    if found.kept:
        lines.append(f"{many(found.kept, 'line')} kept as they are, because no record can hold them")
    for problem in found.problems[:SHOWN]:
        lines.append(paint(f"{problem.file}, line {problem.line}: {problem.message}", fg="yellow"))
    if found.odd > SHOWN:
        lines.append(paint.dim(f"and {found.odd - SHOWN:,} more; --json tells them"))
    return lines


def written_out(found: Any, paint: Paint) -> Lines:
    """What an export wrote."""
    told = ", ".join(f"{number:,} {name}" for name, number in found.lines.items() if number)
    where = paint(found.path, fg="cyan")
    return [f"{where}: {told or 'nothing'}", f"as of commit {found.seq:,}, {size(found.size_bytes)}"]


Lines = list[str]


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


def graph(found: Any, paint: Paint) -> Lines:
    """The drawing of the graph, as other programs take it."""
    return [paint(line) for line in found.text.splitlines()]


def audited(found: Any, paint: Paint) -> Lines:
    """What is not as the rules say."""
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
