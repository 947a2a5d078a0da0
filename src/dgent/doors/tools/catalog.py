"""The tools that there are: which verbs each one groups, and under which names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Room = Literal["blocks", "cupboard", "data"]
ROOMS: tuple[Room, ...] = ("blocks", "cupboard", "data")


class Entry(NamedTuple):
    """One operation of a tool: its verb, and how the tool offers it.

    `preset` holds values that differ from the verb's own defaults, `hide` fields that a model cannot give,
    `needs` those that it must give although the verb has a default, and `rows` the most items of an answer.
    """

    verb: str
    preset: Mapping[str, Any] = {}
    hide: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    rows: int = 50


class Group(NamedTuple):
    """One tool: its room, what it is for, and its operations by name; a single one may have no name."""

    room: Room
    about: str
    operations: Mapping[str, Entry]


def _same(noun: str, names: str) -> dict[str, Entry]:
    """Operations that are called as their verbs are."""
    return {name.replace("-", "_"): Entry(f"{noun}.{name}") for name in names.split()}


GROUPS: dict[str, Group] = {
    "block": Group(
        "blocks",
        "Your memory blocks: make, read and manage them, and look at or go back to their versions.",
        {
            "create": Entry("block.create"),
            "list": Entry("block.list", {"shared": True}),
            "load": Entry("block.show"),
            **_same("block", "info describe rename pin unpin archive view share unshare delete restore"),
            # They are reported once, so none may be lost to a short answer.
            "notices": Entry("block.notices", {"mark": True}, ("mark",), rows=200),
            **_same("block", "history at diff rollback undo redo visit branches checkpoint checkpoints"),
        },
    ),
    "block_edit": Group(
        "blocks",
        "Change what a memory block says. Each call is one version; block undo takes it back.\n"
        "Prefer append, replace, edit_range and patch to write, which replaces everything: give it expect. "
        "append adds text as it is, so begin with a line break for a new line.",
        {
            "append": Entry("block.append", hide=("line",)),
            "write": Entry("block.write"),
            "replace": Entry("block.replace", needs=("new",)),
            "edit_range": Entry("block.edit", needs=("text",)),
            "patch": Entry("block.patch"),
            **_same("block", "set-field clear-field append-to-field remove-from-field increment"),
            **_same("block", "insert-item set-item move-item delete-item"),
            **_same("block", "add-node set-node move-node delete-node"),
        },
    ),
    "archive": Group(
        "blocks",
        "Your archive: texts put away for later, out of the context and found by their words.",
        {
            **_same("archive", "insert read search"),
            "delete": Entry("archive.delete", hide=("forget",)),
        },
    ),
    "search": Group(
        "blocks",
        "Find words in all blocks you may see and in your archive; the best result comes first.\n"
        "A result has the id and the label: block load reads a block, archive read an entry.",
        {"": Entry("block.search")},
    ),
    "work": Group(
        "cupboard",
        "Work items (crumbs) of all agents, and explorations (trails) that are kept or given up as a whole.\n"
        "ready lists what can be done, take claims the next for you; end it with done, drop or release.",
        {
            **_same("crumb", "ready take"),
            **{name: Entry(f"crumb.{name}", hide=("force",)) for name in ("done", "drop", "release")},
            **_same("crumb", "heartbeat add get"),
            "list": Entry("crumb.list", hide=("parent",)),
            **{name: Entry(f"crumb.{name}", hide=("force",)) for name in ("set", "state")},
            **_same("crumb", "delete blocked explain"),
            "comment": Entry("metadata.comment"),
            "explore": Entry("trail.start"),
            "trails": Entry("trail.list"),
            "trail": Entry("trail.show"),
            **_same("trail", "complete abandon lessons"),
        },
    ),
    "data": Group(
        "data",
        "Records that are kept with every version: remember something, find it, look back, undo.",
        {
            "put": Entry("data.put", hide=("author", "schema_version")),
            **_same("data", "get query count list delete schemas history diff log show undo"),
            **_same("data", "associate associated chain"),
        },
    ),
}
"""Every tool by its name. What only the partner may do, and what works with files, is in none of them."""
