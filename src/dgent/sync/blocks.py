"""Blocks for code without an event loop: `from dgent.sync.blocks import Library`.

The same names as in `dgent.blocks`; `Library`, its blocks and their sections block until they are answered.
"""

from __future__ import annotations

import inspect
from typing import Any

from dgent.blocks import (
    TEMPLATES,
    Activity,
    Agent,
    Branch,
    Context,
    Diff,
    Difference,
    Entry,
    Field,
    FileReport,
    FolderReport,
    Group,
    Hit,
    Member,
    Notice,
    Redaction,
    Refusal,
    Request,
    SectionShape,
    Shape,
    Share,
    Template,
    Version,
    View,
    block,
    errors,
    library,
)
from dgent.blocks.access import agents
from dgent.blocks.edit import editable
from dgent.errors import InputError
from dgent.sync.twin import Twin, make_twin
from dgent.sync.universe import Universe

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


def _init(self: Twin, universe: Any, agent: str, **options: Any) -> None:
    if not isinstance(universe, Universe):
        raise InputError(
            f"this Library takes a universe of dgent.sync, not a {type(universe).__name__}",
            hint="with dgent.open use dgent.blocks",
        )
    if inspect.iscoroutinefunction(options.get("consent")):
        raise InputError("dgent.sync takes plain functions, and this one is async", hint="use `def`")
    self._source = library.Library(universe._source, agent, **options)
    self._home = universe._home


def _twin(source: type, **instead: Any) -> Any:
    return make_twin(source, instead=instead, module=__name__)


Editable = _twin(editable.Editable)
Section = _twin(editable.Section)
Block = _twin(block.Block)
Roster = _twin(agents.Roster)
Groups = _twin(agents.Groups)
Library = _twin(library.Library, __init__=_init)
