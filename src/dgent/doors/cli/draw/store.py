"""Draw the store, its maintenance and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgent.doors.cli.draw.crumb import draw_work
from dgent.doors.cli.draw.record import draw_entry
from dgent.doors.cli.style import ENDLESS, Paint, ago, clean, many, size, table
from dgent.verbs.wire import as_text

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


def draw_examination(found: Any, paint: Paint) -> Lines:
    """Draw the findings of the doctor."""
    fixable = sum(each.fixable and not each.fixed for each in found.findings)
    more = paint.dim(f"; --fix repairs {fixable}") if fixable else ""
    return [*_findings(found.findings, paint), "", _verdict(found.healthy, paint) + more]


def _verdict(healthy: bool, paint: Paint) -> str:
    if healthy:
        return paint("healthy", fg="green", bold=True)
    return paint("not healthy", fg="red", bold=True)


def draw_folder_check(found: Any, paint: Paint) -> Lines:
    """Draw the lines of a folder that somebody should look at, and its conflicts, each hint once."""
    lines, given = [], set()
    for each in found.odd:
        sign = paint(f"{each.level:8}", fg=_LEVELS[each.level])
        lines.append(f"{sign}{paint.bold(f'{each.file}:{each.line}')}: {paint(f'{each.kind}: {each.text}')}")
        if each.hint not in given:
            lines.append(" " * 8 + paint.dim(each.hint))
            given.add(each.hint)
    for each in found.conflicts:
        lines.append(f"{paint('problem ', fg='red')}{paint.bold('conflict')}: {paint(each.text)}")
        lines.append(" " * 8 + paint.dim(each.hint))
    warnings = sum(each.level == "warning" for each in found.odd)
    more = paint(f"; {many(warnings, 'warning')}", fg="yellow") if warnings else ""
    return [*lines, *([""] if lines else []), _verdict(found.healthy, paint) + more]


def draw_status(found: Any, paint: Paint) -> Lines:
    """Draw the store at a glance."""
    health = paint(found.health, fg={"ok": "green", "problem": "red"}.get(found.health))
    name = f"{found.constellation}, " if found.constellation else ""
    things = [many(found.records, "record"), *(many(each.count, each.noun) for each in found.things)]
    held = ", ".join([*things, many(found.seq, "commit"), size(found.size_bytes)])
    busy = f", {found.state}" if found.state in ("migrating", "recovering") else ""
    state = ", degraded" if found.degraded else busy
    lines = [
        f"{paint.bold(name + found.engine)}  {paint(found.place)}",
        f"{health}{paint(state, fg='red')}  {held}",
        *_draw_pending(found, paint),
        *_findings(found.findings, paint),
        *draw_work(found.work, paint),
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
        lines += draw_entry(each, paint, whole=False)[:2]
    return lines


def _draw_pending(found: Any, paint: Paint) -> Lines:
    warnings = [many(found.pending, "commit") + " waiting for the store"] if found.pending else []
    warnings += [many(found.conflicts, "conflict") + "; see `dgent outbox list`"] if found.conflicts else []
    return [paint(line, fg="yellow") for line in warnings]


def draw_outbox(found: Any, paint: Paint) -> Lines:
    """Draw the outbox: waiting commits and conflicts."""
    if found.outbox is None:
        return [paint.dim("this store has no outbox; the setting degrade gives it one")]
    lines = [f"{paint(found.outbox, fg='cyan')}{'  the store is unavailable' if found.degraded else ''}"]
    rows = [
        [paint.dim(ago(each.at)), paint(each.author), paint(_ops(each.ops)), paint(each.note or "")]
        for each in found.pending
    ]
    lines += ["", *table(paint, ("waits since", "by", "what", "why"), rows)] if rows else []
    if not rows and not found.conflicts:
        lines.append(paint.dim("nothing waits"))
    for each in found.conflicts:
        lines += ["", *draw_conflict(each, paint)]
    return lines


def draw_conflict(found: Any, paint: Paint) -> Lines:
    """Draw one commit that the store refused."""
    head = f"{paint('conflict ' + found.id[:12], fg='red', bold=True)}  {paint(found.author, fg='cyan')}"
    lines = [head, "    " + paint(found.reason)]
    for ours, theirs in zip(found.ours, found.theirs, strict=False):
        lines.append(f"  {paint('ours', fg='green')}    {paint(as_text(ours))}")
        lines.append(f"  {paint('theirs', fg='yellow')}  {paint(as_text(theirs))}")
    return lines


def _ops(ops: list[dict[str, Any]]) -> str:
    text = ", ".join(f"{op['op']} {op['id']}" for op in ops[:3])
    return text + (f" and {len(ops) - 3} more" if len(ops) > 3 else "")


def draw_export(found: Any, paint: Paint) -> Lines:
    """Draw the result of an export."""
    return [f"{many(found.records, 'record')} as of commit {found.seq:,}, {size(found.size_bytes)}"]


def draw_copy(found: Any, paint: Paint) -> Lines:
    """Draw the result of a copy."""
    new = f"{many(found.commits, 'commit')} new" if found.commits else "nothing new"
    held = f"{many(found.records, 'record')} as of commit {found.seq:,}"
    lines = [f"{new}; both hold {held}, with the same digest"]
    if found.tables:
        lines.append(f"{many(found.tables, 'own table')} copied")
    if found.left_out:
        lines.append(f"own tables left out: {', '.join(found.left_out)}")
    return lines


def draw_import(found: Any, paint: Paint) -> Lines:
    """Draw the result of an import."""
    counts = {name: getattr(found, name) for name in ("added", "replaced", "unchanged", "skipped")}
    text = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "nothing in it"
    return [("would be: " if found.dry_run else "") + text]


def draw_backup(found: Any, paint: Paint) -> Lines:
    """Draw a backup."""
    held = f"{many(found.records, 'record')} as of commit {found.seq:,}, {size(found.size_bytes)}"
    lines = [paint(found.path, fg="cyan"), f"{held}; every record was read"]
    if found.damaged:
        lines.append(paint(f"damaged in the store already: {', '.join(found.damaged)}", fg="red"))
    return lines


def draw_restore(found: Any, paint: Paint) -> Lines:
    """Draw the result of a restore."""
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


def draw_project(found: Any, paint: Paint) -> Lines:
    """Draw the store of a project."""
    lead = "" if found.changed else "already set up: "
    lines = [f"{lead}dgent keeps the data of {paint(found.folder)} in {paint(found.place, fg='cyan')}"]
    if found.driver is not None:
        lines.append("git merges it record by record; commit the folder .dgent with your code")
        lines.append(
            paint.dim("in each clone, run `dgent init --git` once: git keeps merge drivers to itself")
        )
    else:
        lines.append(paint.dim("git ignores it; `dgent init --git` makes a store that git shares"))
    return lines


def draw_upgrade(found: Any, paint: Paint) -> Lines:
    """Draw an upgrade of the storage format."""
    place = f"{paint(found.place, fg='cyan')}, {size(found.size_bytes)}"
    if not found.steps:
        lines = [f"{place}: storage format {found.to_format}, nothing to upgrade"]
    else:
        lead = "would be upgraded" if found.dry_run else "upgraded"
        lines = [f"{place}: {lead} from storage format {found.from_format} to {found.to_format}"]
        lines += [f"  {each.number}  {paint(each.description)}" for each in found.steps]
    if found.backup:
        lines.append(
            paint.dim(f"{'a backup would be made first' if found.dry_run else 'backup'}: {found.backup}")
        )
    return lines + ([paint.dim(found.note)] if found.note else [])


def draw_erasure(found: Any, paint: Paint) -> Lines:
    """Draw the result of forgetting."""
    lead = "would forget" if found.dry_run else "forgot"
    lines = [f"{lead} {many(found.records, 'record')} with {many(found.versions, 'version')}"]
    if not found.erased and not found.dry_run:
        lines.append(
            paint(
                "the old bytes are not gone yet; `dgent doctor --fix` finishes it, or says what keeps them",
                fg="yellow",
            )
        )
    if found.remains and found.records and not found.dry_run:
        lines.append(paint.dim(f"bytes of it may still be in {found.remains}"))
    return lines


def draw_user_erasure(found: Any, paint: Paint) -> Lines:
    """Draw the result of forgetting a user, with the records of each schema."""
    rows = [[f"{count}", paint(schema, fg="cyan")] for schema, count in found.schemas.items()]
    return [*draw_erasure(found, paint), *table(paint, ("records", "schema"), rows)]


def draw_schemas(found: Any, paint: Paint) -> Lines:
    """Draw schemas, a line each."""
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


def draw_settings(found: Any, paint: Paint) -> Lines:
    """Draw settings, a line each."""
    rows = [
        [paint(each.name, fg="cyan"), paint(_value(each.value)), paint.dim(each.source)]
        for each in found.settings
    ]
    whole = Paint(paint.color, ENDLESS)  # a URL that is cut cannot be copied
    lines = table(whole, ("setting", "value", "from"), rows, last=1)
    lines += ["", *(f"{paint.dim(name):8}  {paint(place)}" for name, place in found.places.items())]
    return lines


def _value(value: Any) -> str:
    return value if isinstance(value, str) else "-" if value is None else as_text(value)


def draw_constellations(found: Any, paint: Paint) -> Lines:
    """Draw constellations, a line each."""
    rows = [
        [
            paint("*" if each.current else " ", fg="green"),
            paint(each.name, fg="cyan"),
            size(each.size_bytes),
            paint.dim(each.path),
        ]
        for each in found.items
    ]
    return table(paint, ("in use", "name", "size", "folder"), rows) or [
        paint.dim("none yet; `dgent remember something` makes one")
    ]


def draw_setting_change(found: Any, paint: Paint) -> Lines:
    """Draw a changed setting."""
    text = f"{found.name} = {found.value}" if found.value is not None else f"{found.name} is not set any more"
    return [f"{paint(text)}  {paint.dim('in ' + found.file)}"]


def draw_setting(found: Any, paint: Paint) -> Lines:
    """Draw one setting."""
    return [f"{paint(_value(found.value))}  {paint.dim('from ' + found.source)}"]


def draw_deletion(found: Any, paint: Paint) -> Lines:
    """Draw a deleted constellation."""
    lead = "would delete" if found.dry_run else "deleted"
    return [f"{lead} {paint(found.name, fg='cyan')} with {size(found.size_bytes)}  {paint.dim(found.path)}"]


def draw_new_token(found: Any, paint: Paint) -> Lines:
    """Draw a new token, which is shown this once."""
    end = "and never expires" if found.expires_at is None else f"until {found.expires_at:%Y-%m-%d %H:%M} UTC"
    return [
        f"{paint.bold(found.id)} lets {paint(found.agent)} act as {found.trust} {end}",
        "",
        found.token,
        "",
        paint.dim("it is shown only now; programs send it as Authorization: Bearer <token>"),
    ]


def draw_token(found: Any, paint: Paint) -> Lines:
    """Draw a token that has ended."""
    return [f"{paint.bold(found.id)} of {paint(found.agent)} is no longer taken"]


def draw_blob(found: Any, paint: Paint) -> Lines:
    """Draw one blob."""
    rows = [("size", f"{size(found.size_bytes)} of {found.content_type}"), ("content", found.id)]
    if found.references is not None:
        rows.append(("used by", many(found.references, "reference")))
    return [paint.bold(clean(found.key)), *(f"  {name:8} {value}" for name, value in rows)]


def draw_blobs(found: Any, paint: Paint) -> Lines:
    """Draw blobs as a table."""
    if not found.items:
        return ["no blobs; `dgent blob put KEY FILE` stores one"]
    rows = [
        (clean(each.key), size(each.size_bytes), each.content_type, ago(each.updated_at))
        for each in found.items
    ]
    return table(paint, ("key", "size", "type", "stored"), rows)


def draw_collected(found: Any, paint: Paint) -> Lines:
    """Draw the result of a collection of blobs."""
    noun = many(found.removed, "content")
    waits = f"; {found.waiting:,} unused, which later runs remove" if found.waiting else ""
    return [f"{noun} removed, {size(found.removed_bytes)}; {found.kept:,} in use{waits}"]


def draw_tokens(found: Any, paint: Paint) -> Lines:
    """Draw the tokens of a store as a table."""
    if not found.items:
        return ["no tokens; `dgent token create --agent scout` makes one"]
    rows = [
        (
            each.id,
            each.agent,
            each.trust,
            ago(each.made_at),
            "never" if each.expires_at is None else f"{each.expires_at:%Y-%m-%d}" + " (over)" * each.expired,
            each.purpose,
        )
        for each in found.items
    ]
    return table(paint, ("id", "agent", "trust", "made", "expires", "purpose"), rows)
