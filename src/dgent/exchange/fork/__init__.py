"""Forks: a store made from another one to try things in, and merged back or thrown away."""

from dgent.exchange.fork.create import Forked, fork, stamp
from dgent.exchange.fork.merging import Apart, merge, status
from dgent.exchange.fork.origin import Origin, origin
from dgent.exchange.fork.report import BlockMerged, ForkClash, ForkMerged, NotMerged

__all__ = [
    "Apart",
    "BlockMerged",
    "ForkClash",
    "ForkMerged",
    "Forked",
    "NotMerged",
    "Origin",
    "fork",
    "merge",
    "origin",
    "stamp",
    "status",
]
