"""Commits, versions and differences, for people."""

from __future__ import annotations

from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from dgent.doors.cli.draw.crumb import work
from dgent.doors.cli.draw.record import record, summary
from dgent.doors.cli.style import Paint, ago, cut, fitted, table, width

if TYPE_CHECKING:
    from dgent.verbs import answer

Lines = list[str]

_OPS = {"put": ("+", "green"), "delete": ("-", "red"), "forget": ("x", "red")}


def entry(found: answer.Entry, paint: Paint, whole: bool = True) -> Lines:
    """One commit."""
    number = "pending" if found.seq is None and found.items else f"commit {found.seq}"
    name = paint(number if found.seq or found.items else "the store", fg="yellow", bold=True)
    head = f"{name}  {paint(found.author, fg='cyan')}  {paint.dim(ago(found.at))}"
    if found.kind != "data":
        head += "  " + paint(found.kind + (f" of {found.of_seq}" if found.of_seq else ""), fg="magenta")
    lines = [head]
    if found.note and found.note != f"{found.kind} of {found.of_seq}":
        lines += ["    " + paint(line) for line in found.note.splitlines()]
    first = found.items if whole else found.items[:5]
    for item in first:
        sign, color = _OPS[item.op]
        held = item.record or item.before
        parts = [f"  {paint(sign, fg=color)} {paint(item.id or 'a forgotten record')}"]
        parts += [paint.dim(f"rev {item.rev}"), paint(item.schema or "", fg="cyan")]
        line = "  ".join(part for part in parts if part)
        told = cut(summary(held), max(paint.width - width(line) - 2, 20)) if held is not None else ""
        lines.append(f"{line}  {paint(told)}" if told else line)
    if len(first) < len(found.items):
        lines.append(paint.dim(f"    and {len(found.items) - len(first)} more"))
    return lines


def shown(found: Any, paint: Paint) -> Lines:
    """A commit with its records, or a record."""
    if found.commit is None:
        return record(found.record, paint)
    lines = entry(found.commit, paint)
    for item in found.commit.items:
        held = item.record or item.before
        if held is not None:
            lines += ["", *record(held, paint)]
    return lines


def log(found: answer.Log, paint: Paint) -> Lines:
    """Commits, as a version-control log shows them."""
    if not found.items:
        return [paint.dim("no commits")]
    now = work(found.work, paint)
    lines = [*now, ""] if now else []
    for each in found.items:
        lines += [*entry(each, paint, whole=False), ""]
    if found.first_seq > 1 and (found.items[-1].seq or 0) <= found.first_seq:
        lines.append(paint.dim(f"older commits were compacted away; the first kept is {found.first_seq}"))
    return lines[:-1] if lines[-1] == "" else lines


def editions(found: answer.Editions, paint: Paint) -> Lines:
    """The versions of a record, a line each."""
    rows = [
        [
            paint(each.rev, fg="yellow"),
            paint.dim(each.seq),
            paint.dim(ago(each.at)),
            paint(each.author or "", fg="cyan"),
            paint("deleted", fg="red") if each.record is None else paint(cut(summary(each.record), 200)),
        ]
        for each in found.items
    ]
    return table(paint, ("rev", "commit", "when", "by", "data"), rows)


def diff(found: answer.Diff, paint: Paint) -> Lines:
    """How two versions differ."""
    revs = paint.dim(f"rev {found.old_rev} -> rev {found.new_rev}")
    head = f"{paint(found.id, fg='yellow', bold=True)}  {revs}"
    if found.old_rev == found.new_rev:
        return [head, paint.dim("there is only this version to compare")]
    if not found.differences:
        return [head, paint.dim("no difference")]
    return [head, *compared(found.unified[2:], paint)]


def compared(lines: Lines, paint: Paint) -> Lines:
    """The lines of a unified difference in colour, or in two columns."""
    lines = _without_remarks(lines)
    if paint.sided:
        return _sided(lines, paint)
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return [paint(line, fg=colors[line[0]]) if line[:1] in colors else paint(line) for line in lines]


def _without_remarks(lines: Lines) -> Lines:
    """The lines without those on a missing line end, unless that is part of the difference."""
    signs = [before[:1] for before, line in pairwise(lines) if line.startswith("\\")]
    if len(signs) == 1 and signs[0] in ("+", "-"):
        return lines
    return [line for line in lines if not line.startswith("\\")]


def _sided(lines: Lines, paint: Paint) -> Lines:
    """Old on the left, new on the right; a changed line beside what it became."""
    room = (paint.width - 3) // 2
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
        here = paint(fitted(left, room), fg="red") if changed else paint(fitted(left, room))
        there = paint(fitted(right, room), fg="green") if changed else paint(fitted(right, room))
        rows.append(f"{here} {'|' if changed else ' '} {there}".rstrip())
    return rows


def done(found: answer.Done, paint: Paint) -> Lines:
    """What a change came to."""
    if not found.changed:
        return [paint.dim("nothing to change")]
    lead = "would change" if found.dry_run else f"commit {found.seq} changed"
    lead = "pending, will change" if found.pending else lead
    return [f"{lead} {', '.join(paint(id, fg='yellow') for id in found.changed)}"]
