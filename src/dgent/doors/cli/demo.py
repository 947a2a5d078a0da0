"""An agent's story, shown by dgent on one SQLite file in a temporary folder.

Run it with `dgent demo`. Every step checks itself, so the story is true each time it runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import dgent
from dgent.blocks import Library
from dgent.config import settings
from dgent.cupboard import Cupboard
from dgent.doors.cli import render
from dgent.doors.cli.style import Paint
from dgent.model import lens
from dgent.runtime.agent import AgentRuntime
from dgent.runtime.event import Done, ToolFinished
from dgent.runtime.model.script import ScriptedModel
from dgent.verbs.path import invoke

# -- what the agent keeps -----------------------------------------------------------------


@dataclass(frozen=True)
class FirstMark:
    """A decision, as last year's program knew it: version 1."""

    action: str
    author: str


@dataclass(frozen=True)
class Mark:
    """A decision, as this program knows it: version 3."""

    action: str
    author: str
    reasoning: str = ""
    weight: int = 0


@dataclass(frozen=True)
class Budget:
    """The tokens left to spend."""

    tokens: int


LAST_YEAR = dgent.Schema("scout.mark", version=1, contract=FirstMark)
MARK = dgent.Schema(
    "scout.mark",
    version=3,
    contract=Mark,
    migrations={
        1: lambda data: {**data, "reasoning": "written before reasons were kept"},
        2: lambda data: {**data, "weight": 1},
    },
    indexes=("author",),
    text={"action": 1, "reasoning": 1},
)
BUDGET = dgent.Schema("scout.budget", contract=Budget)

TURNS = 40  # how often each of the two writers spends

# -- telling it ---------------------------------------------------------------------------

paint = Paint(settings.wants_color("auto", sys.stdout.isatty()))
chapters = count(1)


def chapter(title: str) -> None:
    """Print the title of the next part."""
    print("\n" + paint(f"{next(chapters):>2}. {title}", fg="cyan", bold=True))


def tell(text: str) -> None:
    """Print a sentence of the story."""
    print(f"    {text}")


def show(name: str, value: object) -> None:
    """Print an answer of the store."""
    print(f"    {paint.dim(name + ' ->')} {paint(value, fg='green')}")


def show_refusal(error: dgent.DgentError) -> None:
    """Print an error of the store."""
    print(f"    {paint(type(error).__name__, fg='red')}: {paint(error)}")


def check(holds: bool, claim: str) -> None:
    """Stop the story where a claim does not hold. No assert: `python -O` would leave it out."""
    if not holds:
        raise dgent.DgentError(f"the demo expected that {claim}", hint="this is a bug of dgent")


# -- the story ----------------------------------------------------------------------------


async def last_year(url: str) -> str:
    chapter("Last year's program leaves a mark")
    async with dgent.open(url, author="scout") as u:
        u.register(LAST_YEAR)
        mark = await u.remember(FirstMark("chose SQLite", "scout"), tags={"decision"})
    tell("It knew version 1 of the contract, wrote one record, and was retired.")
    show("stored", mark.datum.data)
    return mark.id


async def remember_and_recall(u: dgent.Universe) -> str:
    chapter("Remember")
    mark = await u.remember(Mark("ship it", "scout", "tests pass", 5), tags={"decision", "release"})
    await u.remember(Mark("wait a day", "critic", "tests are young", 2), tags={"decision"}, parent=mark)
    tell("Two typed values went in. Each call returned after its record was safe on disk.")
    show("rev, seq of the first", (mark.rev, mark.seq))

    chapter("Recall")
    query = dgent.Query(schema="scout.mark", tags={"decision"}, where={"author": "scout"})
    found = await u.recall(query)
    tell("By tag and by field, newest first:")
    for crystal in found:
        show(f"version {crystal.meta.stored_version} on disk", crystal.value)
    actions = [crystal.value.action for crystal in found]
    check(actions == ["ship it", "chose SQLite"], "both marks of the scout are found, newest first")
    return mark.id


async def upgrade_on_read(u: dgent.Universe, old: str) -> None:
    chapter("An old record, read by a new program")
    crystal = await u.get(old)
    check(crystal.was_upgraded and crystal.value.weight == 1, "the old mark is upgraded")
    unchanged = crystal.datum.data == {"action": "chose SQLite", "author": "scout"}
    check(unchanged, "the stored mark is unchanged")
    tell("Steps 1 -> 2 -> 3 ran on a copy. The stored bytes are still last year's.")
    show("value", crystal.value)
    show("still on disk", crystal.datum.data)


async def conflict(u: dgent.Universe, id: str) -> None:
    chapter("A conflict is refused, not lost")
    mine = await u.get(id)
    theirs = await u.get(id)
    await u.store(theirs.replace(value=replace(theirs.value, weight=8)), expect=theirs.rev)
    tell("Two readers hold rev 1. The first to write wins; the second hears about it:")
    try:
        await u.store(mine.replace(value=replace(mine.value, weight=1)), expect=mine.rev)
    except dgent.VersionConflict as error:
        show_refusal(error)
    else:
        check(False, "the stale write is refused")
    check((await u.get(id)).value.weight == 8, "the first write stays")


async def two_writers(u: dgent.Universe, url: str) -> None:
    chapter("Two processes write at once")
    budget = await u.remember(Budget(1000), id="budget")
    command = [sys.executable, "-m", "dgent.doors.cli.demo", "spend", url]
    writers = [await asyncio.create_subprocess_exec(*command) for _ in range(2)]
    codes = [await writer.wait() for writer in writers]
    left = (await u.get("budget")).value.tokens
    check(codes == [0, 0] and left == budget.value.tokens - 2 * TURNS, "no token is lost")
    tell(f"Each took one token from the same record, {TURNS} times, as fast as it could.")
    show("1000 became", left)


async def spend(url: str) -> None:
    """Spend tokens in one of the two processes: read, change, compare-and-set, retry on conflict."""
    async with dgent.open(url, author="writer") as u:
        u.register(BUDGET)
        tokens = u.focus("budget", lens.field("tokens"))
        for _ in range(TURNS):
            await tokens.modify(lambda left: left - 1)


async def transaction(u: dgent.Universe) -> None:
    chapter("All of it, or none of it")
    await u.remember(Budget(0), id="reserve")

    async def move(tx: dgent.Transaction, amount: int) -> None:
        budget, reserve = await tx.get("budget"), await tx.get("reserve")
        await tx.store(reserve.replace(value=Budget(reserve.value.tokens + amount)))
        if amount > budget.value.tokens:
            raise RuntimeError(f"only {budget.value.tokens} tokens are left")
        await tx.store(budget.replace(value=Budget(budget.value.tokens - amount)))

    await u.transact(lambda tx: move(tx, 200))
    try:
        await u.transact(lambda tx: move(tx, 5000))
    except RuntimeError as error:
        tell(f"The second move stopped halfway: {error}. Nothing of it happened.")
    budget, reserve = await u.get_many(["budget", "reserve"])
    show("budget, reserve", (budget.value.tokens, reserve.value.tokens))
    check((budget.value.tokens, reserve.value.tokens) == (720, 200), "only the first move happened")


async def undo(u: dgent.Universe) -> int:
    chapter("Undo")
    before = await u.seq()
    async with u.transaction(note="spring cleaning") as tx:
        for crystal in await tx.recall(dgent.Query(schema="scout.mark")):
            await tx.delete(crystal.id)
    assert tx.committed is not None and tx.committed.seq is not None
    tell(f"A hasty commit deleted {len(tx.committed.written)} marks. One call takes it back:")
    await u.undo(tx.committed.seq)
    count = await u.count(dgent.Query(schema="scout.mark"))
    show("marks", count)
    check(count == 3, "all three marks are back")
    return before


async def history(u: dgent.Universe, id: str, before: int) -> None:
    chapter("History")
    tell("Nothing was overwritten on the way:")
    for version in await u.history(id):
        weight = "deleted" if version.datum is None else f"weight {version.datum.data['weight']}"
        note = f" ({version.note})" if version.note else ""
        show(f"rev {version.rev}, commit {version.seq}", weight + note)
    earlier = await u.get(id, as_of=before)
    show(f"as of commit {before}", earlier.value)
    check(earlier.value.weight == 8, "the earlier version is found")


async def block(u: dgent.Universe) -> None:
    chapter("A memory that can be rolled back")
    persona = await Library(u, agent="scout").create("persona", text="I answer briefly.\nI ask first.\n")
    await persona.append("I ship on Fridays.\n", message="after the review")
    await persona.replace("I ask first.\n", "I never ask.\n", message="a bad idea")
    tell("A block is a text with every version of it. The third version was a mistake:")
    for version in reversed(await persona.history()):
        show(f"version {version.number}", f"{version.op} {version.message}".strip())
    await persona.rollback(2)
    show("rolled back to version 2", (await persona.text()).replace("\n", " ").strip())
    check("I ask first." in await persona.text(), "the old sentence is back")


async def trail(u: dgent.Universe) -> None:
    chapter("Work that can be given up")
    cupboard = Cupboard(u)
    await cupboard.add("Make the page fast", state="ready")
    attempt = await cupboard.start("try a cache", "the page in 100 ms")
    steps = await cupboard.add_many(["start a cache", "fill it"], trail=attempt)
    tell(f"A trail with {len(steps)} crumbs was tried. It led nowhere:")
    await cupboard.abandon(attempt, lesson="a cache does not help: every page differs")
    left = await cupboard.crumbs.fetch()
    show("crumbs left", [each.name for each in left])
    show("the lesson", (await cupboard.lessons())[0].lesson)
    check([each.name for each in left] == ["Make the page fast"], "the crumbs of the trail are gone")


async def search(u: dgent.Universe) -> None:
    chapter("One search over all of it")
    found = await invoke(u, "self.data.search", words="ship page")
    for hit in found.items:
        show(hit.kind, hit.snippet)
    kinds = {hit.kind for hit in found.items}
    check({"record", "block", "crumb", "lesson"} <= kinds, "records, the block, crumb and lesson are found")


LESSON = "an index on dates does not help: the table has 200 rows"
SCRIPT: tuple[dict[str, Any], ...] = (
    {"calls": [{"name": "remember", "arguments": {"data": "the page takes 900 ms"}}]},
    {"text": "I keep that."},
    {"calls": [{"name": "trail", "arguments": {"operation": "start", "name": "try an index on dates"}}]},
    {"calls": [{"name": "work_add", "arguments": {"name": "add it", "trail": "try an index on dates"}}]},
    {
        "calls": [
            {
                "name": "trail",
                "arguments": {"operation": "abandon", "id": "try an index on dates", "lesson": LESSON},
            }
        ]
    },
    {"text": "I tried an index, gave it up, and kept the lesson."},
    {"calls": [{"name": "trail", "arguments": {"operation": "lessons", "words": "index"}}]},
    {"expect": LESSON, "text": f"Yes: {LESSON}."},
)
"""The answers of a model that needs no key: each is one reply, with the tools that it calls."""


async def chat(u: dgent.Universe) -> None:
    chapter("An agent that answers")
    tell("What `dgent chat` does, with a scripted model. Every step is in the store before the next begins:")
    answer = ""
    async with AgentRuntime(u, "scout", model=ScriptedModel(SCRIPT)) as agent:
        for asked in ("The page takes 900 ms.", "Make it fast.", "Did an index help?"):
            tell(paint(f"you: {asked}", bold=True))
            async for event in agent.respond(asked):
                if isinstance(event, ToolFinished):
                    show(f"scout calls {event.name}", "failed" if event.error else "done")
                    check(not event.error, f"{event.name} works: {event.text}")
                elif isinstance(event, Done):
                    answer = event.text
                    show("scout", answer)
        context = await agent.context()
    check(LESSON in answer, "the lesson of the abandoned attempt is found")
    check(
        [each.name for each in await Cupboard(u).crumbs.fetch()] == ["Make the page fast"], "its work is gone"
    )
    show(
        "the next call is shown",
        f"{context.tokens:,} tokens, {context['history'].tokens:,} of them this chat",
    )


async def feed(u: dgent.Universe) -> None:
    chapter("The feed")
    tell("Every commit since the first, in order, also those of other processes:")
    newest, last, by_author = await u.seq(), 0, Counter[str]()
    async for change in u.watch(since=0):
        assert change.seq is not None
        check(change.seq > last, "commits come in order")
        last = change.seq
        by_author[change.author] += 1
        if change.seq == newest:
            break
    show("commits by author", dict(by_author))
    show(f"the last, commit {change.seq}", f"{change.kind}: " + ", ".join(item.op for item in change.items))
    check(by_author["writer"] == 2 * TURNS, "every commit of the writers is in the feed")


async def log(u: dgent.Universe) -> None:
    """Show the log through a verb, as `dgent log` does."""
    chapter("The log")
    tell("What `dgent log -n 3` prints, newest first:")
    for line in render.draw(await invoke(u, "self.data.log", limit=3), paint):
        tell(line)


async def forget(u: dgent.Universe) -> str:
    chapter("Forget")
    secret = "the-password-is-" + os.urandom(4).hex()
    slip = await u.remember(Mark(secret, "scout"))
    check((await u.get(slip.id)).value.action == secret, "the secret is stored")
    gone = await u.forget(slip.id)
    left = await u.get(slip.id) is not None or await u.history(slip.id) != []
    check(gone.erased and not left, "the secret is forgotten")
    tell("A secret slipped in. It is gone: row, history, index and free pages.")
    return secret


async def story(folder: Path) -> None:
    file = folder / "memory.db"
    url = f"sqlite:///{file}"
    old = await last_year(url)
    async with dgent.open(url, author="scout") as u:
        u.register(MARK, BUDGET)
        id = await remember_and_recall(u)
        await upgrade_on_read(u, old)
        await conflict(u, id)
        await two_writers(u, url)
        await transaction(u)
        before = await undo(u)
        await history(u, id, before)
        await feed(u)
        await log(u)
        await block(u)
        await trail(u)
        await search(u)
        await chat(u)
        secret = await forget(u)
    # Looked at only now: a second open() of a live SQLite file would drop this process's locks.
    stored = b"".join(part.read_bytes() for part in folder.iterdir())
    check(secret.encode() not in stored and b"ship it" in stored, "the file has no byte of the secret")
    show("its bytes in the file", "none")


def play() -> None:
    """Show the whole story, on a temporary store."""
    print(paint.bold("dgent: an agent's story, on one SQLite file"))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(story(Path(folder)))
    print(
        "\n" + paint("Every step was checked as it was told.", fg="green", bold=True) + " Next: docs/start.md"
    )
    print("Talk to one: dgent chat --model anthropic:claude-sonnet-5-5   (or openai:..., or script:FILE)")
    print("Connect an agent: dgent mcp install claude-code   (or cursor, vscode, zed, codex, claude-desktop)")
    print("See what it knows in your browser: dgent studio")


if __name__ == "__main__" and sys.argv[1:2] == ["spend"]:
    asyncio.run(spend(sys.argv[2]))
