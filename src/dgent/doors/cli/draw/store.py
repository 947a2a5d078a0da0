"""The store, its upkeep and its settings, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgent.doors.cli.draw.crumb import work
from dgent.doors.cli.draw.history import entry
from dgent.doors.cli.style import Paint, ago, many, size, table
from dgent.doors.cli.wire import as_text

if TYPE_CHECKING:
    from dgent.store.upkeep import Finding

Lines = list[str]

_LEVELS = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "red"}


def _findings(findings: list[Finding], paint: Paint) -> Lines:
    lines = []
    for each in findings:
        level = "ok" if each.fixed else each.level
        sign = paint(f"{level:8}", fg=_LEVELS[level])
        fixed = paint(" (repaired)", fg="green") if each.fixed else ""
        lines.append(f"{sign}{paint.bold(each.subject)}: {paint(each.message)}{fixed}")
        if each.hint and not each.fixed:
            lines.append(" " * 8 + paint.dim(each.hint))
    return lines


def examined(found: Any, paint: Paint) -> Lines:
    """What the doctor found."""
    verdict = (
        paint("healthy", fg="green", bold=True)
        if found.healthy
        else paint("not healthy", fg="red", bold=True)
    )
    fixable = sum(each.fixable and not each.fixed for each in found.findings)
    more = paint.dim(f"; --fix repairs {fixable}") if fixable else ""
    return [*_findings(found.findings, paint), "", verdict + more]


def status(found: Any, paint: Paint) -> Lines:
    """The store at a glance."""
    health = paint(found.health, fg="green" if found.health == "ok" else "red")
    name = f"{found.constellation}, " if found.constellation else ""
    held = f"{many(found.records, 'record')}, {many(found.seq, 'commit')}, {size(found.size_bytes)}"
    lines = [
        f"{paint.bold(name + found.engine)}  {paint(found.place)}",
        f"{health}{paint(', degraded', fg='red') if found.degraded else ''}  {held}",
        *_outboxed(found, paint),
        *_findings(found.findings, paint),
        *work(found.work, paint),
    ]
    if found.schemas:
        building = any(kind.building for kind in found.schemas)
        heads = ("schema", "records", *(["being indexed"] if building else []))
        rows = [
            [
                paint(kind.schema or "(no schema)", fg="cyan"),
                f"{kind.records:,}",
                *([paint.dim(", ".join(kind.building))] if building else []),
            ]
            for kind in found.schemas
        ]
        lines += ["", *table(paint, heads, rows)]
    if found.commits:
        lines.append("")
    for each in found.commits:
        lines += entry(each, paint, whole=False)[:2]
    return lines


def _outboxed(found: Any, paint: Paint) -> Lines:
    told = [many(found.pending, "commit") + " waiting for the store"] if found.pending else []
    told += [many(found.conflicts, "conflict") + "; see `dgent outbox list`"] if found.conflicts else []
    return [paint(line, fg="yellow") for line in told]


def outbox(found: Any, paint: Paint) -> Lines:
    """What waits for the store, and what it refused."""
    if found.outbox is None:
        return [paint.dim("this store may not be away, so it has no outbox; see the setting degrade")]
    lines = [f"{paint(found.outbox, fg='cyan')}{'  the store is away' if found.degraded else ''}"]
    rows = [
        [paint.dim(ago(each.at)), paint(each.author), paint(_ops(each.ops)), paint(each.note or "")]
        for each in found.pending
    ]
    lines += ["", *table(paint, ("waits since", "by", "what", "why"), rows)] if rows else []
    if not rows and not found.conflicts:
        lines.append(paint.dim("nothing waits"))
    for each in found.conflicts:
        lines += ["", *clashing(each, paint)]
    return lines


def clashing(found: Any, paint: Paint) -> Lines:
    """One commit that the store refused."""
    head = f"{paint('conflict ' + found.id[:12], fg='red', bold=True)}  {paint(found.author, fg='cyan')}"
    lines = [head, "    " + paint(found.reason)]
    for ours, theirs in zip(found.ours, found.theirs, strict=False):
        lines.append(f"  {paint('ours', fg='green')}    {paint(as_text(ours))}")
        lines.append(f"  {paint('theirs', fg='yellow')}  {paint(as_text(theirs))}")
    return lines


def _ops(ops: list[dict[str, Any]]) -> str:
    told = ", ".join(f"{op['op']} {op['id']}" for op in ops[:3])
    return told + (f" and {len(ops) - 3} more" if len(ops) > 3 else "")


def exported(found: Any, paint: Paint) -> Lines:
    """What an export wrote."""
    return [f"{many(found.records, 'record')} as of commit {found.seq:,}, {size(found.size_bytes)}"]


def copied(found: Any, paint: Paint) -> Lines:
    """What a copy holds."""
    new = f"{many(found.commits, 'commit')} new" if found.commits else "nothing new"
    held = f"{many(found.records, 'record')} as of commit {found.seq:,}"
    return [f"{new}; both hold {held}, with the same digest"]


def imported(found: Any, paint: Paint) -> Lines:
    """What an import did."""
    counts = {name: getattr(found, name) for name in ("added", "replaced", "unchanged", "skipped")}
    told = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "nothing in it"
    return [("would be: " if found.dry_run else "") + told]


def backup(found: Any, paint: Paint) -> Lines:
    """What a backup holds."""
    held = f"{many(found.records, 'record')} as of commit {found.seq:,}, {size(found.size_bytes)}"
    lines = [paint(found.path, fg="cyan"), f"{held}; every record was read"]
    if found.damaged:
        lines.append(paint(f"damaged in the store already: {', '.join(found.damaged)}", fg="red"))
    return lines


def restored(found: Any, paint: Paint) -> Lines:
    """What a restore did."""
    lead = "would be restored to" if found.dry_run else "restored to"
    lines = [
        f"{lead} {paint(found.path, fg='cyan')}: {many(found.records, 'record')} as of commit {found.seq:,}"
    ]
    if found.forgotten:
        lines.append(f"{many(found.forgotten, 'record')} had been forgotten since, and stay forgotten")
    if found.redacted:
        lines.append(
            f"{many(found.redacted, 'version')} of blocks had been redacted since, and stay redacted"
        )
    if found.kept:
        lines.append(paint.dim(f"what was there is in {found.kept}"))
    return lines


def forgotten(found: Any, paint: Paint) -> Lines:
    """What was erased."""
    lead = "would forget" if found.dry_run else "forgot"
    lines = [f"{lead} {many(found.records, 'record')} with {many(found.versions, 'version')}"]
    if not found.erased and not found.dry_run:
        lines.append(
            paint("a reader still keeps the old bytes alive; `dgent doctor --fix` finishes it", fg="yellow")
        )
    if found.remains and found.records and not found.dry_run:
        lines.append(paint.dim(f"bytes of it may still be in {found.remains}"))
    return lines


def schemas(found: Any, paint: Paint) -> Lines:
    """Schemas, a line each."""
    rows = [
        [
            paint(each.name or "(no schema)", fg="cyan"),
            f"{each.records:,}",
            ", ".join(f"v{version}" for version in each.versions if version) or "-",
            paint(", ".join(each.indexes) or "-"),
            paint(each.owner or "-"),
        ]
        for each in found.items
    ]
    return table(paint, ("schema", "records", "versions", "indexes", "room"), rows) or [paint.dim("none yet")]


def configured(found: Any, paint: Paint) -> Lines:
    """Settings, a line each."""
    rows = [
        [paint(each.name, fg="cyan"), paint(_value(each.value)), paint.dim(each.source)]
        for each in found.settings
    ]
    lines = table(paint, ("setting", "value", "from"), rows, last=1)
    lines += ["", *(f"{paint.dim(name):8}  {paint(place)}" for name, place in found.places.items())]
    return lines


def _value(value: Any) -> str:
    return value if isinstance(value, str) else "-" if value is None else as_text(value)


def constellations(found: Any, paint: Paint) -> Lines:
    """Constellations, a line each."""
    rows = [
        [
            paint("*" if each.current else " ", fg="green"),
            paint(each.name, fg="cyan"),
            size(each.size_bytes),
            paint.dim(each.path),
        ]
        for each in found.items
    ]
    return table(paint, ("", "name", "size", "folder"), rows) or [
        paint.dim("none yet; `dgent remember something` makes one")
    ]


def changed(found: Any, paint: Paint) -> Lines:
    """A setting that was changed."""
    told = f"{found.name} = {found.value}" if found.value is not None else f"{found.name} is not set any more"
    return [f"{paint(told)}  {paint.dim('in ' + found.file)}"]


def known(found: Any, paint: Paint) -> Lines:
    """One setting."""
    return [f"{paint(_value(found.value))}  {paint.dim('from ' + found.source)}"]


def deleted(found: Any, paint: Paint) -> Lines:
    """A constellation that is gone."""
    lead = "would delete" if found.dry_run else "deleted"
    return [f"{lead} {paint(found.name, fg='cyan')} with {size(found.size_bytes)}  {paint.dim(found.path)}"]
