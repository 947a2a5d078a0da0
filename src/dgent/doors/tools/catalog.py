"""The tools that there are: which verbs each one groups, and under which names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

RoomName = Literal["blocks", "cupboard", "data", "messages", "everyday"]
ROOMS: tuple[RoomName, ...] = ("blocks", "cupboard", "data", "messages")
USUAL = ROOMS[:3]
"""The rooms of a toolbox that is asked for none."""


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

    One that is `repeatable` changes nothing more when it is called again with the same arguments. Where
    `about` explains the operations, `says` has the descriptions of arguments that would be long otherwise.
    """

    room: RoomName
    about: str
    operations: Mapping[str, VerbUse]
    repeatable: bool = False
    says: Mapping[str, str] | None = None


def _same(noun: str, names: str) -> dict[str, VerbUse]:
    """Operations that are called as their verbs are."""
    return {name.replace("-", "_"): VerbUse(f"{noun}.{name}") for name in names.split()}


def _hide(fields: tuple[str, ...], noun: str, names: str) -> dict[str, VerbUse]:
    """Operations that are called as their verbs are, without some fields."""
    return {name: use._replace(hide=fields) for name, use in _same(noun, names).items()}


_OWNER = ("owner",)  # a label may be owner/label
_NOT_NEW = ("value", "template", "document", "kind", "limit", "permission", "shared")
_NOT_EDIT = ("section", "owner", "expect", "message")
_NOT_FILTER = ("property", "owner")
_NOT_NEW_WORK = (
    *("property", "defer_until", "owner", "parent"),
    *("blocks", "related", "duplicate_of", "supersedes", "discovered_from"),
)

GROUPS: dict[str, ToolGroup] = {
    "block": ToolGroup(
        "blocks",
        "Your memory blocks, and their versions. create, list, get, info, rename, delete, restore; describe: "
        "change kind, limit, purpose; pin, unpin: keep it in the context or not; archive: only search finds "
        "it; view: show some lines of it in the context; share, unshare; notices: what others changed; "
        "history, at, diff; rollback: to a version; undo, redo; branches, visit: of the tree of "
        "edits; checkpoint: name this version; checkpoints.",
        {
            "create": VerbUse("block.create"),
            "list": VerbUse("block.list", {"shared": True}),
            "get": VerbUse("block.get", hide=_OWNER),
            **_hide(_OWNER, "block", "info describe rename pin unpin archive view share unshare delete"),
            **_same("block", "restore"),
            # They are reported once, so none may be lost to a short answer.
            "notices": VerbUse("block.notices", {"mark": True}, ("mark",), rows=200),
            **_hide(_OWNER, "block", "history at diff rollback undo redo visit"),
            **_hide(_OWNER, "block", "branches checkpoint checkpoints"),
        },
        says={
            "label": "its label, owner/label, or id",
            "text": "create: its first text",
            "value": "create: its first content, if it is not a text",
            "template": "create: persona, human, scratchpad, organization, partner_profile, task_list, "
            "observation_log",
            "document": "create: text, map, list, log, tree, counter",
            "description": "what belongs into it",
            "kind": "core: always in the context; working: if pinned; archival: by search",
            "limit": "characters it may have; history: rows",
            "permission": "what may be done to it; share: what they may do",
            "unpinned": "create: leave it out of the context",
            "shared": "create, restore: one of all agents; list: those of others too",
            "folder": "list: labels in this folder",
            "offset": "go on from here in a long answer",
            "section": "of a composite",
            "lines": "get: 5-9, with numbers; view: how many",
            "to": "the new label",
            "start": "view: the first line",
            "with_agent": "share, unshare: who",
            "with_group": "share, unshare: or a group",
            "version": "a number or a checkpoint; at: or a time",
            "before": "diff: an older version",
            "after": "diff: a newer one",
            "message": "rollback: why",
            "expect": "the version it must be at",
            "name": "checkpoint: its name",
        },
    ),
    "block_edit": ToolGroup(
        "blocks",
        "Change what a memory block says. Each call is one version; block undo takes it back.\n"
        "Texts: append (as it is: begin with a line break for a new line), replace, insert (lines), "
        "edit_range (lines), edit_many (one version), patch (unified diff), write (all of it: give expect). "
        "Maps: set_field, clear_field, append_to_field, remove_from_field. Counters: increment. "
        "Lists: append, insert_item, set_item, move_item, delete_item. "
        "Trees: add_node, set_node, move_node, delete_node.",
        {
            "append": VerbUse("block.append", hide=(*_OWNER, "line")),
            "write": VerbUse("block.write", hide=_OWNER),
            "replace": VerbUse("block.replace", hide=_OWNER, needs=("new",)),
            "insert": VerbUse("block.insert", hide=_OWNER),
            "edit_range": VerbUse("block.edit", hide=_OWNER, needs=("text",)),
            "edit_many": VerbUse("block.edit-many", hide=_OWNER),
            **_hide(_OWNER, "block", "patch"),
            **_hide(_OWNER, "block", "set-field clear-field append-to-field remove-from-field increment"),
            **_hide(_OWNER, "block", "insert-item set-item move-item delete-item"),
            **_hide(_OWNER, "block", "add-node set-node move-node delete-node"),
        },
        says={
            "label": "its label, owner/label, or id",
            "section": "of a composite",
            "message": "why you change it",
            "expect": "the version it must be at",
            "text": "the new text; none removes lines",
            "value": "the item, field or node; any JSON",
            "old": "must be there once, unless all",
            "new": "what comes instead",
            "all": "replace every match",
            "nth": "replace this match only",
            "regex": "old is a pattern",
            "line": "insert behind it; 0: the top",
            "start": "the first line, from 1",
            "end": "the last line",
            "edits": "list of {old, new, all}, {line, text} or {start, end, text}",
            "patch": "the diff",
            "field": "its name",
            "place": "of an item, from 1; -1: the last",
            "amount": "may be below 0",
            "to": "the new place",
            "parent": "the node above; none: the top",
            "node": "its id",
        },
    ),
    "archive": ToolGroup(
        "blocks",
        "Your archive: texts out of the context, found by their words. insert, get, search, delete.",
        {
            **_same("archive", "insert get search"),
            "delete": VerbUse("archive.delete", hide=("forget",)),
        },
        says={
            "text": "insert: the text",
            "tag": "a word to find it by",
            "id": "the entry's id",
            "offset": "go on from here in a long answer",
            "query": "search: words",
            "limit": "search: at most so many",
        },
    ),
    "search": ToolGroup(
        "blocks",
        "Find words in all blocks you may see and in your archive; the best result comes first.\n"
        "A result has the id and the label: block get reads a block, archive get an entry.",
        {"": VerbUse("block.search", hide=("owner",))},
        says={
            "query": "the words",
            "kind": "only these; entry: the archive",
            "tag": "entries with this word",
            "limit": "at most so many",
        },
    ),
    "work": ToolGroup(
        "cupboard",
        "Work items (crumbs) of all agents, and explorations (trails) that are kept or given up as a whole.\n"
        "ready lists what can be done, take claims the next for you; end it with done, drop or release.",
        {
            "ready": VerbUse("crumb.ready"),
            "take": VerbUse("crumb.take", hide=("force", "next")),
            **{
                name: VerbUse(f"crumb.{name}", hide=("force",))
                for name in ("done", "drop", "release", "reopen")
            },
            "heartbeat": VerbUse("crumb.heartbeat"),
            "add": VerbUse("crumb.add"),
            "get": VerbUse("crumb.get"),
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
            "put": VerbUse("data.put", hide=("author", "schema_version", "content")),
            **_same("data", "get query search count list delete schemas history diff log get-commit undo"),
            **_same("data", "associate associated chain"),
        },
    ),
    # -- everyday: few and short, for an agent that has other tools too ----------------------
    "memory": ToolGroup(
        "everyday",
        "Read your memory as it belongs into your context, and what others changed in it.",
        {"": VerbUse("block.render", {"changes": True}, ("referenced", "changes", "as_of"))},
    ),
    "block_get": ToolGroup(
        "everyday",
        "Read one block of your memory, or one that you may see.",
        {"": VerbUse("block.get", hide=("section", "owner", "as_of"))},
    ),
    "block_create": ToolGroup(
        "everyday",
        "Make a new block of memory; it is in your context from then on.",
        {"": VerbUse("block.create", hide=_NOT_NEW)},
        repeatable=True,
    ),
    "block_append": ToolGroup(
        "everyday",
        "Add text to the end of a block; begin with a line break for a new line.",
        {"": VerbUse("block.append", hide=(*_NOT_EDIT, "line", "value"), needs=("text",))},
    ),
    "block_replace": ToolGroup(
        "everyday",
        "Replace text in a block that is there once, or at all its places.",
        {"": VerbUse("block.replace", hide=(*_NOT_EDIT, "nth", "regex"), needs=("new",))},
    ),
    "find": ToolGroup(
        "everyday",
        "Find anything by its words: memory, archive, work, lessons, records; best first.",
        {"": VerbUse("data.search", hide=("where", "author", "until", "as_of", "mode", "explain"), rows=20)},
    ),
    "remember": ToolGroup(
        "everyday",
        "Keep a fact, a decision or any JSON object as a record, to be found by its words.",
        {
            "": VerbUse(
                "data.put",
                {"schema": "agent.note"},
                ("author", "schema_version", "content", "source", "expect", "key", "parent"),
            )
        },
    ),
    "messages": ToolGroup(
        "messages",
        "What was said to you and by you. list: the newest; get; search: by words, archived ones too; "
        "send: to another agent's queue; queue: what waits for you; batches: requests with their answers; "
        "compress: archive old ones, with your summary; summaries; restore: take that back.",
        {
            **_hide(("as_of",), "message", "list get search batches"),
            **_same("message", "send queue"),
            "compress": VerbUse(
                "message.compress", {"strategy": "recursive_summary"}, ("hours", "important", "tokens")
            ),
            **_same("message", "summaries restore"),
        },
        says={
            "id": "its id, or last; restore: an archive",
            "batch": "list: only of this batch",
            "role": "list: only of this role",
            "limit": "at most so many",
            "cursor": "list: go on from here",
            "query": "search: words",
            "open": "batches: only open ones",
            "to": "send: the agent",
            "text": "send: what you say",
            "type": "send: what it is",
            "trust": "send: how far its origin is trusted",
            "origin": "send: where it comes from",
            "priority": "send: 0 to 9",
            "key": "send: the same key sends once",
            "state": "queue: only these",
            "strategy": "compress: what to archive",
            "keep": "compress: so many of the newest stay",
            "messages": "compress: only if there are more",
            "summary": "compress: what stands for the archived",
            "offset": "go on from here in a long answer",
        },
    ),
    "work_ready": ToolGroup(
        "everyday",
        "List the work items that can be taken now, the next first.",
        {"": VerbUse("crumb.ready", {"limit": 20}, (*_NOT_FILTER, "explain", "as_of"))},
    ),
    "work_add": ToolGroup(
        "everyday",
        "Add a work item, for you or for any other agent.",
        {"": VerbUse("crumb.add", {"state": "ready"}, _NOT_NEW_WORK)},
    ),
    "work_take": ToolGroup(
        "everyday",
        "Claim the next work item, or this one; no two agents get the same.",
        {"": VerbUse("crumb.take", hide=(*_NOT_FILTER, "label", "lease", "next", "force"))},
    ),
    "work_end": ToolGroup(
        "everyday",
        "End a work item that you took, or say something about one.",
        {
            **{
                name: VerbUse(f"crumb.{name}", hide=("force", "token", "more"))
                for name in ("done", "drop", "release")
            },
            "comment": VerbUse("metadata.comment"),
        },
    ),
    "trail": ToolGroup(
        "everyday",
        "Try something out: work items on a trail are kept or given up together, with a lesson.",
        {
            "start": VerbUse("trail.start", hide=("property", "branches_from")),
            **_same("trail", "complete abandon"),
            **_hide(("as_of",), "trail", "get lessons"),
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
    "messages": ("messages",),
}
"""Tools by what they are for; `everyday` has the most used of all others."""
