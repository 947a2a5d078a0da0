"""The tools that there are: which verbs each one groups, and under which names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

RoomName = Literal["blocks", "cupboard", "data", "everyday"]
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
    """One tool: its room, what it is for, and its operations by name; a single one may have no name.

    One that is `repeatable` changes nothing more when it is called again with the same arguments.
    """

    room: RoomName
    about: str
    operations: Mapping[str, VerbUse]
    repeatable: bool = False


def _same(noun: str, names: str) -> dict[str, VerbUse]:
    """Operations that are called as their verbs are."""
    return {name.replace("-", "_"): VerbUse(f"{noun}.{name}") for name in names.split()}


_NOT_NEW = ("value", "template", "document", "kind", "limit", "permission", "shared")
_NOT_EDIT = ("section", "owner", "expect", "message")
_NOT_FILTER = ("property", "owner")

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
    # -- everyday: few and short, for an agent that has other tools too ----------------------
    "memory": ToolGroup(
        "everyday",
        "Read your memory as it belongs into your context, and what others changed in it.",
        {"": VerbUse("block.render", {"changes": True}, ("referenced", "changes"))},
    ),
    "block_get": ToolGroup(
        "everyday",
        "Read one block of your memory, or one that you may see.",
        {"": VerbUse("block.get", hide=("section", "owner"))},
    ),
    "block_create": ToolGroup(
        "everyday",
        "Make a new block of memory; a pinned one is always in your context.",
        {"": VerbUse("block.create", {"pinned": True}, _NOT_NEW)},
        repeatable=True,
    ),
    "block_append": ToolGroup(
        "everyday",
        "Add text to the end of a block; begin with a line break for a new line.",
        {"": VerbUse("block.append", hide=(*_NOT_EDIT, "line", "value"), needs=("text",))},
    ),
    "block_replace": ToolGroup(
        "everyday",
        "Replace text in a block: at its first place, or at all.",
        {"": VerbUse("block.replace", hide=(*_NOT_EDIT, "nth", "regex"), needs=("new",))},
    ),
    "find": ToolGroup(
        "everyday",
        "Find anything by its words: memory, archive, work, lessons, records; the best result comes first.",
        {"": VerbUse("data.search", hide=("where", "author", "until", "as_of", "mode", "explain"), rows=20)},
    ),
    "remember": ToolGroup(
        "everyday",
        "Keep a fact, a decision or any JSON object as a record, to be found by its words.",
        {
            "": VerbUse(
                "data.put",
                {"schema": "agent.note"},
                ("author", "schema_version", "source", "expect", "key", "parent"),
            )
        },
    ),
    "work_ready": ToolGroup(
        "everyday",
        "List the work items that can be taken now, the next first.",
        {"": VerbUse("crumb.ready", {"limit": 20}, (*_NOT_FILTER, "explain"))},
    ),
    "work_add": ToolGroup(
        "everyday",
        "Add a work item, for you or for any other agent.",
        {"": VerbUse("crumb.add", {"state": "ready"}, ("property", "defer_until", "owner"))},
    ),
    "work_take": ToolGroup(
        "everyday",
        "Claim the next work item; no two agents get the same.",
        {"": VerbUse("crumb.take", hide=(*_NOT_FILTER, "lease"))},
    ),
    "work_end": ToolGroup(
        "everyday",
        "End a work item that you took, or say something about one.",
        {
            **{
                name: VerbUse(f"crumb.{name}", hide=("force", "token"))
                for name in ("done", "drop", "release")
            },
            "comment": VerbUse("metadata.comment"),
        },
    ),
    "trail": ToolGroup(
        "everyday",
        "Try something out: work items on a trail are kept together or given up together, with a lesson.",
        {
            "start": VerbUse("trail.start", hide=("property", "branches_from")),
            **_same("trail", "complete abandon get lessons"),
        },
    ),
}
"""Every tool by its name. What only the partner may do, and what works with files, is in none of them."""

SETS: dict[str, tuple[str, ...]] = {
    "everyday": tuple(name for name, group in GROUPS.items() if group.room == "everyday"),
    "memory": ("block", "block_edit", "archive"),
    "work": ("work",),
    "data": ("data",),
    "search": ("find",),
}
"""Tools by what they are for; `everyday` has the most used of all others."""
