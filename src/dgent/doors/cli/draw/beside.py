"""Links, properties, stashes and metadata, for people."""

from __future__ import annotations

from dgent.doors.cli.paint import Paint, ago, cut, table, until
from dgent.doors.cli.wire import as_text
from dgent.verbs import entity

Lines = list[str]


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


def said(found: entity.MetadataEntry, paint: Paint) -> Lines:
    """A metadata entry below the crumb that it is about."""
    about = f" about {found.property}" if found.property else ""
    when = ago(found.created_at) if found.created_at else ""
    first, *rest = found.content.splitlines() or [""]
    head = f"  {paint(found.schema, fg='cyan')}{paint.dim(about + '  ' + when)}  {paint(first)}"
    return [head, *(f"    {paint(line)}" for line in rest)]


def entry(found: entity.MetadataEntry, paint: Paint) -> Lines:
    """One metadata entry."""
    return [paint(found.id, fg="yellow") + f"  {paint(found.crumb)}", *said(found, paint)]


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
