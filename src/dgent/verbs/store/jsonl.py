"""Verbs for a store that is a folder of text files: its canonical form, and git."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec

from dgent.errors import InputError, NotFound, Unsupported
from dgent.store.jsonl.backend import JSONLBackend
from dgent.store.jsonl.compact import Compaction
from dgent.store.jsonl.git import FileMerge, GitSetup, merge_files, set_up_git
from dgent.store.jsonl.inspect import describe_conflict, hint_of, level_of, settle_hint
from dgent.store.upkeep import Level
from dgent.system.threads import in_thread
from dgent.universe.universe import open as open_universe
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, argument, option, verb

Where = Annotated[str | None, argument("the folder; without it the store of this call", complete="file")]


@asynccontextmanager
async def _folder(context: Context, folder: str | None) -> AsyncIterator[JSONLBackend]:
    """Yield the JSONL store of the folder, or of the call; raises Unsupported for other engines."""
    if folder is None:
        yield _check_engine((await context.universe()).backend)
        return
    async with open_universe(f"jsonl:{folder}") as u:
        yield _check_engine(u.backend)


def _check_engine(backend: object) -> JSONLBackend:
    if not isinstance(backend, JSONLBackend):
        raise Unsupported("this store is not a JSONL folder", hint="give the folder of one, or --url jsonl:…")
    return backend


class CheckFolder(Ask):
    """Input of `jsonl.check`."""

    folder: Where = None


class LineFinding(msgspec.Struct, frozen=True):
    """A line that a store would not write so; it is kept. A `warning` is about lines that never counted."""

    file: str
    line: int
    kind: str
    text: str
    level: Level
    hint: str


class ConflictInfo(msgspec.Struct, frozen=True):
    """A record that two copies changed in the same `fields`; `rev` is the version that counts now."""

    id: str
    rev: int
    fields: list[str]
    text: str
    hint: str


class FolderCheck(msgspec.Struct, frozen=True):
    """The problems of a folder; `healthy` when all that was acknowledged is there and no conflict is open."""

    healthy: bool
    folder: str
    odd: list[LineFinding]
    conflicts: list[ConflictInfo]


@verb("jsonl.check", effect="read", errors=(Unsupported,), local=True)
async def check(context: Context, ask: CheckFolder) -> FolderCheck:
    """List lines that cannot be read, do not count or were edited, and records changed in two copies."""
    async with _folder(context, ask.folder) as backend:
        reports, conflicts = await backend.check_lines()
        return FolderCheck(
            not conflicts and all(level_of(each) != "problem" for each in reports),
            backend.folder,
            [LineFinding(*each, level_of(each), hint_of(each)) for each in reports],
            [
                ConflictInfo(each.id, each.rev, list(each.fields), describe_conflict(each), settle_hint(each))
                for each in conflicts
            ],
        )


class SettleRecord(Ask):
    """Input of `jsonl.settle`."""

    id: Annotated[str, argument("the id of the record")]
    folder: Where = None


class SettleResult(msgspec.Struct, frozen=True):
    """A record whose conflict is settled, and the version that says so."""

    id: str
    rev: int


@verb("jsonl.settle", effect="write", errors=(NotFound, Unsupported), local=True)
async def settle(context: Context, ask: SettleRecord) -> SettleResult:
    """Accept a record as it is that two copies changed in the same fields."""
    author = (await context.universe()).author if ask.folder is None else "system"
    async with _folder(context, ask.folder) as backend:
        return SettleResult(ask.id, await backend.settle(ask.id, author))


class CompactFolder(Ask):
    """Input of `jsonl.compact`."""

    folder: Where = None
    history: Annotated[bool, option("keep the old versions")] = False


def _keeps_history(ask: CompactFolder) -> Effect | None:
    return "write" if ask.history else None


@verb("jsonl.compact", effect="destroy", lighter=_keeps_history, errors=(Unsupported,), local=True)
async def compact(context: Context, ask: CompactFolder) -> Compaction:
    """Rewrite the files sorted by id, with one line for each record."""
    async with _folder(context, ask.folder) as backend:
        return await backend.rewrite(history=ask.history)


class MergeDriver(Ask):
    """Input of `jsonl.merge-driver`."""

    base: Annotated[str, argument("the common ancestor's version, git's %O", complete="file")]
    ours: Annotated[str, argument("our version, which becomes the merged one, git's %A", complete="file")]
    theirs: Annotated[str, argument("the other version, git's %B", complete="file")]
    path: Annotated[str, argument("the file's name in the repository, git's %P")] = "records.jsonl"


@verb("jsonl.merge-driver", effect="write", errors=(InputError,), local=True)
async def merge_driver(context: Context, ask: MergeDriver) -> FileMerge:
    """Merge three versions of a file of lines; git calls this."""
    return await in_thread(lambda _: merge_files(ask.base, ask.ours, ask.theirs, ask.path))


class SetUp(Ask):
    """Input of `jsonl.git-setup`."""

    folder: Where = None


@verb("jsonl.git-setup", effect="write", errors=(NotFound, Unsupported), local=True)
async def set_up(context: Context, ask: SetUp) -> GitSetup:
    """Make git merge the files of a store line by line."""
    async with _folder(context, ask.folder) as backend:
        return await in_thread(lambda _: set_up_git(backend.folder))
