"""Forks: a store made from another one for experiments, to be merged back or deleted."""

from dgent.exchange.fork.create import Forked, fork, stamp
from dgent.exchange.fork.merging import ForkStatus, merge, status
from dgent.exchange.fork.origin import Origin, origin
from dgent.exchange.fork.pull import pull
from dgent.exchange.fork.report import BlockMerged, ForkClash, ForkMerged, NotMerged
from dgent.exchange.fork.resolve import AskConflict, Choice

__all__ = [
    "AskConflict",
    "BlockMerged",
    "Choice",
    "ForkClash",
    "ForkMerged",
    "ForkStatus",
    "Forked",
    "NotMerged",
    "Origin",
    "fork",
    "merge",
    "origin",
    "pull",
    "stamp",
    "status",
]
