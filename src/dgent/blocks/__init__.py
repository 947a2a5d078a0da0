"""Memory documents of agents, with every version of them."""

from dgent.blocks import errors
from dgent.blocks.activity import Activity
from dgent.blocks.archive import Entry
from dgent.blocks.audit import Refusal
from dgent.blocks.block import Block, View
from dgent.blocks.budget import Context
from dgent.blocks.constellation import Agent, Group, Groups, Member, Roster
from dgent.blocks.diff import Diff, Difference
from dgent.blocks.folder.report import FileReport, FolderReport
from dgent.blocks.library import Library
from dgent.blocks.notice import Notice
from dgent.blocks.permit import Request
from dgent.blocks.redaction import Redaction
from dgent.blocks.search import Hit
from dgent.blocks.section import Section
from dgent.blocks.shape import Field, Shape
from dgent.blocks.shape import Section as SectionShape
from dgent.blocks.sharing import Share
from dgent.blocks.template import TEMPLATES, Template
from dgent.blocks.tools import Toolbox
from dgent.blocks.version import Branch, Version

__all__ = [
    "TEMPLATES",
    "Activity",
    "Agent",
    "Block",
    "Branch",
    "Context",
    "Diff",
    "Difference",
    "Entry",
    "Field",
    "FileReport",
    "FolderReport",
    "Group",
    "Groups",
    "Hit",
    "Library",
    "Member",
    "Notice",
    "Redaction",
    "Refusal",
    "Request",
    "Roster",
    "Section",
    "SectionShape",
    "Shape",
    "Share",
    "Template",
    "Toolbox",
    "Version",
    "View",
    "errors",
]
