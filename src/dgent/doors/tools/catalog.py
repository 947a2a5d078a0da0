"""The tools that there are: which verbs each one groups, and under which names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

RoomName = Literal["blocks", "cupboard", "data"]
ROOMS: tuple[RoomName, ...] = ("blocks", "cupboard", "data")


class VerbUse(NamedTuple):
    """One operation of a tool: its verb, and how the tool offers it.

    `preset` holds values that differ from the verb's own defaults, `hide` fields that a model cannot give,
    `needs` those that it must give although the verb has a default, and `rows` the most items of an answer.
    """

    verb: str
    preset: Mapping[str, Any] = {}
    hide: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    rows: int = 50


class ToolGroup(NamedTuple):
    """One tool: its room, what it is for, and its operations by name; a single one may have no name."""

    room: RoomName
    about: str
    operations: Mapping[str, VerbUse]


def _same(noun: str, names: str) -> dict[str, VerbUse]:
    """Operations that are called as their verbs are."""
    return {name.replace("-", "_"): VerbUse(f"{noun}.{name}") for name in names.split()}


GROUPS: dict[str, ToolGroup] = {
    "block": ToolGroup(
        "blocks",
        "Your memory blocks: make, read and manage them, and look at or go back to their versions.",
        {
            "create": VerbUse("block.create"),
            "list": VerbUse("block.list", {"shared": True}),
            "get": VerbUse("block.get"),
            **_same("block", "info describe rename pin unpin archive view share unshare delete restore"),
            # They are reported once, so none may be lost to a short answer.
            "notices": VerbUse("block.notices", {"mark": True}, ("mark",), rows=200),
            **_same("block", "history at diff rollback undo redo visit branches checkpoint checkpoints"),
        },
    ),
    "block_edit": ToolGroup(
        "blocks",
        "Change what a memory block says. Each call is one version; block undo takes it back.\n"
        "Prefer append, replace, edit_range and patch to write, which replaces everything: give it expect. "
        "append adds text as it is, so begin with a line break for a new line.",
        {
            "append": VerbUse("block.append", hide=("line",)),
            "write": VerbUse("block.write"),
            "replace": VerbUse("block.replace", needs=("new",)),
            "edit_range": VerbUse("block.edit", needs=("text",)),
            "patch": VerbUse("block.patch"),
            **_same("block", "set-field clear-field append-to-field remove-from-field increment"),
            **_same("block", "insert-item set-item move-item delete-item"),
            **_same("block", "add-node set-node move-node delete-node"),
        },
    ),
    "archive": ToolGroup(
        "blocks",
        "Your archive: texts put away for later, out of the context and found by their words.",
        {
            **_same("archive", "insert get search"),
            "delete": VerbUse("archive.delete", hide=("forget",)),
        },
    ),
    "search": ToolGroup(
        "blocks",
        "Find words in all blocks you may see and in your archive; the best result comes first.\n"
        "A result has the id and the label: block get reads a block, archive get an entry.",
        {"": VerbUse("block.search")},
    ),
    "work": ToolGroup(
        "cupboard",
        "Work items (crumbs) of all agents, and explorations (trails) that are kept or given up as a whole.\n"
        "ready lists what can be done, take claims the next for you; end it with done, drop or release.",
        {
            **_same("crumb", "ready take"),
            **{name: VerbUse(f"crumb.{name}", hide=("force",)) for name in ("done", "drop", "release")},
            **_same("crumb", "heartbeat add get"),
            "list": VerbUse("crumb.list", hide=("parent",)),
            **{name: VerbUse(f"crumb.{name}", hide=("force",)) for name in ("set", "state")},
            **_same("crumb", "delete blocked explain"),
            "comment": VerbUse("metadata.comment"),
            "explore": VerbUse("trail.start"),
            "list_trails": VerbUse("trail.list"),
            "get_trail": VerbUse("trail.get"),
            **_same("trail", "complete abandon lessons"),
        },
    ),
    "data": ToolGroup(
        "data",
        "Records that are kept with every version: remember something, find it, look back, undo.",
        {
            "put": VerbUse("data.put", hide=("author", "schema_version")),
            **_same("data", "get query search count list delete schemas history diff log get-commit undo"),
            **_same("data", "associate associated chain"),
        },
    ),
}
"""Every tool by its name. What only the partner may do, and what works with files, is in none of them."""
