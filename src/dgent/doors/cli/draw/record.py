"""Draw records and their links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dgent.doors.cli.style import Paint, ago, cut, size, table
from dgent.doors.cli.wire import as_text

if TYPE_CHECKING:
    from dgent.verbs.data import answer

Lines = list[str]


def draw_record(found: answer.Record, paint: Paint) -> Lines:
    """Draw one whole record."""
    head = [paint(found.id, fg="yellow", bold=True)]
    if found.schema:
        head.append(paint(f"{found.schema} v{found.version}", fg="cyan"))
    number = "pending or partial" if found.seq is None else f"commit {found.seq}"
    head.append(paint.dim(f"rev {found.rev}, {number}, made {ago(found.created_at)}"))
    lines = ["  ".join(head)]
    who = [f"by {found.author}" if found.author else "", _other_committer(found)]
    who += [
        f"from {found.source}" if found.source else "",
        f"caused by {found.parent}" if found.parent else "",
    ]
    about = [
        paint.dim(", ".join(each for each in who if each)),
        *(paint("#" + tag, fg="green") for tag in found.tags),
    ]
    if any(about):
        lines.append("  ".join(each for each in about if each))
    if found.problem:
        lines.append(paint(f"! {found.problem}", fg="red"))
    lines += _body(found.data, paint)
    if found.content is not None:
        lines.append(paint.dim(f"and {size(len(found.content))} of content"))
    return lines


def _other_committer(found: answer.Record) -> str:
    """Return the committer of a record that names another author."""
    known = isinstance(found.committed_by, str) and found.committed_by != found.author
    return f"committed by {found.committed_by}" if known else ""


def _body(data: dict[str, Any], paint: Paint) -> Lines:
    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    return [paint(line) for line in text.splitlines()]


def draw_records(found: answer.Records, paint: Paint) -> Lines:
    """Draw records, a line each."""
    if not found.items:
        why = f"; {found.explain}" if found.explain.startswith("there is no") else ""
        return [paint.dim("nothing found" + why)]
    rows = [
        [
            paint(each.id, fg="yellow"),
            paint(each.schema or "-", fg="cyan"),
            paint.dim(ago(each.created_at)),
            paint(" ".join("#" + tag for tag in each.tags), fg="green"),
            paint(cut(summarize(each), 200), **({"fg": "red"} if each.problem else {})),
        ]
        for each in found.items
    ]
    lines = table(paint, ("id", "schema", "made", "tags", "data"), rows)
    if found.cursor:
        lines.append(paint.dim(f"there is more: --cursor {found.cursor}"))
    return lines


def summarize(record: answer.Record) -> str:
    """Return a record on one line."""
    if record.problem:
        return record.problem
    if set(record.data) == {"text"} and isinstance(record.data["text"], str):
        return record.data["text"]
    return " ".join(
        f"{name}={value if isinstance(value, str) else as_text(value)}" for name, value in record.data.items()
    )


def draw_associations(found: Any, paint: Paint) -> Lines:
    """Draw links, a line each."""
    rows = [
        [
            paint(each.kind, fg="cyan"),
            paint(each.a, fg="yellow"),
            paint(each.b, fg="yellow"),
            f"{each.weight:g}",
        ]
        for each in found.items
    ]
    return table(paint, ("kind", "from", "to", "weight"), rows) or [paint.dim("no links")]


def draw_count(found: answer.RecordCount, paint: Paint) -> Lines:
    """Draw a number."""
    return [f"{found.count}"]


def draw_offers(found: Any, paint: Paint) -> Lines:
    """Draw paths, a line each."""
    rows = [[paint(each.path, fg="cyan"), paint(each.effect), paint(each.help)] for each in found.items]
    return table(paint, ("path", "effect", "what it does"), rows)
