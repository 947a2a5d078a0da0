"""Draw records and their links."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

import msgspec

from dgent.doors.cli.draw.crumb import draw_work
from dgent.doors.cli.style import SHORT_ID, Paint, ago, cut, fit, size, table, width
from dgent.verbs.registry import Items
from dgent.verbs.wire import as_text

if TYPE_CHECKING:
    from dgent.verbs.data import answer, history


Lines = list[str]


def draw_record(found: answer.Record, paint: Paint) -> Lines:
    """Draw one whole record."""
    head = [paint(found.id, fg="yellow", bold=True)]
    if found.schema:
        head.append(paint(f"{found.schema} v{found.version}", fg="cyan"))
    number = "pending or partial" if found.seq is None else f"commit {found.seq}"
    made = ago(found.created_at)
    changed = made if found.updated_at is None else ago(found.updated_at)
    when = f"made {made}" if changed == made or found.rev == 1 else f"made {made}, changed {changed}"
    head.append(paint.dim(f"rev {found.rev}, {number}, {when}"))
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
    about.insert(1, draw_origin(found.origin, paint))
    if any(about):
        lines.append("  ".join(each for each in about if each))
    if found.problem:
        lines.append(paint(f"! {found.problem}", fg="red"))
    lines += _body(found.data, paint)
    if found.content is not None:
        lines.append(paint.dim(f"and {size(len(found.content))} of content"))
    return lines


def draw_origin(origin: Any, paint: Paint) -> str:
    """Draw the class of an origin; empty for a partner's."""
    return paint(f"origin: {origin}", fg="yellow") if isinstance(origin, str) and origin else ""


def _other_committer(found: answer.Record) -> str:
    """Return the committer of a record that names another author."""
    known = isinstance(found.committed_by, str) and found.committed_by != found.author
    return f"committed by {found.committed_by}" if known else ""


def _body(data: dict[str, Any], paint: Paint) -> Lines:
    """Draw data as JSON; texts of several lines follow as lines."""
    long = {name: value for name, value in data.items() if isinstance(value, str) and "\n" in value.strip()}
    rest = {name: value for name, value in data.items() if name not in long}
    lines: Lines = []
    if rest or not long:
        text = msgspec.json.format(msgspec.json.encode(rest), indent=2).decode()
        lines += [paint(line) for line in text.splitlines()]
    for name, value in long.items():
        lines += [paint.dim(f"{name}:"), *("  " + paint(line) for line in value.strip("\n").split("\n"))]
    return lines


def draw_records(found: answer.Records, paint: Paint) -> Lines:
    """Draw records, a line each; those of a search as hits."""
    if not isinstance(found.search, msgspec.UnsetType):
        return draw_hits(found.search, paint)
    if not found.items:
        return [paint.dim("nothing found")]
    rows = [
        [
            paint(each.id, fg="yellow"),
            paint(each.schema or "-", fg="cyan"),
            paint.dim(ago(each.created_at)),
            _draw_tags(each, paint),
            paint(_one_line(summarize(each)), **({"fg": "red"} if each.problem else {})),
        ]
        for each in found.items
    ]
    lines = table(paint, ("id", "schema", "made", "tags", "data"), rows)
    if found.cursor:
        lines.append(paint.dim(f"there is more: --cursor {found.cursor}"))
    return lines


def _draw_tags(found: answer.Record, paint: Paint) -> str:
    tags = paint(" ".join("#" + tag for tag in found.tags), fg="green")
    return f"{tags} {draw_origin(found.origin, paint)}".strip()


def draw_hits(found: answer.SearchHits, paint: Paint) -> Lines:
    """Draw what a search found: a line for each record, then its passage with the words marked."""
    lines: Lines = []
    for hit in found.items:
        head = [paint(f"{hit.score:.2f}", bold=True), paint(hit.kind, fg="cyan"), paint(hit.name, bold=True)]
        head += [
            draw_origin(hit.origin, paint),
            paint.dim(hit.detail),
            paint(hit.id, fg="yellow"),
            paint.dim(ago(hit.record.created_at)),
        ]
        lines += ["  ".join(filter(None, head)), "      " + _mark(hit.snippet, hit.marks, paint)]
        if hit.parts:
            lines.append(
                paint.dim("      " + ", ".join(f"{word} {part:.2f}" for word, part in hit.parts.items()))
            )
    if not lines:
        lines.append(paint.dim("nothing found" + (f"; {found.explain}" if found.explain else "")))
    if found.building:
        lines.append(paint.dim("records are still being indexed: there may be more"))
    if found.note:
        lines.append(paint.dim(f"found by words only: {found.note}"))
    return lines


def _mark(text: str, marks: Sequence[tuple[int, int]], paint: Paint) -> str:
    parts, end = [], 0
    for start, stop in marks:
        parts += [paint(text[end:start]), paint(text[start:stop], fg="green", bold=True)]
        end = stop
    return "".join([*parts, paint(text[end:])])


def _one_line(text: str) -> str:
    return " ".join(text.split())


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


def draw_values(found: Any, paint: Paint) -> Lines:
    """Draw values with their counts, a line each."""
    shown = [each.value if isinstance(each.value, str) else as_text(each.value) for each in found.items]
    rows = [[f"{each.count}", paint(text)] for each, text in zip(found.items, shown, strict=True)]
    return table(paint, ("records", "value"), rows) or [paint.dim("no values")]


def draw_swept(found: Any, paint: Paint) -> Lines:
    """Draw the number of records that were swept."""
    return [f"{found.records} expired records deleted"]


def draw_offers(found: Any, paint: Paint) -> Lines:
    """Draw paths, a line each."""
    rows = [[paint(each.path, fg="cyan"), paint(each.effect), paint(each.help)] for each in found.items]
    return table(paint, ("path", "effect", "what it does"), rows)


_OPS = {"put": ("+", "green"), "delete": ("-", "red"), "forget": ("x", "red")}


def draw_entry(found: history.LogEntry, paint: Paint, whole: bool = True) -> Lines:
    """Draw one commit; unless `whole`, only its first items."""
    number = "pending" if found.seq is None and found.items else f"commit {found.seq}"
    name = paint(number if found.seq or found.items else "the store", fg="yellow", bold=True)
    head = f"{name}  {paint(found.author, fg='cyan')}  {paint.dim(ago(found.at))}"
    if mark := draw_origin(found.origin, paint):
        head += "  " + mark
    if found.kind != "data":
        head += "  " + paint(found.kind + (f" of {found.of_seq}" if found.of_seq else ""), fg="magenta")
    lines = [head]
    told = found.summary if whole else found.summary[:5]
    lines += ["    " + paint(line) for line in told]
    if len(told) < len(found.summary):
        lines.append(paint.dim(f"    and {len(found.summary) - len(told)} more"))
    # The notes of rooms say what the summary says better.
    if found.note and not found.summary and found.note != f"{found.kind} of {found.of_seq}":
        lines += ["    " + paint(line) for line in found.note.splitlines()]
    first = found.items if whole else found.items[:5]
    lines += [_draw_item(item, paint) for item in first]
    if left := len(found.items) - len(first) + found.more:
        lines.append(paint.dim(f"    and {left} more"))
    return lines


def _draw_item(item: history.CommitItem, paint: Paint) -> str:
    """Draw one record that a commit changed, on one line."""
    sign, color = _OPS[item.op]
    record = item.record or item.before
    rest = [paint.dim(f"rev {item.rev}"), paint(item.schema or "", fg="cyan")]
    room = paint.width - width("  ".join(rest)) - 30  # for a text behind it
    name = cut(item.id or "a forgotten record", max(room, SHORT_ID))
    line = "  ".join(part for part in (f"  {paint(sign, fg=color)} {paint(name)}", *rest) if part)
    text = "" if record is None else cut(summarize(record), max(paint.width - width(line) - 2, 20))
    return f"{line}  {paint(text)}" if text else line


def draw_commit(found: history.WholeCommit, paint: Paint) -> Lines:
    """Draw a commit with its records whole."""
    lines = draw_entry(found, paint)
    for item in found.items:
        held = item.record or item.before
        if held is not None:
            lines += ["", *draw_record(held, paint)]
    return lines


def draw_log(found: history.Log, paint: Paint) -> Lines:
    """Draw commits, as a version-control log shows them."""
    if not found.items:
        return [paint.dim("no commits")]
    now = draw_work(found.work, paint)
    lines = [*now, ""] if now else []
    for each in found.items:
        lines += [*draw_entry(each, paint, whole=False), ""]
    if found.first_seq > 1 and (found.items[-1].seq or 0) <= found.first_seq:
        lines.append(paint.dim(f"older commits were pruned; the first kept is {found.first_seq}"))
    return lines[:-1] if lines[-1] == "" else lines


def draw_versions(found: Items[history.RecordVersion], paint: Paint) -> Lines:
    """Draw the versions of a record, a line each."""
    rows = [
        [
            paint(each.rev, fg="yellow"),
            paint.dim(each.seq),
            paint.dim(ago(each.at)),
            _draw_author(each, paint),
            paint("deleted", fg="red") if each.record is None else paint(_one_line(summarize(each.record))),
        ]
        for each in found.items
    ]
    return table(paint, ("rev", "commit", "when", "by", "data"), rows)


def _draw_author(version: history.RecordVersion, paint: Paint) -> str:
    mark = "" if version.record is None else draw_origin(version.record.origin, paint)
    return f"{paint(version.author or '', fg='cyan')} {mark}".rstrip()


def draw_diff(found: history.RecordDiff, paint: Paint) -> Lines:
    """Draw the differences of two versions."""
    revs = paint.dim(f"rev {found.old_rev} -> rev {found.new_rev}")
    head = f"{paint(found.id, fg='yellow', bold=True)}  {revs}"
    if found.old_rev == found.new_rev:
        return [head, paint.dim("there is only this version to compare")]
    if not found.differences:
        return [head, paint.dim("no difference")]
    return [head, *draw_diff_lines(found.unified[2:], paint)]


def draw_diff_lines(lines: Lines, paint: Paint) -> Lines:
    """Draw the lines of a unified difference in colour, or in two columns."""
    lines = _without_remarks(lines)
    if paint.sided:
        return _draw_columns(lines, paint)
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return [paint(line, fg=colors[line[0]]) if line[:1] in colors else paint(line) for line in lines]


def _without_remarks(lines: Lines) -> Lines:
    """Remove the remarks on a missing line end, unless that is part of the difference."""
    signs = [before[:1] for before, line in pairwise(lines) if line.startswith("\\")]
    if len(signs) == 1 and signs[0] in ("+", "-"):
        return lines
    return [line for line in lines if not line.startswith("\\")]


def _draw_columns(lines: Lines, paint: Paint) -> Lines:
    """Draw old lines on the left and new ones on the right; a changed line beside its new form."""
    room = (min(paint.width, 160) - 3) // 2
    pairs: list[tuple[str, str]] = []
    old: Lines = []
    new: Lines = []
    for line in [*lines, " "]:
        if line[:1] == "-":
            old.append(line[1:])
        elif line[:1] == "+":
            new.append(line[1:])
        else:
            pairs += zip_longest(old, new, fillvalue="")
            old, new = [], []
            shown = "" if line[:1] == "@" else line[1:]
            pairs.append((shown, shown))
    rows = []
    for left, right in pairs[1:-1]:
        changed = left != right
        here = paint(fit(left, room), fg="red") if changed else paint(fit(left, room))
        there = paint(fit(right, room), fg="green") if changed else paint(fit(right, room))
        rows.append(f"{here} {'|' if changed else ' '} {there}".rstrip())
    return rows


def draw_change(found: answer.ChangeResult, paint: Paint) -> Lines:
    """Draw the result of a change."""
    if not found.changed:
        return [paint.dim("nothing to change")]
    if found.of_seq is not None:
        return _draw_undo(found, paint)
    lead = "would change" if found.dry_run else f"commit {found.seq} changed"
    lead = "pending, will change" if found.pending else lead
    return [f"{lead} {', '.join(paint(id, fg='yellow') for id in found.changed)}"]


def _draw_undo(found: answer.ChangeResult, paint: Paint) -> Lines:
    """Draw what an undo put back."""
    what = f"the undo in commit {found.of_seq}" if found.redo else f"commit {found.of_seq}"
    lead = "would take back" if found.dry_run else "took back"
    back = "undo" if found.redo else "redo"
    made = "" if found.seq is None else paint.dim(f"  as commit {found.seq}; `dgent {back}` reverses this")
    return [f"{lead} {what}{made}", *("    " + paint(line) for line in found.summary)]
