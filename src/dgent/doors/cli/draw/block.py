"""Blocks, what they say and what goes on in them, for people."""

from __future__ import annotations

from dgent.doors.cli.draw.history import compared
from dgent.doors.cli.paint import Paint, ago, cut, many, table
from dgent.verbs import memory

Lines = list[str]

MOST = 200_000  # characters of a text that a terminal is given
KINDS = {"core": "magenta", "working": "green", "archival": "blue", "log": "cyan"}


def prose(text: str, paint: Paint) -> Lines:
    """A text as its lines; on a terminal not more of it than anybody can read."""
    lines = ["\t".join(paint(part) for part in line.split("\t")) for line in _shown(text, paint).split("\n")]
    return lines + _left(text, paint)


def difference(text: str, paint: Paint) -> Lines:
    """The lines of a unified difference, without the names of what is compared."""
    return compared(_shown(text, paint).rstrip("\n").split("\n")[2:], paint) + _left(text, paint)


def _shown(text: str, paint: Paint) -> str:
    return text[:MOST] if paint.terminal else text


def _left(text: str, paint: Paint) -> Lines:
    """What to say of the rest that is not shown."""
    left = len(text) - len(_shown(text, paint))
    return [paint.dim(f"[{many(left, 'more character')}: write it to a file, or use --json]")] if left else []


def name_of(owner: str, label: str, paint: Paint) -> str:
    """A block's label behind its owner's name."""
    return f"{paint.dim(owner + '/')}{paint(label, fg='yellow', bold=True)}"


def card(found: memory.BlockCard, paint: Paint) -> Lines:
    """What a block is."""
    head = f"{name_of(found.owner, found.label, paint)}  {kind(found.kind, paint)} {paint(found.document)}"
    about = [f"limit {found.limit:,}", found.permission]
    about += ["pinned"] if found.pinned else []
    about += [f"keeps {many(found.retain, 'version')}"] if found.retain else []
    about += [f"template {found.template}"] if found.template else []
    over = paint("  over its limit", fg="red") if found.over_limit else ""
    lines = [f"{head}  {paint.dim(', '.join(about))}{over}"]
    lines += [f"  {paint(line)}" for line in found.description.splitlines()]
    return [*lines, f"  {paint.dim('id ' + found.id)}"]


def kind(word: str, paint: Paint) -> str:
    """A kind in its colour."""
    return paint(word, fg=KINDS.get(word, "white"))


def cards(found: memory.Blocks, paint: Paint) -> Lines:
    """Blocks, a line each; whose they are where there are those of others."""
    if not found.items and not found.deleted:
        return [paint.dim(f"{found.agent} has no blocks")]
    rows = [
        [
            paint(each.label, fg="yellow") if each.owner == found.agent else _foreign(each, paint),
            kind(each.kind, paint) + _marks(each, paint),
            paint(each.document),
            paint.dim(each.permission),
            paint(cut(each.description, 200)),
        ]
        for each in found.items
    ]
    lines = table(paint, ("block", "kind", "holds", "permission", "what belongs into it"), rows)
    if found.deleted:
        labels = cut(", ".join(found.deleted), max(paint.width - 20, 20))
        lines.append(paint.dim(f"can be restored: {labels}"))
    return lines


def _marks(found: memory.BlockCard, paint: Paint) -> str:
    pinned = paint.dim(" pinned") if found.pinned else ""
    return pinned + (paint(" over its limit", fg="red") if found.over_limit else "")


def _foreign(found: memory.BlockCard, paint: Paint) -> str:
    return f"{paint.dim(found.owner + '/')}{paint(found.label, fg='yellow')}"


def text(found: memory.BlockText, paint: Paint) -> Lines:
    """What a block says, alone: a script may want it."""
    return prose(found.text, paint) if found.text else [paint.dim("it is empty")]


def info(found: memory.BlockInfo, paint: Paint) -> Lines:
    """What a block is, how full, and who has it."""
    lines = card(found.card, paint)
    full = found.size / found.card.limit
    bar = "#" * min(round(full * 20), 20)
    size = paint(f"{bar:.<20}", fg="red" if full > 0.9 else "green")
    lines.append(f"  {size} {found.size:,} of {found.card.limit:,} characters, version {found.version}")
    for title, names in (("fields", found.fields), ("sections", found.sections)):
        lines += [f"  {paint.dim(title)} {paint(', '.join(names))}"] if names else []
    for name, number in found.checkpoints.items():
        lines.append(f"  {paint.dim('checkpoint')} {paint(name, fg='cyan')} is version {number}")
    return lines + (["", *shares(memory.BlockShares(found.shares), paint)] if found.shares else [])


def shares(found: memory.BlockShares, paint: Paint) -> Lines:
    """Who was given what, a line each."""
    rows = [
        [
            name_of(each.owner, each.label, paint),
            paint(each.agent or f"group {each.group}", fg="cyan"),
            paint(each.permission),
            paint.dim(f"{ago(each.at)} by {each.by}"),
        ]
        for each in found.items
    ]
    return table(paint, ("block", "shared with", "permission", "when"), rows) or [paint.dim("not shared")]


def notices(found: memory.BlockNotices, paint: Paint) -> Lines:
    """What others did, with the differences."""
    lines: Lines = []
    for each in found.items:
        by = paint(", ".join(each.by), fg="cyan")
        head = name_of(each.owner, each.label, paint)
        lines += [f"{head}  {by}  {paint.dim(f'version {each.since} -> {each.version}')}"]
        lines += [*difference(each.diff, paint), ""]
    return lines[:-1] or [paint.dim("nobody else changed anything")]


def activities(found: memory.BlockActivities, paint: Paint) -> Lines:
    """What was done, a line each."""
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


def _target(each: memory.BlockActivity, paint: Paint) -> str:
    if each.kind == "entry":
        return paint.dim("the archive")
    if each.kind == "block":
        return name_of(each.owner, each.label, paint)
    return f"{paint.dim(each.kind)} {paint(cut(each.label, 60))}"


def refusals(found: memory.Refusals, paint: Paint) -> Lines:
    """What was not done, a line each."""
    rows = [
        [
            paint.dim(ago(each.at)),
            f"{paint(each.agent, fg='cyan')} {paint.dim(each.trust)}",
            paint(each.what, fg="red"),
            name_of(each.owner, each.label, paint) if each.owner else paint(each.label),
            paint(cut(each.reason, 200)),
        ]
        for each in found.items
    ]
    return table(paint, ("when", "who", "wanted", "block", "why not"), rows) or [paint.dim("nothing refused")]


def context(found: memory.MemoryContext, paint: Paint) -> Lines:
    """The memory part of a prompt, and what is in it."""
    lines = prose(found.text, paint) if found.text else [paint.dim("nothing is in the context")]
    told = [many(found.tokens, "token"), f"{len(found.shown)} whole"]
    told += [f"in part: {', '.join(found.shortened)}"] if found.shortened else []
    told += [f"left out: {', '.join(found.cut)}"] if found.cut else []
    return [*lines, "", paint.dim(", ".join(told))]


def hits(found: memory.Hits, paint: Paint) -> Lines:
    """What was found, its words marked."""
    lines: Lines = []
    for each in found.items:
        place = name_of(each.owner, each.label, paint) if each.label else paint(each.id, fg="yellow")
        lines.append(f"{place}  {kind(each.kind, paint)}  {paint.dim(f'{each.score:.2f}')}")
        lines.append("    " + marked(each.snippet, each.marks, paint))
    return lines or [paint.dim("nothing found")]


def marked(snippet: str, marks: list[tuple[int, int]], paint: Paint) -> str:
    """A text with some of its words in a colour."""
    parts, end = [], 0
    for start, stop in marks:
        parts += [paint(snippet[end:start]), paint(snippet[start:stop], fg="green", bold=True)]
        end = stop
    return "".join([*parts, paint(snippet[end:])])


def entry(found: memory.ArchiveEntry, paint: Paint) -> Lines:
    """An archival entry."""
    tags = " ".join(f"#{tag}" for tag in found.tags)
    head = f"{paint(found.id, fg='yellow', bold=True)}  {paint.dim(f'{found.agent}, {ago(found.at)}')}"
    return [f"{head}  {paint(tags, fg='cyan')}".rstrip(), *prose(found.text, paint)]
