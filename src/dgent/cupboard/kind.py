"""Enumerations of the cupboard: states, and types of links, values, stashes and content."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

CrumbState = Literal["draft", "pending", "ready", "taken", "pebble", "dust"]
TrailState = Literal["draft", "pending", "active", "completed", "abandoned"]
LinkType = Literal[
    "belongs_to",
    "child_of",
    "part_of",
    "related_to",
    "discovered_from",
    "duplicate_of",
    "supersedes",
    "branches_from",
    "scoped_to",
]
ValueType = Literal["categorical", "text", "integer", "boolean", "timestamp", "list"]
StashType = Literal["resource", "artifact", "context", "counter", "lock"]
Scope = Literal["crumb", "trail", "stash"]
ContentType = Literal["text", "json"]

CRUMB_STATES: tuple[str, ...] = get_args(CrumbState)
TRAIL_STATES: tuple[str, ...] = get_args(TrailState)
LINK_TYPES: tuple[str, ...] = get_args(LinkType)
VALUE_TYPES: tuple[str, ...] = get_args(ValueType)
STASH_TYPES: tuple[str, ...] = get_args(StashType)
SCOPES: tuple[str, ...] = get_args(Scope)
CONTENT_TYPES: tuple[str, ...] = get_args(ContentType)


class LinkRule(NamedTuple):
    """The kinds of entities that a type of link joins, and what the link means for its start.

    `single`: its start may have only one. `waits`: its start waits until the end is `done` (a pebble), or
    until the end is `free`, which means that it waits for nothing itself. A `mutual` link means the same in
    both directions.
    """

    start: str
    end: str
    single: bool = False
    waits: Literal["", "done", "free"] = ""
    mutual: bool = False


LINK_RULES: dict[str, LinkRule] = {
    "belongs_to": LinkRule("crumb", "trail", single=True),
    "child_of": LinkRule("crumb", "crumb", waits="done"),
    "part_of": LinkRule("crumb", "crumb", waits="free"),
    "related_to": LinkRule("crumb", "crumb", mutual=True),
    "discovered_from": LinkRule("crumb", "crumb"),
    "duplicate_of": LinkRule("crumb", "crumb"),
    "supersedes": LinkRule("crumb", "crumb"),
    "branches_from": LinkRule("trail", "crumb", single=True),
    "scoped_to": LinkRule("stash", "trail", single=True),
}
WAITING: tuple[str, ...] = tuple(name for name, rule in LINK_RULES.items() if rule.waits)
"""The types of links by which a crumb waits; together they have no cycle."""

FINISHED = ("pebble", "dust")
ENDED = ("completed", "abandoned")
