"""Memory documents of agents, with every version of them."""

from dgent.blocks import errors
from dgent.blocks.block import Block, View
from dgent.blocks.diff import Diff, Difference
from dgent.blocks.library import Library, Request
from dgent.blocks.version import Branch, Version

__all__ = [
    "Block",
    "Branch",
    "Diff",
    "Difference",
    "Library",
    "Request",
    "Version",
    "View",
    "errors",
]
