"""Describe commits of the cupboard: who added, took, finished or changed what, from the records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dgent.cupboard.builtin import BORN
from dgent.cupboard.kind import FINISHED
from dgent.cupboard.room import name_of
from dgent.universe.room import Action, read_before

if TYPE_CHECKING:
    from dgent.model.datum import Datum
    from dgent.store.backend import Change, Item
    from dgent.universe.universe import Universe

MAX_TEXT = 200
DESCRIBED = {
    f"cupboard.{kind}": kind
    for kind in ("crumb", "trail", "stash", "metadata", "property", "category", "schema")
}
DERIVED = frozenset(
    (
        *("updated_at", "holder", "lease_until", "token", "open_parents", "queue"),
        *("completed_at", "crumbs", "extra", "short_id", "former_ids", "parts"),
    )
)
"""Fields that follow from others, or that no user sets: changing only these is not worth a line."""

_STATES = {
    "draft": "made {} a draft",
    "pending": "put {} on hold",
    "ready": "made {} ready",
    "taken": "took {}",
    "pebble": "finished {}",
    "dust": "dropped {}",
    "active": "went on with {}",
    "completed": "completed {}",
    "abandoned": "abandoned {}",
}
_UNDONE = {
    "create": "brought back {}",
    "delete": "took back {}",
    "change": "put {} back as it was",
}
_NOUNS = {"crumb": "", "trail": "the trail ", "stash": "the stash ", "property": "the property "}


class CupboardDescriber:
    """Describes commits of the cupboard, without changes that only follow from others."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe

    async def describe(self, change: Change) -> list[Action]:
        """Return what a commit did to crumbs, trails, stashes, comments and definitions; else to links."""
        before = await read_before(self._universe, change, DESCRIBED)
        found = [
            await self._describe(change, item, before.get(str(item.id)))
            for item in change.items
            if item.schema in DESCRIBED and item.id is not None
        ]
        done = [each for each in found if each is not None]
        if done:
            return done
        return [
            await self._describe_link(change, item)
            for item in change.items
            if item.schema == "cupboard.link" and item.id is not None
        ]

    async def _describe(self, change: Change, item: Item, before: Datum | None) -> Action | None:
        kind = DESCRIBED[item.schema or ""]
        datum = item.datum if item.op == "put" else item.last
        data: Mapping[str, Any] = {} if datum is None else datum.data
        if kind not in ("crumb", "trail", "stash") and datum is not None and datum.created_at == BORN:
            return None  # every cupboard begins with it
        what = _name_change(item, data, before)
        if not what:
            return None
        holder = data.get("holder")
        by = holder if what == "taken" and isinstance(holder, str) else change.author  # taken for an agent
        action = Action(kind, str(item.id), by, what, name_of(data), message=change.note or "")
        if kind == "metadata":
            return await self._describe_entry(action, data)
        was: Mapping[str, Any] = {} if before is None else before.data
        is_undo, is_back = change.kind == "undo", item.op == "put" and before is None
        if is_undo and kind == "stash" and what == "change":
            return action._replace(text=f"put the stash ‘{action.name}’ back to {_value_of(data)}")
        return action._replace(text=_undo_text(action, is_back) if is_undo else _text(action, data, was))

    async def _describe_entry(self, action: Action, data: Mapping[str, Any]) -> Action:
        """Describe a comment, or another entry beside a crumb, by the name of the crumb."""
        (crumb,) = await self._names([str(data.get("crumb_id"))])
        kind = str(data.get("table_name"))
        text = _shorten(data.get("content"))
        done = {"create": "commented on" if kind == "comments" else f"added {kind} to", "delete": "deleted"}
        lead = done.get(action.what, "changed")
        lead = lead if action.what == "create" else f"{lead} an entry of {kind} of"
        return action._replace(name=crumb, text=f"{lead} ‘{crumb}’: {text}")

    async def _describe_link(self, change: Change, item: Item) -> Action:
        datum = item.datum if item.op == "put" else item.last
        data: Mapping[str, Any] = {} if datum is None else datum.data
        start, end = await self._names([str(data.get("from_id")), str(data.get("to_id"))])
        is_put = item.op == "put"
        text = f"{'linked' if is_put else 'unlinked'} ‘{start}’ {data.get('link_type')} ‘{end}’"
        what = "create" if is_put else "delete"
        return Action("link", str(item.id), change.author, what, str(data.get("link_type")), text=text)

    async def _names(self, ids: list[str]) -> list[str]:
        found = await self._universe.get_many(ids, raw=True)
        return [id if each is None else name_of(each.data) for id, each in zip(ids, found, strict=True)]


def _name_change(item: Item, data: Mapping[str, Any], before: Datum | None) -> str:
    """Name the change: create, delete, a new state, or change; empty when nothing of interest changed."""
    if item.op != "put":
        return "delete"
    if item.rev == 1:
        return "create"
    was: Mapping[str, Any] = {} if before is None else before.data
    state = data.get("state")
    if isinstance(state, str) and state and state != was.get("state"):
        return state
    changed = {name for name in (*data, *was) if data.get(name) != was.get(name)}
    return "change" if changed - DERIVED else ""


def _text(action: Action, data: Mapping[str, Any], was: Mapping[str, Any]) -> str:
    """Put a change of a crumb, trail, stash or definition in words."""
    what, name = action.what, f"{_NOUNS.get(action.kind, action.kind + ' ')}‘{action.name}’"
    if action.kind == "stash" and what == "change":
        return _stash_text(name, data)
    if what == "create":
        return f"{'began' if action.kind == 'trail' else 'added'} {name}"
    if what == "delete":
        return f"deleted {name}"
    if what == "ready" and was.get("state") in (*FINISHED, "taken"):
        return f"{'released' if was['state'] == 'taken' else 'reopened'} {name}"
    if what == "abandoned" and (reason := data.get("lesson") or data.get("reason")):
        return f"abandoned {name}: {_shorten(reason)}"
    if what in _STATES:
        return _STATES[what].format(name)
    if was.get("name") not in (None, data.get("name")):
        return f"renamed ‘{name_of(was)}’ to {name}"
    return f"changed {name}"


def _stash_text(name: str, data: Mapping[str, Any]) -> str:
    operation = data.get("operation")
    words = {"acquire": f"locked {name}", "release": f"unlocked {name}"}
    return words.get(str(operation)) or f"set {name} to {_value_of(data)}"


def _value_of(stash: Mapping[str, Any]) -> str:
    value = stash.get("value")
    return _shorten(value["value"] if isinstance(value, Mapping) and value.keys() == {"value"} else value)


def _undo_text(action: Action, is_back: bool) -> str:
    """Put in words what an undo did: what came back, and as what."""
    name = f"{_NOUNS.get(action.kind, action.kind + ' ')}‘{action.name}’"
    if is_back:
        return _UNDONE["create"].format(name)
    return (
        _UNDONE[action.what].format(name) if action.what in _UNDONE else f"put {name} back to {action.what}"
    )


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return " ".join(text.split())[:MAX_TEXT]
