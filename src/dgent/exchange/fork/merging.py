"""Merge a fork back: blocks by their changes, archival entries by union, the rest three-way.

Nothing is lost: where the changes of both sides cannot be combined, both are kept and reported. Merging again
merges only what is new since. The next merge completes an interrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from dgent.errors import Conflict
from dgent.exchange.fork import baseline
from dgent.exchange.fork.ancestry import Ancestry
from dgent.exchange.fork.filter import MergeFilter
from dgent.exchange.fork.origin import Origin, check_trust, identity, require_origin
from dgent.exchange.fork.report import FORK, ForkMerged
from dgent.exchange.fork.resolve import AskConflict, Choice, Resolver
from dgent.exchange.fork.run import MergeRun, MergeSettings
from dgent.system.progress import Progress
from dgent.universe.position import is_in_past, position_of
from dgent.universe.universe import Universe


async def merge(
    fork: Universe,
    target: Universe,
    *,
    labels: Sequence[str] = (),
    agents: Sequence[str] = (),
    conflicts: Choice = "both",
    ask: AskConflict | None = None,
    dry_run: bool = False,
    trust: str = "partner",
    progress: Progress | None = None,
) -> ForkMerged:
    """Merge the changes of a fork into the store it was made from, or report what that would do.

    Versions of blocks keep their authors, messages and times; commits have the target's author. `labels` and
    `agents` restrict it to some blocks, as in `pull`; so do `conflicts` and `ask` what both sides changed:
    `both` keeps the fork's version beside, and `conflicts` in the answer says where.
    """
    check_trust(trust, "merge")
    made = await require_origin(fork)
    await check_target(made, target)
    base, home = await baseline.load(fork)
    # If it was restored since, merged changes may be gone: compare the histories of both sides.
    ancestry = None if await is_in_past(target.backend, home) else Ancestry(fork, target)
    base = {id: each._replace(synced=each.version) for id, each in base.items()}
    note = f"merge of fork {made.fork}"
    narrow = MergeFilter(labels, agents)
    how = MergeSettings(note, FORK, dry_run, Resolver(conflicts, ask), narrow, progress)
    run = MergeRun(fork, target, base, ancestry, how)
    await run.run()
    if not dry_run:
        kept = {id: each for id, each in base.items() if not run.is_settled(id)}
        now = {id: each for id, each in run.next.items() if run.is_settled(id)}
        await baseline.save(fork, now | kept, await position_of(target.backend))
    return await run.report(made.fork, made.seq)


async def check_target(made: Origin, target: Universe) -> None:
    """Refuse to merge a fork into another store than its source; raises Conflict."""
    found = await identity(target)
    if found != made.source:
        whose = f"the constellation {made.name!r}" if made.name else f"the store {made.source}"
        raise Conflict(
            f"this is not a fork of the store {found}: it was made from {whose}",
            hint=f"merge it there: -C {made.name}" if made.name else "",
            source=made.source,
        )


class ForkStatus(msgspec.Struct, frozen=True):
    """A fork compared with its source: the commits since the fork point, and what a merge would do."""

    fork: str
    source: str
    name: str
    scope: str
    fork_point: int
    made_at: datetime
    source_commits: int
    merge: ForkMerged


async def status(fork: Universe, source: Universe, *, trust: str = "partner") -> ForkStatus:
    """Compare a fork with its source; nothing is changed."""
    check_trust(trust, "status")
    made = await require_origin(fork)
    would = await merge(fork, source, dry_run=True, trust=trust)
    later = max(0, await source.seq() - made.seq)
    return ForkStatus(made.fork, made.source, made.name, made.scope, made.seq, made.made_at, later, would)
