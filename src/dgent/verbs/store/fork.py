"""Verbs for forks: constellations made from a store to try things in, then merged back or thrown away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from dgent.blocks.record import BLOCK
from dgent.config.places import constellation_folder, constellations
from dgent.errors import Busy, Conflict, Corrupt, DgentError, InputError, NotFound
from dgent.exchange import backup, folders
from dgent.exchange import fork as forks
from dgent.exchange.fork.origin import Scope, check_scope, identity, origin, require_origin
from dgent.exchange.fork.resolve import ANSWERS, AskConflict, Choice
from dgent.universe.position import position_of
from dgent.universe.universe import Universe
from dgent.universe.universe import open as open_universe
from dgent.verbs import parse
from dgent.verbs.context import Context
from dgent.verbs.data.record import DryRun
from dgent.verbs.registry import Ask, Items, NoInput, argument, option, verb
from dgent.verbs.store.constellation import check_free, describe, folder_of, making, remove, url_of

Name = Annotated[str, argument("the name of the fork", complete="constellation")]


class Fork(msgspec.Struct, frozen=True):
    """A constellation that is a fork: of which store, as of which of its commits, and what of it.

    `whole` is False of one that cannot be read, or was never finished; `problem` says why.
    """

    name: str
    path: str
    source: str
    source_name: str
    fork_point: int
    scope: str
    made_at: datetime | None
    whole: bool = True
    problem: str = ""


class MakeFork(Ask):
    """Input of `constellation.fork`."""

    to: Annotated[str, argument("the name of the fork: small letters, digits, - _ and .")]
    scope: Annotated[Scope, option("all, only the core blocks, or what was written since a time")] = "all"
    since: Annotated[str | None, option("that time, 2h for two hours ago, or the number of a commit")] = None


class NewFork(msgspec.Struct, frozen=True):
    """A fork that was made."""

    name: str
    path: str
    fork: str
    fork_point: int
    scope: str
    records: int
    blocks: int
    left_out: int = 0


@verb("constellation.fork", effect="append", errors=(InputError, NotFound, Conflict, Corrupt), local=True)
async def make(context: Context, ask: MakeFork) -> NewFork:
    """Make a new constellation from this store, to try things in and merge them back."""
    since = parse.point(ask.since, "since")
    scope: Scope = "since" if since is not None and ask.scope == "all" else ask.scope
    check_scope(scope, since)
    folder = constellation_folder(context.settings.places, ask.to)
    check_free(folder, ask.to)
    source = await context.universe()
    with making(folder, ask.to) as new:
        if scope == "all" and source.backend.name == "sqlite":
            done = await _copy_file(context, source, new)
        else:
            async with open_universe(url_of(new), author=source.author) as u:
                done = await forks.fork(
                    source,
                    u,
                    scope=scope,
                    since=since,
                    name=context.constellation or "",
                    progress=context.report,
                )
        folders.publish_folder(new, folder)
    path = describe(context, ask.to).path
    fields = (done.fork, done.seq, done.scope, done.records, done.blocks, done.left_out)
    return NewFork(ask.to, path, *fields)


async def _copy_file(context: Context, source: Universe, new: Path) -> forks.Forked:
    """Fork a whole SQLite store by copying its file."""
    whose = await identity(source)
    await backup.copy_into(source, context.folder, new, progress=context.report)
    await backup.make_independent(new)
    async with open_universe(url_of(new), author=source.author) as u:
        home = await position_of(source.backend)
        return await forks.stamp(u, whose, await u.seq(), name=context.constellation or "", home=home)


Label = Annotated[tuple[str, ...], option("only blocks with this label, or in this label folder", short="l")]
Owner = Annotated[
    tuple[str, ...], option("only what belongs to this agent; may be given more than once", complete="agent")
]
Conflicts = Annotated[Choice, option("what both sides changed: keep both, theirs, mine, or ask about each")]


class MergeFork(Ask):
    """Input of `constellation.merge`."""

    name: Name
    label: Label = ()
    owner: Owner = ()
    conflicts: Conflicts = "both"
    dry_run: DryRun = False


@verb("constellation.merge", effect="write", errors=(InputError, NotFound, Conflict, Corrupt), local=True)
async def merge(context: Context, ask: MergeFork) -> forks.ForkMerged:
    """Bring what was done in a fork back to this store; nothing is lost on either side."""
    target = await context.universe()
    async with _open(context, ask.name, target.author) as u:
        return await forks.merge(
            u,
            target,
            labels=ask.label,
            agents=ask.owner,
            conflicts=ask.conflicts,
            ask=_asker(context),
            dry_run=ask.dry_run,
            progress=context.report,
        )


def _asker(context: Context) -> AskConflict | None:
    """Return a function that asks the caller about a conflict; None where nobody can be asked."""
    choose = context.choose
    if choose is None:
        return None

    async def ask(clash: forks.ForkClash) -> str:
        name = clash.kept if clash.schema == BLOCK.name and clash.kept else clash.id
        return await choose(f"{name}: {clash.what}. Keep", ANSWERS)

    return ask


class PullFork(Ask):
    """Input of `fork.pull`."""

    name: Annotated[
        str, argument("the fork that catches up; without it, this store", complete="constellation")
    ] = ""
    source: Annotated[
        str, option("another fork to pull from; without it, home", name="from", complete="constellation")
    ] = ""
    label: Label = ()
    owner: Owner = ()
    conflicts: Conflicts = "both"
    dry_run: DryRun = False


@verb("fork.pull", effect="write", errors=(InputError, NotFound, Conflict, Corrupt), local=True)
async def pull(context: Context, ask: PullFork) -> forks.ForkMerged:
    """Bring a fork up to date with its home, or with another fork of that."""
    async with AsyncExitStack() as stack:
        if ask.name:
            here = None if ask.source else await context.universe()
            author = "system" if here is None else here.author
            fork = await stack.enter_async_context(_open(context, ask.name, author))
        else:
            here, fork = None, await context.universe()
        if here is None:
            name = ask.source or await _name_home(fork)
            here = await stack.enter_async_context(_open(context, name, fork.author))
        return await forks.pull(
            fork,
            here,
            labels=ask.label,
            agents=ask.owner,
            conflicts=ask.conflicts,
            ask=_asker(context),
            dry_run=ask.dry_run,
            progress=context.report,
        )


async def _name_home(fork: Universe) -> str:
    """Return the name of the constellation that a fork was made from; raises InputError if it has none."""
    made = await require_origin(fork)
    if not made.name:
        raise InputError(
            "the home of this fork is not a constellation, so it cannot be found by name",
            hint="run it where home is: dgent fork pull NAME",
            field="name",
        )
    return made.name


@verb("fork.list", effect="read", local=True)
async def list_(context: Context, ask: NoInput) -> Items[Fork]:
    """List the forks on this machine."""
    found = [await _describe(context, name) for name in constellations(context.settings.places)]
    return Items([each for each in found if each is not None])


async def _describe(context: Context, name: str) -> Fork | None:
    """Return the fork that a constellation is; None when it is not a fork."""
    path = str(constellation_folder(context.settings.places, name))
    try:
        async with _open(context, name, "system") as u:
            made = await origin(u)
    except DgentError as error:
        return Fork(name, path, "", "", 0, "", None, False, error.message)
    if made is None:
        return None
    problem = "" if made.whole else "it was never finished"
    rest = (made.source, made.name, made.seq, made.scope, made.made_at, made.whole, problem)
    return Fork(name, path, *rest)


class OneFork(Ask):
    """Input of `fork.status`."""

    name: Name


@verb("fork.status", effect="read", errors=(NotFound, Conflict, Corrupt), local=True)
async def status(context: Context, ask: OneFork) -> forks.ForkStatus:
    """Show how far a fork and this store are apart, and what a merge would do."""
    source = await context.universe()
    async with _open(context, ask.name, source.author) as u:
        return await forks.status(u, source)


class DeleteFork(Ask):
    """Input of `fork.delete`."""

    name: Name
    dry_run: DryRun = False


class ForkDeletion(msgspec.Struct, frozen=True):
    """A fork that is gone."""

    name: str
    path: str
    size_bytes: int
    dry_run: bool = False


@verb("fork.delete", effect="destroy", errors=(NotFound, Conflict, Busy), local=True)
async def delete(context: Context, ask: DeleteFork) -> ForkDeletion:
    """Throw a fork away with everything in it; the store it was made from knows nothing of it."""
    async with _open(context, ask.name, "system") as u:
        if await origin(u) is None:
            raise NotFound(f"{ask.name!r} is not a fork", hint=f"dgent constellation delete {ask.name}")
    deleted = describe(context, ask.name)
    if not ask.dry_run:
        remove(context, ask.name)
    return ForkDeletion(deleted.name, deleted.path, deleted.size_bytes, ask.dry_run)


@asynccontextmanager
async def _open(context: Context, name: str, author: str) -> AsyncIterator[Universe]:
    async with open_universe(url_of(folder_of(context, name)), author=author) as u:
        yield u
