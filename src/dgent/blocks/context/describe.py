"""Describe commits of blocks: who edited, shared or archived what, from the records before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dgent.blocks.access.actor import Actor
from dgent.blocks.context.context import VIEW
from dgent.blocks.errors import DocumentCorrupt
from dgent.blocks.history.log import VersionLog
from dgent.blocks.history.retain import RETAIN
from dgent.blocks.history.version import Version
from dgent.blocks.record import (
    AGENT,
    ARCHIVE_SHARE,
    BLOCK,
    CHECKPOINT,
    ENTRY,
    GROUP,
    MEMBER,
    SHARE,
    VERSION,
)
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Change, Item
from dgent.universe.room import Action, read_before
from dgent.universe.universe import Universe

MAX_MESSAGE = 200
_WORDS = {
    "create": "created the block {}",
    "undo": "undid an edit of {}",
    "redo": "redid an edit of {}",
    "rollback": "rolled {} back",
    "visit": "went to another version of {}",
    "merge": "merged {}",
    "delete": "deleted the block {}",
    "restore": "brought back the block {}",
    "rename": "renamed a block to {}",
    "pin": "pinned {}",
    "unpin": "unpinned {}",
    "describe": "described {}",
    "change": "changed the block {}",
    VIEW: "changed how {} is shown",
    RETAIN: "changed what is kept of {}",
    "share": "shared {}",
    "unshare": "stopped sharing {}",
    "checkpoint": "made a checkpoint of {}",
}
"""Operations in words; one that is not here is an edit."""


class _Header(NamedTuple):
    label: str
    owner: str


class BlockDescriber:
    """Describes commits to an agent, by the headers of the blocks that it may see now.

    To one who sees everything, agent None, it reads the headers of each commit's blocks.
    """

    def __init__(self, universe: Universe, agent: str | None, headers: dict[str, _Header]) -> None:
        self._universe, self._agent, self._headers = universe, agent, headers
        self._versions: dict[str, dict[int, Version]] = {}  # of blocks with packed versions

    @classmethod
    async def load(cls, universe: Universe, agent: str | None) -> BlockDescriber:
        """Read the headers of the blocks the agent may see, and of its own deleted ones."""
        if agent is None:
            return cls(universe, None, {})
        visible = await Actor(agent, "untrusted").find_visible(universe)
        own = await universe.recall(
            Query(schema=BLOCK.name, where={"owner": agent, "active": False}, limit=None)
        )
        found = [each.header for each in visible] + own
        headers = {each.id: _Header(each.value.label, each.value.owner) for each in found}
        return cls(universe, agent, headers)

    async def describe(self, change: Change) -> list[Action]:
        """Return what a commit did to blocks and entries that the agent may see."""
        if self._agent is None:
            await self._load_headers(change.items)
        before = await read_before(self._universe, change, (BLOCK.name,))
        found = [await self._describe_item(change, item, before) for item in change.items]
        done = [_put_in_words(each) for each in found if each is not None]
        return done or [each for item in change.items if (each := _describe_agent(change, item)) is not None]

    async def _load_headers(self, items: Iterable[Item]) -> None:
        ids = {str(item.id).split("/", 1)[0] for item in items if item.schema in _OF_BLOCKS}
        missing = sorted(ids - self._headers.keys())
        for each in await self._universe.get_many(missing, raw=True) if missing else ():
            if each is not None:
                label, owner = (str(each.data.get(field, "")) for field in _Header._fields)
                self._headers[each.id] = _Header(label, owner)

    async def _describe_item(self, change: Change, item: Item, before: Mapping[str, Datum]) -> Action | None:
        if item.id is None:
            return None
        if item.schema == ENTRY.name:
            return self._describe_entry(change, item)
        if item.schema == ARCHIVE_SHARE.name:
            return self._describe_archive_share(change, item)
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
        if entry is None or self._agent not in (None, entry.data.get("agent")):
            return None
        what = "archive" if item.op == "put" else "unarchive"
        text = " ".join(str(entry.data.get("text", "")).split())[:MAX_MESSAGE]
        done = f"archived: {text}" if item.op == "put" else f"deleted from the archive: {text}"
        agent = str(entry.data.get("agent", ""))
        return Action("entry", str(item.id), change.author, what, "", agent, text=done)

    def _describe_archive_share(self, change: Change, item: Item) -> Action | None:
        share = item.datum if item.op == "put" else item.last
        if share is None or self._agent not in (None, share.data.get("owner")):
            return None
        what = "share" if item.op == "put" else "unshare"
        owner = str(share.data.get("owner", ""))
        return Action("entry", str(item.id), change.author, what, "", owner, text=f"{change.note or what}")

    async def _describe_version(self, action: Action, item: Item, number: int) -> Action:
        """Describe a version by its record, or by its pack if it was packed since."""
        if item.datum is not None:
            data = item.datum.data
            by = item.datum.author or action.by
            return action._replace(by=by, what=data["op"], version=number, message=data["message"])
        if action.id not in self._versions:
            try:
                versions = await VersionLog(self._universe, action.id).versions()
            except DocumentCorrupt:
                versions = []  # `dgent doctor` reports it
            self._versions[action.id] = {each.number: each for each in versions}
        packed = self._versions[action.id].get(number)
        if packed is None:
            return action._replace(what="edit", version=number, message="")
        return action._replace(by=packed.by, what=packed.op, version=number, message=packed.message)


_OF_BLOCKS = frozenset((BLOCK.name, VERSION.name, SHARE.name, CHECKPOINT.name))


def _put_in_words(action: Action) -> Action:
    """Add the text; the block of another owner is named with its owner."""
    if action.text:
        return action
    name = action.name if action.owner == action.by else f"{action.owner}/{action.name}"
    words = _WORDS.get(action.what)
    # Only a version has a message of its own; otherwise it is the note, which says what was done.
    message = " ".join(action.message.split())[:MAX_MESSAGE] if action.version is not None else ""
    if words is None:
        message = message or action.what.replace("_", " ")
    text = (words or "edited {}").format(name)
    return action._replace(text=f"{text}: {message}" if message else text)


def _describe_agent(change: Change, item: Item) -> Action | None:
    """Describe what a commit did to an agent or a group, where nothing else happened to blocks."""
    datum = item.datum if item.op == "put" else item.last
    data: Mapping[str, object] = {} if datum is None else datum.data
    name, gone = str(data.get("name", "")), item.op != "put"
    if item.schema == AGENT.name:
        what = "deleted" if gone else "added" if item.rev == 1 else "changed"
        return Action("agent", str(item.id), change.author, what, name, text=f"{what} the agent {name}")
    if item.schema == GROUP.name:
        what = "deleted" if gone else "made" if item.rev == 1 else "changed"
        return Action("group", str(item.id), change.author, what, name, text=f"{what} the group {name}")
    if item.schema == MEMBER.name:
        who, group = (str(data.get(field, "")) for field in ("agent", "group"))
        text = f"removed {who} from a group" if gone else f"added {who} to a group"
        return Action("group", str(item.id), change.author, "leave" if gone else "join", group, text=text)
    return None


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
