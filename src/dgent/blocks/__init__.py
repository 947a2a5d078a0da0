"""Memory documents of agents, with every version of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgent.blocks import errors
from dgent.system.lazy import load_on_use

if TYPE_CHECKING:
    from dgent.blocks.access.agents import Agent, Group, Groups, Member, Roster
    from dgent.blocks.access.audit import Refusal
    from dgent.blocks.access.permission import Request
    from dgent.blocks.access.sharing import Share
    from dgent.blocks.block import Block
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
    from dgent.blocks.history.version import Branch, Version, View
    from dgent.blocks.library import Library

_HOME = {
    "Activity": "dgent.blocks.context.activity",
    "Agent": "dgent.blocks.access.agents",
    "Block": "dgent.blocks.block",
    "Branch": "dgent.blocks.history.version",
    "Context": "dgent.blocks.context.budget",
    "Diff": "dgent.blocks.document.diff",
    "Difference": "dgent.blocks.document.diff",
    "Entry": "dgent.blocks.context.archive",
    "Field": "dgent.blocks.document.shape",
    "FileReport": "dgent.blocks.folder.round",
    "FolderReport": "dgent.blocks.folder.round",
    "Group": "dgent.blocks.access.agents",
    "Groups": "dgent.blocks.access.agents",
    "Hit": "dgent.blocks.context.search",
    "Library": "dgent.blocks.library",
    "Member": "dgent.blocks.access.agents",
    "Notice": "dgent.blocks.context.notices",
    "Redaction": "dgent.blocks.document.redact",
    "Refusal": "dgent.blocks.access.audit",
    "Request": "dgent.blocks.access.permission",
    "Roster": "dgent.blocks.access.agents",
    "Section": "dgent.blocks.edit.editable",
    "SectionShape": "dgent.blocks.document.shape",
    "Shape": "dgent.blocks.document.shape",
    "Share": "dgent.blocks.access.sharing",
    "TEMPLATES": "dgent.blocks.document.template",
    "Template": "dgent.blocks.document.template",
    "Version": "dgent.blocks.history.version",
    "View": "dgent.blocks.history.version",
}

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

__getattr__ = load_on_use(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
