"""Draw blocks, their content, versions and activity, and agents."""

from __future__ import annotations

from collections.abc import Iterable

from dgent.blocks import Context, Hit
from dgent.doors.cli.draw.record import draw_diff_lines, draw_origin
from dgent.doors.cli.style import Paint, ago, cut, many, table
from dgent.verbs.block import answer
from dgent.verbs.block.answer import SyncResult
from dgent.verbs.registry import Items

COLORS = {"taken": "green", "written": "cyan", "deleted": "yellow", "conflicts": "red", "refused": "red"}
WORDS = {"taken": "imported", "conflicts": "conflict"}


def draw_sync(found: SyncResult, paint: Paint) -> Lines:
    """Draw a line for each file that a sync changed."""
    lines = []
    for kind, color in COLORS.items():
        for each in getattr(found, kind):
            word = paint(f"{WORDS.get(kind, kind):9}", fg=color)
            number = "" if each.version is None else paint.dim(f"  version {each.version}")
            lines.append(f"{word} {paint(each.file, bold=True)}{number}  {paint(each.why)}")
    if not lines:
        return [paint.dim("nothing to do")]
    return [*lines, paint.dim("dry run: nothing was changed")] if found.dry_run else lines


STATUSES = {"active": "green", "hibernated": "blue", "archived": "red"}


def draw_agents(found: Items[answer.AgentInfo], paint: Paint) -> Lines:
    """Draw agents, a line each."""
    rows = [
        [
            paint(each.name, fg="cyan"),
            paint(each.status, fg=STATUSES.get(each.status, "white")),
            paint(cut(each.description, 200)),
        ]
        for each in found.items
    ]
    return table(paint, ("agent", "status", "what it is there for"), rows) or [paint.dim("no agents")]


def draw_agent(found: answer.AgentInfo, paint: Paint) -> Lines:
    """Draw one agent."""
    return draw_agents(Items([found]), paint)


def draw_group(found: answer.GroupInfo, paint: Paint) -> Lines:
    """Draw a group and its members."""
    lines = [f"{paint(found.name, fg='yellow', bold=True)}  {paint(found.description)}".rstrip()]
    for each in found.members:
        able = paint.dim(f"  {', '.join(each.capabilities)}" if each.capabilities else "")
        lines.append(f"  {paint(each.agent, fg='cyan')}  {paint(each.role)}{able}")
    return lines if found.members else [*lines, paint.dim("  no members")]


def draw_groups(found: Items[answer.GroupInfo], paint: Paint) -> Lines:
    """Draw groups, each with its members."""
    return [line for each in found.items for line in draw_group(each, paint)] or [paint.dim("no groups")]


Lines = list[str]

MOST = 200_000  # characters of a text that a terminal is given
KINDS = {"core": "magenta", "working": "green", "archival": "blue", "log": "cyan"}


def draw_text_lines(text: str, paint: Paint) -> Lines:
    """Draw a text as lines; on a terminal at most MOST characters of it."""
    lines = [
        "\t".join(paint(part) for part in line.split("\t")) for line in _shorten(text, paint).split("\n")
    ]
    return lines + _draw_rest(text, paint)


def draw_difference(text: str, paint: Paint) -> Lines:
    """Draw a unified difference without its two header lines."""
    return draw_diff_lines(_shorten(text, paint).rstrip("\n").split("\n")[2:], paint) + _draw_rest(
        text, paint
    )


def _shorten(text: str, paint: Paint) -> str:
    return text[:MOST] if paint.terminal else text


def _draw_rest(text: str, paint: Paint) -> Lines:
    """Draw how much of a text is not shown."""
    left = len(text) - len(_shorten(text, paint))
    return [paint.dim(f"[{many(left, 'more character')}: write it to a file, or use --json]")] if left else []


def draw_name(owner: str, label: str, paint: Paint) -> str:
    """Draw a block's label behind its owner's name."""
    return f"{paint.dim(owner + '/')}{paint(label, fg='yellow', bold=True)}"


def draw_block(found: answer.BlockHeader, paint: Paint) -> Lines:
    """Draw the header of a block."""
    head = f"{draw_name(found.owner, found.label, paint)}  {draw_kind(found.kind, paint)}"
    head += f" {paint(found.document)}"
    about = [f"limit {found.limit:,}", found.permission]
    about += ["pinned"] if found.pinned else []
    about += [f"keeps {many(found.retain, 'version')}"] if found.retain else []
    about += [f"template {found.template}"] if found.template else []
    over = paint("  over its limit", fg="red") if found.over_limit else ""
    origin = draw_origin(found.origin, paint)
    lines = [f"{head}  {paint.dim(', '.join(about))}{over}  {origin}".rstrip()]
    lines += [f"  {paint(line)}" for line in found.description.splitlines()]
    return [*lines, f"  {paint.dim('id ' + found.id)}"]


def draw_kind(word: str, paint: Paint) -> str:
    """Draw a kind in its colour."""
    return paint(word, fg=KINDS.get(word, "white"))


def draw_blocks(found: answer.Blocks, paint: Paint) -> Lines:
    """Draw blocks, a line each; those of others with their owner."""
    if not found.items and not found.deleted:
        return [paint.dim(f"{found.agent} has no blocks")]
    rows = [
        [
            paint(each.label, fg="yellow") if each.owner == found.agent else _foreign(each, paint),
            draw_kind(each.kind, paint) + _marks(each, paint),
            paint(each.document),
            "" if each.size is None else f"{each.size:,}",
            paint.dim(each.permission),
            paint(cut(each.description, 200)),
        ]
        for each in found.items
    ]
    lines = table(paint, ("block", "kind", "holds", "characters", "permission", "what belongs into it"), rows)
    if found.deleted:
        labels = cut(", ".join(found.deleted), max(paint.width - 20, 20))
        lines.append(paint.dim(f"can be restored: {labels}"))
    return lines


def _marks(found: answer.BlockHeader, paint: Paint) -> str:
    pinned = paint.dim(" pinned") if found.pinned else ""
    over = paint(" over its limit", fg="red") if found.over_limit else ""
    return f"{pinned}{over} {draw_origin(found.origin, paint)}".rstrip()


def _foreign(found: answer.BlockHeader, paint: Paint) -> str:
    return f"{paint.dim(found.owner + '/')}{paint(found.label, fg='yellow')}"


def draw_text(found: answer.BlockText, paint: Paint) -> Lines:
    """Draw only the content of a block, for scripts."""
    return draw_text_lines(found.text, paint) if found.text else [paint.dim("it is empty")]


def draw_info(found: answer.BlockInfo, paint: Paint) -> Lines:
    """Draw the header of a block, its size and its shares."""
    lines = draw_block(found.card, paint)
    full = found.size / found.card.limit
    bar = "#" * min(round(full * 20), 20)
    size = paint(f"{bar:.<20}", fg="red" if full > 0.9 else "green")
    lines.append(f"  {size} {found.size:,} of {found.card.limit:,} characters, version {found.version}")
    for title, parts in (("fields", found.fields), ("sections", found.sections)):
        names = [each.name for each in parts]
        lines += [f"  {paint.dim(title)} {paint(', '.join(names))}"] if names else []
    for name, number in found.checkpoints.items():
        lines.append(f"  {paint.dim('checkpoint')} {paint(name, fg='cyan')} is version {number}")
    return lines + (["", *draw_shares(Items(found.shares), paint)] if found.shares else [])


def draw_shares(found: Items[answer.BlockShare], paint: Paint) -> Lines:
    """Draw shares, a line each."""
    rows = [
        [
            draw_name(each.owner, each.label or "(archive)", paint),
            paint(each.agent or f"group {each.group}", fg="cyan"),
            paint(each.permission),
            paint.dim(f"{ago(each.at)} by {each.by}"),
        ]
        for each in found.items
    ]
    return table(paint, ("block", "shared with", "permission", "when"), rows) or [paint.dim("not shared")]


def draw_notices(found: Items[answer.BlockNotice], paint: Paint) -> Lines:
    """Draw the changes of others, with differences."""
    lines: Lines = []
    for each in found.items:
        by = paint(", ".join(each.by), fg="cyan")
        head = draw_name(each.owner, each.label, paint)
        lines += [f"{head}  {by}  {paint.dim(f'version {each.since} -> {each.version}')}"]
        lines += [*draw_difference(each.diff, paint), ""]
    return lines[:-1] or [paint.dim("nobody else changed anything")]


def draw_activities(found: Items[answer.BlockActivity], paint: Paint) -> Lines:
    """Draw activities, a line each."""
    rows = [
        [
            paint.dim(each.seq),
            paint.dim(ago(each.at)),
            paint(each.by, fg="cyan"),
            paint(each.what),
            _target(each, paint),
            paint.dim(each.version or ""),
            paint(cut(each.message, 200)),
        ]
        for each in found.items
    ]
    heads = ("commit", "when", "by", "what", "to", "version", "why")
    return table(paint, heads, rows) or [paint.dim("nothing was done")]


def _target(each: answer.BlockActivity, paint: Paint) -> str:
    if each.kind == "entry":
        return paint.dim("the archive")
    if each.kind == "block":
        return draw_name(each.owner, each.label, paint)
    return f"{paint.dim(each.kind)} {paint(cut(each.label, 60))}"


def draw_refusals(found: Items[answer.RefusalInfo], paint: Paint) -> Lines:
    """Draw refusals, a line each."""
    rows = [
        [
            paint.dim(ago(each.at)),
            f"{paint(each.agent, fg='cyan')} {paint.dim(each.trust)}",
            paint(each.what, fg="red"),
            draw_name(each.owner, each.label, paint) if each.owner else paint(each.label),
            paint(cut(each.reason, 200)),
        ]
        for each in found.items
    ]
    return table(paint, ("when", "who", "wanted", "block", "why not"), rows) or [paint.dim("nothing refused")]


def draw_primer(found: answer.Primer, paint: Paint) -> Lines:
    """Draw the text for the start of a session, as it goes into a prompt."""
    return draw_text_lines(found.text, paint)


def draw_context(found: Context, paint: Paint) -> Lines:
    """Draw the memory part of a prompt, and which blocks it has."""
    lines = draw_text_lines(found.text, paint) if found.text else [paint.dim("nothing is in the context")]
    parts = [many(found.tokens, "token"), f"{len(found.shown)} whole"]
    parts += [f"in part: {', '.join(found.shortened)}"] if found.shortened else []
    parts += [f"cut for want of room: {', '.join(found.cut)}"] if found.cut else []
    parts += [f"not pinned or archival: {', '.join(found.others)}"] if found.others else []
    return [*lines, "", paint.dim(", ".join(parts))]


def draw_hits(found: Items[Hit], paint: Paint) -> Lines:
    """Draw search results with their words highlighted."""
    lines: Lines = []
    for each in found.items:
        place = draw_name(each.owner, each.label, paint) if each.label else paint(each.id, fg="yellow")
        origin = draw_origin(each.origin, paint)
        head = f"{place}  {draw_kind(each.kind, paint)}  {paint.dim(f'{each.score:.2f}')}  {origin}"
        lines.append(head.rstrip())
        lines.append("    " + highlight(each.snippet, each.marks, paint))
    return lines or [paint.dim("nothing found")]


def highlight(snippet: str, marks: Iterable[tuple[int, int]], paint: Paint) -> str:
    """Return a text with the marked places in a colour."""
    parts, end = [], 0
    for start, stop in marks:
        parts += [paint(snippet[end:start]), paint(snippet[start:stop], fg="green", bold=True)]
        end = stop
    return "".join([*parts, paint(snippet[end:])])


def draw_entry(found: answer.ArchiveEntry, paint: Paint) -> Lines:
    """Draw an archival entry."""
    tags = " ".join(f"#{tag}" for tag in found.tags)
    head = f"{paint(found.id, fg='yellow', bold=True)}  {paint.dim(f'{found.agent}, {ago(found.at)}')}"
    return [f"{head}  {paint(tags, fg='cyan')}".rstrip(), *draw_text_lines(found.text, paint)]


MOVES = ("undo", "redo", "visit")
_BAR = 12


def draw_versions(found: answer.BlockVersions, paint: Paint) -> Lines:
    """Draw the versions of a block, a line each; bars show the text added and removed."""
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


def _op(found: answer.BlockVersion, paint: Paint) -> str:
    if found.lost:
        return paint(f"{found.op}, {found.lost}", fg="red")
    if found.op in MOVES:
        return paint(f"{found.op} to {found.node}", fg="magenta")
    return paint(found.op, fg="magenta" if found.op == "rollback" else None)


def _change(found: answer.BlockVersion, most: int, paint: Paint) -> str:
    """Draw the characters added and removed, in numbers and as a bar."""
    share = (found.added + found.removed) / most if most else 0
    cells = max(round(share * _BAR), 1 if found.added or found.removed else 0)
    came = round(cells * found.added / (found.added + found.removed)) if cells else 0
    numbers = f"{paint(f'+{found.added}', fg='green')} {paint(f'-{found.removed}', fg='red')}"
    bar = paint("+" * came, fg="green") + paint("-" * (cells - came), fg="red")
    return f"{numbers} {bar}".rstrip()


def draw_edit(found: answer.EditResult, paint: Paint) -> Lines:
    """Draw the result of an edit."""
    made = found.version
    head = f"{draw_name(found.owner, found.label, paint)}  version {paint(made.version, fg='yellow')}"
    numbers = f"{paint(f'+{made.added}', fg='green')} {paint(f'-{made.removed}', fg='red')}"
    size = paint.dim(f"{made.size:,} of {found.limit:,} characters")
    node = f"  node {paint(found.node, fg='yellow')}" if found.node else ""
    lines = [f"{head}  {_op(made, paint)}  {numbers}  {size}{node}"]
    for line in found.changed.split("\n") if found.changed else ():
        number, _, text = line.partition("\t")
        lines.append(f"{paint.dim(f'{number:>5}')}  {paint(text)}" if text else paint.dim(f"{number:>5}"))
    return lines


def draw_diff(found: answer.BlockDiff, paint: Paint) -> Lines:
    """Draw the differences of two versions."""
    numbers = paint.dim(f"version {found.before} -> {found.after}")
    head = f"{draw_name(found.owner, found.label, paint)}  {numbers}"
    if not found.text:
        return [head, paint.dim("no difference")]
    return [head, *draw_difference(found.text, paint)]


def draw_branches(found: answer.BlockBranches, paint: Paint) -> Lines:
    """Draw the tree of edits: each stretch below its parent, and the current place."""
    if not found.tree:
        return [paint.dim("no versions")]
    children: dict[int, list[answer.Stretch]] = {}
    ends = {each.last for each in found.tree}
    for each in found.tree:
        children.setdefault(each.parent if each.parent in ends else 0, []).append(each)
    lines = [draw_name(found.owner, found.label, paint)]
    # Without recursion: a tree of a thousand forks is deep.
    waiting = [("", each, each is children[0][-1]) for each in reversed(children.get(0, []))]
    while waiting:
        indent, each, last = waiting.pop()
        lines.append(f"{indent}{'`- ' if last else '|- '}{_stretch(each, found.node, paint)}")
        below = children.get(each.last, [])
        deeper = indent + ("   " if last else "|  ")
        waiting += [(deeper, child, child is below[-1]) for child in reversed(below)]
    return lines


def _stretch(found: answer.Stretch, here: int, paint: Paint) -> str:
    numbers = f"{found.first}" if found.first == found.last else f"{found.first}-{found.last}"
    by, edits = cut(", ".join(found.by), 40), many(found.edits, "edit")
    text = f"{paint(numbers, fg='yellow')}  {paint.dim(edits + ' by')} "
    text += f"{paint(by, fg='cyan')}  {paint.dim(ago(found.at))}"
    mark = "<- here" if found.last == here else f"<- here, at {here}"
    return text + ("  " + paint(mark, fg="green", bold=True) if found.here else "")


def draw_redaction(found: answer.RedactResult, paint: Paint) -> Lines:
    """Draw a redaction, and where some of the text remains."""
    numbers = ", ".join(map(str, found.versions))
    lines = [f"{draw_name(found.owner, found.label, paint)}  redacted version {paint(numbers, fg='red')}"]
    if found.elsewhere:
        others = ", ".join(map(str, found.elsewhere))
        lines.append(paint(f"  some of the same text came with version {others} too", fg="yellow"))
    if found.messages:
        kept = ", ".join(map(str, found.messages))
        lines.append(
            paint(f"  the message of version {kept} is kept: --clear-messages clears it", fg="yellow")
        )
    if not found.erased:
        text = "  not yet gone from the disk: repeat the command; `dgent doctor` says what keeps it there"
        lines.append(paint(text, fg="yellow"))
    return lines


def draw_compaction(found: answer.BlockCompaction, paint: Paint) -> Lines:
    """Draw the number of pruned versions."""
    return [f"{draw_name(found.owner, found.label, paint)}  pruned {many(found.versions, 'old version')}"]


def draw_checkpoint(found: answer.Checkpoint, paint: Paint) -> Lines:
    """Draw a new checkpoint."""
    return [f"version {paint(found.version, fg='yellow')} is called {paint(found.name, fg='cyan')}"]


def draw_checkpoints(found: answer.Checkpoints, paint: Paint) -> Lines:
    """Draw checkpoints, a line each."""
    rows = [[paint(each.name, fg="cyan"), paint(each.version, fg="yellow")] for each in found.items]
    return table(paint, ("checkpoint", "version"), rows) or [paint.dim("no checkpoints")]
