"""Memory documents of agents, with every version of them."""

from dgent.blocks import errors
from dgent.blocks.block import Block, View
from dgent.blocks.diff import Diff, Difference
from dgent.blocks.library import Library, Request
from dgent.blocks.section import Section
from dgent.blocks.shape import Field, Shape
from dgent.blocks.shape import Section as SectionShape
from dgent.blocks.template import TEMPLATES, Template
from dgent.blocks.version import Branch, Version

__all__ = [
    "TEMPLATES",
    "Block",
    "Branch",
    "Diff",
    "Difference",
    "Field",
    "Library",
    "Request",
    "Section",
    "SectionShape",
    "Shape",
    "Template",
    "Version",
    "View",
    "errors",
]
