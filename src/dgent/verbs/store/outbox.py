"""Verbs for the outbox: commits that wait for an unavailable store, and those it refused."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from dgent import clock
from dgent.errors import NotFound, Unavailable
from dgent.store.offline.backend import DegradableBackend
from dgent.store.offline.entry import SHOWN, show_op
from dgent.verbs.context import Context
from dgent.verbs.data.record import DryRun
from dgent.verbs.registry import Ask, NoInput, argument, verb


class WaitingCommit(msgspec.Struct, frozen=True):
    """A commit that waits for the store."""

    key: str
    at: datetime
    author: str
    note: str | None
    ops: list[dict[str, Any]]


class RefusedCommit(msgspec.Struct, frozen=True):
    """A commit that the store refused, with why; `ours` is what it wanted, `theirs` what was there."""

    id: str
    key: str
    made_at: str
    author: str
    note: str | None
    code: str
    reason: str
    ours: list[dict[str, Any]]
    theirs: list[dict[str, Any] | None]


class OutboxInfo(msgspec.Struct, frozen=True):
    """An outbox; `outbox` is None for a store without `degrade`."""

    outbox: str | None
    degraded: bool
    pending: list[WaitingCommit]
    conflicts: list[RefusedCommit]


@verb("outbox.list", effect="read", local=True)
async def list_(context: Context, ask: NoInput) -> OutboxInfo:
    """List the commits that wait for the store, and those that it refused."""
    return await _list_outbox(context)


@verb("outbox.replay", effect="write", errors=(Unavailable,), local=True)
async def replay(context: Context, ask: NoInput) -> OutboxInfo:
    """Reconnect to the store now, and replay the waiting commits."""
    backend = await _backend(context)
    if backend is not None:
        await backend.reconnect()
    return await _list_outbox(context)


class Discard(Ask):
    """Input of `outbox.discard`."""

    id: Annotated[str, argument("the conflict's id, or the beginning of it")]
    dry_run: DryRun = False


@verb("outbox.discard", effect="destroy", errors=(NotFound,), local=True)
async def discard(context: Context, ask: Discard) -> RefusedCommit:
    """Discard a commit that the store refused, for good."""
    found = [each for each in (await _list_outbox(context)).conflicts if each.id.startswith(ask.id)]
    backend = await _backend(context)
    if len(found) != 1 or backend is None:
        hint = "give more of it" if found else "`dgent outbox list` shows them"
        raise NotFound(f"there is no conflict {ask.id!r}", hint=hint, id=ask.id)
    if not ask.dry_run:
        await backend.outbox.discard(found[0].id)
    return found[0]


async def _backend(context: Context) -> DegradableBackend | None:
    backend = (await context.universe()).backend
    return backend if isinstance(backend, DegradableBackend) else None


async def _list_outbox(context: Context) -> OutboxInfo:
    backend = await _backend(context)
    if backend is None:
        return OutboxInfo(None, False, [], [])
    outbox = backend.outbox
    await outbox.refresh()
    pending = [
        WaitingCommit(
            entry.key,
            clock.from_us(entry.at),
            entry.author,
            entry.note,
            [show_op(step) for step in entry.steps[:SHOWN]],
        )
        for entry in outbox.entries()
    ]
    clashes = sorted(outbox.clashes.values(), key=lambda datum: datum.seq or 0)
    fields = RefusedCommit.__struct_fields__[1:]
    conflicts = [RefusedCommit(datum.id, **{name: datum.data[name] for name in fields}) for datum in clashes]
    return OutboxInfo(outbox.path, backend.degradation is not None, pending, conflicts)
