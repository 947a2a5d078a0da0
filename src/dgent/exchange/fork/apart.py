"""How far a fork and the store it was made from are apart."""

from __future__ import annotations

from datetime import datetime

import msgspec

from dgent.exchange.fork.merging import merge
from dgent.exchange.fork.origin import check_trust, known_origin
from dgent.exchange.fork.report import ForkMerged
from dgent.universe.universe import Universe


class Apart(msgspec.Struct, frozen=True):
    """A fork beside its source: how many commits came since the fork point, and what a merge would do."""

    fork: str
    source: str
    name: str
    scope: str
    fork_point: int
    made_at: datetime
    source_commits: int
    merge: ForkMerged


async def status(fork: Universe, source: Universe, *, trust: str = "partner") -> Apart:
    """How far a fork and its source are apart; nothing is changed."""
    check_trust(trust, "status")
    made = await known_origin(fork)
    would = await merge(fork, source, dry_run=True, trust=trust)
    later = max(0, await source.seq() - made.seq)
    return Apart(made.fork, made.source, made.name, made.scope, made.seq, made.made_at, later, would)
