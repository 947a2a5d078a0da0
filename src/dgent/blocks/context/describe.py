"""Describe what commits did to blocks and archival entries, from the records that they changed."""

from __future__ import annotations

from collections.abc import Mapping

from dgent.blocks.access.actor import Actor
from dgent.blocks.context.context import VIEW
from dgent.blocks.history.log import VersionLog
from dgent.blocks.history.retain import RETAIN
from dgent.blocks.history.version import Version
from dgent.blocks.record import BLOCK, CHECKPOINT, ENTRY, SHARE, VERSION, BlockRecord
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Change, Item
from dgent.universe.room import Action, read_before
from dgent.universe.universe import Universe


class BlockDescriber:
    """Describes commits to an agent, by the headers of the blocks that it may see now."""

    def __init__(self, universe: Universe, agent: str, headers: Mapping[str, BlockRecord]) -> None:
        self._universe, self._agent, self._headers = universe, agent, headers
        self._versions: dict[str, dict[int, Version]] = {}  # of blocks with packed versions

    @classmethod
    async def load(cls, universe: Universe, agent: str) -> BlockDescriber:
        """Read the headers of the blocks the agent may see, and of its own deleted ones."""
        visible = await Actor(agent, "untrusted").find_visible(universe)
        own = await universe.recall(
            Query(schema=BLOCK.name, where={"owner": agent, "active": False}, limit=None)
        )
        found = [each.header for each in visible] + own
        return cls(universe, agent, {header.id: header.value for header in found})

    async def describe(self, change: Change) -> list[Action]:
        """Return what a commit did to blocks and entries that the agent may see."""
        before = await read_before(self._universe, change, (BLOCK.name,))
        found = [await self._describe_item(change, item, before) for item in change.items]
        return [each for each in found if each is not None]

    async def _describe_item(self, change: Change, item: Item, before: Mapping[str, Datum]) -> Action | None:
        if item.id is None:
            return None
        if item.schema == ENTRY.name:
            return self._describe_entry(change, item)
        id, note = item.id.split("/", 1)[0], change.note or ""
        header = self._headers.get(id)
        if header is None:
            return None
        action = Action("block", id, change.author, "", header.label, header.owner, message=note)
        is_put = item.op == "put"
        if item.schema == VERSION.name and is_put:
            return await self._describe_version(action, item, int(item.id.rsplit("/", 1)[1]))
        if item.schema == BLOCK.name and is_put and item.rev > 1:
            return action._replace(what=_name_header_change(before.get(id), item.datum))
        if item.schema == SHARE.name:
            return action._replace(what="share" if is_put else "unshare")
        if item.schema == CHECKPOINT.name and is_put:
            return action._replace(what="checkpoint")
        return None

    def _describe_entry(self, change: Change, item: Item) -> Action | None:
        entry = item.datum if item.op == "put" else item.last
        if entry is None or entry.data.get("agent") != self._agent:
            return None
        what = "archive" if item.op == "put" else "unarchive"
        return Action("entry", str(item.id), change.author, what, "", self._agent)

    async def _describe_version(self, action: Action, item: Item, number: int) -> Action:
        """Describe a version by its record, or by its pack if it was packed since."""
        if item.datum is not None:
            data = item.datum.data
            by = item.datum.author or action.by
            return action._replace(by=by, what=data["op"], version=number, message=data["message"])
        if action.id not in self._versions:
            versions = await VersionLog(self._universe, action.id).versions()
            self._versions[action.id] = {each.number: each for each in versions}
        packed = self._versions[action.id].get(number)
        if packed is None:
            return action._replace(what="edit", version=number, message="")
        return action._replace(by=packed.by, what=packed.op, version=number, message=packed.message)


def _name_header_change(before: Datum | None, after: Datum | None) -> str:
    """Name the operation that made one version of a header from another; change where one is not kept."""
    if before is None or after is None:
        return "change"
    was, now = before.data, after.data
    changed = {name for name in (*was, *now) if was.get(name) != now.get(name)}
    if "active" in changed:
        return "restore" if now.get("active") else "delete"
    if "label" in changed:
        return "rename"
    if "pinned" in changed:
        return "pin" if now.get("pinned") else "unpin"
    extras = [each.get("extra") or {} for each in (was, now)]
    for name in (VIEW, RETAIN):
        if extras[0].get(name) != extras[1].get(name):
            return name
    return "describe" if changed else "change"
