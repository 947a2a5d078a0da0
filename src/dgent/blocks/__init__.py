"""Memory documents of agents, with every version of them."""

from dgent.blocks import errors
from dgent.blocks.access.agents import Agent, Group, Groups, Member, Roster
from dgent.blocks.access.audit import Refusal
from dgent.blocks.access.permission import Request
from dgent.blocks.access.sharing import Share
from dgent.blocks.block import Block, View
from dgent.blocks.context.activity import Activity
from dgent.blocks.context.archive import Entry
from dgent.blocks.context.budget import Context
from dgent.blocks.context.notices import Notice
from dgent.blocks.context.search import Hit
from dgent.blocks.document.diff import Diff, Difference
from dgent.blocks.document.redact import Redaction
from dgent.blocks.document.shape import Field, SectionShape, Shape
from dgent.blocks.document.template import TEMPLATES, Template
from dgent.blocks.edit.editable import Section
from dgent.blocks.folder.round import FileReport, FolderReport
from dgent.blocks.history.version import Branch, Version
from dgent.blocks.library import Library

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
    "Version",
    "View",
    "errors",
]
