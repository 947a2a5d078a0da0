"""Draw forks, their distance from their source, and merges."""

from __future__ import annotations

from typing import Any

from dgent.doors.cli.style import Paint, ago, many, size, table
from dgent.verbs.wire import as_text

Lines = list[str]
SHOWN = 20
_HOW = {
    "new": "new, with {versions}",
    "versions": "{versions} came",
    "changes": "changes came as one version",
    "compared": "compared, and changed as one version",
    "beside": "kept as a separate block, with {versions}",
    "card": "its header changed",
}


def draw_fork(found: Any, paint: Paint) -> Lines:
    """Draw a new fork."""
    text = f"{many(found.records, 'record')}, {many(found.blocks, 'block')} in them"
    lines = [
        f"{paint(found.name, fg='cyan')}  {paint.dim(found.path)}",
        f"{text}; {found.scope} as of commit {found.fork_point:,}",
    ]
    if found.left_out:
        lines.append(
            f"{many(found.left_out, 'record')} of other rooms left out: they only go with all of them"
        )
    return lines


def draw_forks(found: Any, paint: Paint) -> Lines:
    """Draw forks, a line each."""
    rows = [
        [
            paint(each.name, fg="cyan"),
            paint(each.source_name or each.source),
            f"{each.fork_point:,}",
            each.scope,
            paint.dim(ago(each.made_at) if each.made_at else ""),
            paint(each.problem, fg="red"),
        ]
        for each in found.items
    ]
    return table(paint, ("name", "of", "commit", "scope", "made", "problem"), rows) or [paint.dim("no forks")]


def draw_distance(found: Any, paint: Paint) -> Lines:
    """Draw the distance of a fork from its source."""
    of = paint(found.name or found.source, fg="cyan")
    since = f"{many(found.source_commits, 'commit')} there since"
    return [
        f"{found.scope} of {of} as of commit {found.fork_point:,}; {since}",
        *draw_merge(found.merge, paint),
    ]


def draw_merge(found: Any, paint: Paint) -> Lines:
    """Draw the result of a merge or of its dry run."""
    counts = [f"{n:,} {name}" for name in ("added", "changed", "deleted") if (n := getattr(found, name))]
    lead = "would merge" if found.dry_run else "merged"
    said = [f"{many(len(found.blocks), 'block')}"] if found.blocks else []
    said += [f"records: {', '.join(counts)}"] if counts else []
    lines = [f"{lead} {'; '.join(said) or 'nothing'}"]
    lines += [_block(each, paint) for each in found.blocks[:SHOWN]]
    lines += _more(found.blocks, paint)
    for each in found.conflicts[:SHOWN]:
        lines.append(paint(f"  ! {_clash(each)}", fg="yellow"))
    lines += _more(found.conflicts, paint)
    for each in found.not_merged[:SHOWN]:
        lines.append(paint.dim(f"  not merged: {each.records:,} of {each.schema or 'no schema'}: {each.why}"))
    return lines


def _block(each: Any, paint: Paint) -> str:
    how = _HOW[each.how].format(versions=many(each.versions, "version"))
    over = f"  {each.size:,} of {each.limit:,} characters: over its limit" if each.over_limit else ""
    return f"  {paint(each.owner + '/' + each.label, fg='cyan')}  {how}{paint(over, fg='red')}"


def _clash(each: Any) -> str:
    if each.choice != "both":
        said = "not decided: use --conflicts both, theirs or mine" if each.choice == "open" else each.choice
        return f"{each.id}: {each.what}; {said}"
    kept = f"; theirs is kept as {each.kept}" if each.kept and each.kept != each.id else ""
    theirs = f"; theirs: {as_text(each.theirs)}" if each.theirs else ""
    return f"{each.id}: {each.what}{kept}{theirs}"


def _more(found: list[Any], paint: Paint) -> Lines:
    left = len(found) - SHOWN
    return [paint.dim(f"  and {left:,} more; --json tells them")] if left > 0 else []


def draw_deletion(found: Any, paint: Paint) -> Lines:
    """Draw a deleted fork."""
    lead = "would throw away" if found.dry_run else "threw away"
    return [f"{lead} {paint(found.name, fg='cyan')} with {size(found.size_bytes)}  {paint.dim(found.path)}"]
