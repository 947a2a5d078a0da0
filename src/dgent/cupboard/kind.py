"""Enumerations of the cupboard: states, and types of links, values, stashes and content."""

from __future__ import annotations

from typing import Literal, get_args

CrumbState = Literal["draft", "pending", "ready", "taken", "pebble", "dust"]
TrailState = Literal["draft", "pending", "active", "completed", "abandoned"]
LinkType = Literal["belongs_to", "child_of", "branches_from", "scoped_to"]
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

FINISHED = ("pebble", "dust")
ENDED = ("completed", "abandoned")
