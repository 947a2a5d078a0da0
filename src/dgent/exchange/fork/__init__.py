"""Forks: a store made from another one for experiments, to be merged back or deleted."""

from dgent.exchange.fork.create import Forked, fork, stamp
from dgent.exchange.fork.merging import ForkStatus, merge, status
from dgent.exchange.fork.origin import Origin, origin
from dgent.exchange.fork.report import BlockMerged, ForkClash, ForkMerged, NotMerged

__all__ = [
    "BlockMerged",
    "ForkClash",
    "ForkMerged",
    "ForkStatus",
    "Forked",
    "NotMerged",
    "Origin",
    "fork",
    "merge",
    "origin",
    "stamp",
    "status",
]
