"""Versions of blocks, their differences and their tree, for people."""

from __future__ import annotations

from dgent.doors.cli.draw.block import difference, name_of
from dgent.doors.cli.paint import Paint, ago, cut, many, table
from dgent.verbs import memory

Lines = list[str]

MOVES = ("undo", "redo", "visit")
_BAR = 12


def versions(found: memory.BlockVersions, paint: Paint) -> Lines:
    """The versions of a block, a line each: the lengths of the bars are what came and went."""
    most = max((each.added + each.removed for each in found.items), default=0)
    rows = [
        [
            paint(each.version, fg="yellow"),
            paint.dim(ago(each.at)),
            paint(each.by, fg="cyan"),
            _op(each, paint),
            f"{each.size:,}",
            _change(each, most, paint),
            paint(cut(each.message, 200)),
        ]
        for each in found.items
    ]
    lines = table(paint, ("version", "when", "by", "what", "size", "change", "why"), rows)
    left = found.total - len(found.items)
    return [*lines, *([paint.dim(f"and {many(left, 'older version')}")] if left else [])]


def _op(found: memory.BlockVersion, paint: Paint) -> str:
    if found.lost:
        return paint(f"{found.op}, {found.lost}", fg="red")
    if found.op in MOVES:
        return paint(f"{found.op} to {found.node}", fg="magenta")
    return paint(found.op, fg="magenta" if found.op == "rollback" else None)


def _change(found: memory.BlockVersion, most: int, paint: Paint) -> str:
    """How much came and went, in numbers and as a bar."""
    share = (found.added + found.removed) / most if most else 0
    cells = max(round(share * _BAR), 1 if found.added or found.removed else 0)
    came = round(cells * found.added / (found.added + found.removed)) if cells else 0
    numbers = f"{paint(f'+{found.added}', fg='green')} {paint(f'-{found.removed}', fg='red')}"
    bar = paint("+" * came, fg="green") + paint("-" * (cells - came), fg="red")
    return f"{numbers} {bar}".rstrip()


def edited(found: memory.Edited, paint: Paint) -> Lines:
    """What an edit came to."""
    made = found.version
    head = f"{name_of(found.owner, found.label, paint)}  version {paint(made.version, fg='yellow')}"
    numbers = f"{paint(f'+{made.added}', fg='green')} {paint(f'-{made.removed}', fg='red')}"
    size = paint.dim(f"{made.size:,} of {found.limit:,} characters")
    node = f"  node {paint(found.node, fg='yellow')}" if found.node else ""
    return [f"{head}  {_op(made, paint)}  {numbers}  {size}{node}"]


def diff(found: memory.BlockDiff, paint: Paint) -> Lines:
    """How two versions differ."""
    numbers = paint.dim(f"version {found.before} -> {found.after}")
    head = f"{name_of(found.owner, found.label, paint)}  {numbers}"
    if not found.text:
        return [head, paint.dim("no difference")]
    return [head, *difference(found.text, paint)]


def branches(found: memory.BlockBranches, paint: Paint) -> Lines:
    """The tree of edits: each piece below the one it came from, and where the block is now."""
    if not found.tree:
        return [paint.dim("no versions")]
    children: dict[int, list[memory.Stretch]] = {}
    ends = {each.last for each in found.tree}
    for each in found.tree:
        children.setdefault(each.parent if each.parent in ends else 0, []).append(each)
    lines = [name_of(found.owner, found.label, paint)]
    # Without recursion: a tree of a thousand forks is deep.
    waiting = [("", each, each is children[0][-1]) for each in reversed(children.get(0, []))]
    while waiting:
        indent, each, last = waiting.pop()
        lines.append(f"{indent}{'`- ' if last else '|- '}{_stretch(each, found.node, paint)}")
        below = children.get(each.last, [])
        deeper = indent + ("   " if last else "|  ")
        waiting += [(deeper, child, child is below[-1]) for child in reversed(below)]
    return lines


def _stretch(found: memory.Stretch, here: int, paint: Paint) -> str:
    numbers = f"{found.first}" if found.first == found.last else f"{found.first}-{found.last}"
    by, edits = cut(", ".join(found.by), 40), many(found.edits, "edit")
    told = f"{paint(numbers, fg='yellow')}  {paint.dim(edits + ' by')} "
    told += f"{paint(by, fg='cyan')}  {paint.dim(ago(found.at))}"
    mark = "<- here" if found.last == here else f"<- here, at {here}"
    return told + ("  " + paint(mark, fg="green", bold=True) if found.here else "")


def redacted(found: memory.Redacted, paint: Paint) -> Lines:
    """What is gone, and where some of it still is."""
    numbers = ", ".join(map(str, found.versions))
    lines = [f"{name_of(found.owner, found.label, paint)}  redacted version {paint(numbers, fg='red')}"]
    if found.elsewhere:
        others = ", ".join(map(str, found.elsewhere))
        lines.append(paint(f"  some of the same text came with version {others} too", fg="yellow"))
    if found.messages:
        kept = ", ".join(map(str, found.messages))
        lines.append(
            paint(f"  the message of version {kept} is kept: --clear-messages clears it", fg="yellow")
        )
    return (
        lines if found.erased else [*lines, paint("  not yet gone from the disk: say it again", fg="yellow")]
    )


def compacted(found: memory.BlockCompacted, paint: Paint) -> Lines:
    """How many versions were let go."""
    return [f"{name_of(found.owner, found.label, paint)}  let go of {many(found.versions, 'old version')}"]


def checkpoint(found: memory.Checkpoint, paint: Paint) -> Lines:
    """A version that got a name."""
    return [f"version {paint(found.version, fg='yellow')} is called {paint(found.name, fg='cyan')}"]


def checkpoints(found: memory.Checkpoints, paint: Paint) -> Lines:
    """The versions that have names."""
    rows = [[paint(each.name, fg="cyan"), paint(each.version, fg="yellow")] for each in found.items]
    return table(paint, ("checkpoint", "version"), rows) or [paint.dim("no checkpoints")]
