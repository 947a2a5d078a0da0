"""The library: the blocks of one agent."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from dgent import ids
from dgent.blocks import errors, headers
from dgent.blocks.access import audit, sharing
from dgent.blocks.access.actor import BlockPermission, Header, System, is_active
from dgent.blocks.access.agents import Groups, Roster, check_choice
from dgent.blocks.access.audit import Refusal
from dgent.blocks.access.permission import CONSENT_S, AgentPermissions, Request, check_permission
from dgent.blocks.access.sharing import Share
from dgent.blocks.block import Block
from dgent.blocks.context import activity, archive, bulk
from dgent.blocks.context.activity import Activity
from dgent.blocks.context.archive import Entry
from dgent.blocks.context.budget import Context, Tokens
from dgent.blocks.context.bulk import RenderedBlock
from dgent.blocks.context.context import VIEW, ContextRequest, build_context, check_view, names_of
from dgent.blocks.context.notices import Notice, list_notices
from dgent.blocks.context.search import BlockSearch, Hit, SearchFilter
from dgent.blocks.document.default import new_header
from dgent.blocks.document.template import ROLLING_LOG, TemplateLike, find_template
from dgent.blocks.document.value import check_text
from dgent.blocks.folder.round import FolderReport
from dgent.blocks.folder.sync import WAIT_S, follow_folder, sync_folder
from dgent.blocks.history.retain import check_retain, set_retain
from dgent.blocks.history.version import Version
from dgent.blocks.kind import BLOCK_KINDS, CONSTELLATION
from dgent.blocks.record import BLOCK, GROUP, MEMBER, SHARE, archive_share_id, share_id
from dgent.errors import InputError
from dgent.model.tokens import estimate
from dgent.universe.tail import TailPoint, follow
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

LOG_LABEL = "log"
MOST_IDS = 1024  # ids of blocks that are remembered by their labels
DECIDING = (BLOCK.name, SHARE.name, MEMBER.name, GROUP.name)  # which blocks an agent sees


class Library:
    """The blocks of one agent in a universe: `Library(u, agent="scout")`.

    `trust` is the trust of the caller of this handle. `consent` is called where a block's permission requires
    the partner or a human to agree; without it, or without an answer within `consent_s` seconds, nothing is
    done.
    """

    def __init__(
        self,
        universe: Universe,
        agent: str,
        *,
        trust: str = "partner",
        consent: Callable[[Request], Awaitable[bool] | bool] | None = None,
        consent_s: float = CONSENT_S,
    ) -> None:
        self._permissions = AgentPermissions(universe, agent, trust, consent, consent_s)
        self.universe = universe
        self.agent = agent
        self.trust = self._permissions.trust
        self.agents = Roster(self._permissions)
        self.groups = Groups(self._permissions)
        self._universe = self._permissions.universe
        self._actor = self._permissions.actor
        self._rendered: dict[str, RenderedBlock] = {}  # texts of versions, which never change
        self._search = BlockSearch(self._universe)
        self._ids: dict[str, str] = {}  # of its own blocks by label, as they were last found
        self._visible: tuple[Any, Any, Any] | None = None  # blocks of a prompt, by commit
        self._marks: tuple[TailPoint, Any, Mapping[str, str]] | None = None  # their origins, by commit

    # -- blocks -------------------------------------------------------------------------------

    async def create(
        self,
        label: str,
        *,
        template: TemplateLike = None,
        document: str | None = None,
        description: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        permission: str | None = None,
        pinned: bool | None = None,
        text: str | None = None,
        value: Any = None,
        owner: str | None = None,
    ) -> Block:
        """Create a block for this agent, or for all with `owner="_constellation_"`; its label must be free.

        The template gives its shape and the defaults of the other options; a working block is pinned, so that
        it is in the context, unless `pinned` is False. `value` is its first content: the text of a text (or
        `text=`), the fields of a map, the items of a list, the sections of a composite.
        """
        await self._permissions.require_trust("manage", label, "create")
        whose = await headers.check_owner(self._permissions, label, owner)
        if text is not None and value is not None:
            raise InputError("text= and value= cannot be combined", hint="give one of them")
        given = {"kind": kind, "limit": limit, "description": description, "permission": permission}
        fields = headers.check_fields(**given)
        ids.check_name(label, "label")
        header = new_header(find_template(template, document), owner=whose, label=label, **fields)
        header = replace(header, pinned=header.kind == "working" if pinned is None else pinned is True)
        return await headers.create_block(self._permissions, header, value if text is None else text)

    async def get(self, label: str, *, owner: str | None = None) -> Block:
        """Return a block by label: this agent's own, one shared with it, or one that belongs to all.

        Its own comes first. If several agents have shared one with this label, `owner` chooses.
        """
        await self._permissions.require_trust("read", label)
        ids.check_name(label, "label")
        if owner in (None, self.agent):
            own = await self._find_own(label)
            if own is not None:
                return Block(self._permissions, self._actor.own_permission(own))
        others = (
            [] if owner == self.agent else await self._actor.find_visible(self._universe, {"label": label})
        )
        others = [each for each in others if owner in (None, each.header.value.owner)]
        if not others:
            raise await headers.missing_error(self._permissions, label, owner)
        if len(others) > 1:
            owners = [each.header.value.owner for each in others]
            raise errors.LabelAmbiguous(
                f"{len(owners)} agents have shared a block {label!r}: {', '.join(owners)}",
                hint="give owner=",
                owners=owners,
            )
        return Block(self._permissions, others[0])

    async def _find_own(self, label: str) -> Header | None:
        """Return the header of this agent's block with a label; one found before is read by its id."""
        known = self._ids.get(label)
        if known is not None:
            (header,) = await self._universe.get_many([known])
            if is_active(header) and (header.value.owner, header.value.label) == (self.agent, label):
                found: Header = header
                return found
            del self._ids[label]
        searched = await headers.find_header(self._universe, self.agent, label)
        if searched is not None:
            if len(self._ids) >= MOST_IDS:
                self._ids.clear()
            self._ids[label] = searched.id
        return searched

    async def _find_for_context(
        self, *asked: Any
    ) -> tuple[builtins.list[BlockPermission], builtins.list[BlockPermission]]:
        """Find the blocks of a prompt; the answer is used again until a record that decides it changes."""
        universe, kept = self._universe, self._visible
        if universe.degraded is not None:
            return await self._actor.find_for_context(universe, *asked)
        tail = await follow(universe)
        now: Any
        if tail is None:
            now = getattr(universe.backend, "epoch", b""), await universe.seq()
            proven = kept is not None and kept[0] == now
        else:
            now, proven = tail.point, kept is not None and tail.is_untouched(kept[0], DECIDING)
        if kept is None or not proven or kept[1] != asked:
            kept = self._visible = now, asked, await self._actor.find_for_context(universe, *asked)
        found: tuple[builtins.list[BlockPermission], builtins.list[BlockPermission]] = kept[2]
        return found

    async def get_by_id(self, id: str) -> Block:
        """Return a block by id: this agent's own, one shared with it, or one that belongs to all."""
        await self._permissions.require_trust("read", "", "get_by_id")
        block_permission = await self._actor.find_permission_by_id(self._universe, ids.check_id(id))
        if block_permission is None:
            raise errors.BlockNotFound(f"{self.agent} has no block with the id {id!r}", id=id)
        return Block(self._permissions, block_permission)

    async def list(
        self, folder: str | None = None, *, kind: str | None = None, shared: bool = False
    ) -> builtins.list[Block]:
        """Return this agent's blocks by label; with `shared` also the others it may see, by owner.

        With a `folder`, those whose labels are in it: `list("projects/x")` has `projects/x/notes`.
        """
        await self._permissions.require_trust("read", "")
        where: dict[str, Any] = {}
        if kind is not None:
            where["kind"] = check_choice(kind, BLOCK_KINDS, "kind")
        if folder is not None:
            where["label"] = {"$prefix": headers.folder_prefix(folder)}
        look = self._actor.find_visible if shared else self._actor.find_own
        return [Block(self._permissions, each) for each in await look(self._universe, where)]

    async def move_folder(self, folder: str, to: str, *, owner: str | None = None) -> builtins.list[Block]:
        """Move all blocks of a folder of labels to another one, in one commit: all or none."""
        await self._permissions.require_trust("manage", folder, "rename")
        return await headers.move_folder(self._permissions, folder, to, owner)

    async def delete_folder(self, folder: str, *, owner: str | None = None) -> builtins.list[Block]:
        """Delete all blocks of a folder of labels, in one commit; each can be restored."""
        await self._permissions.require_trust("manage", folder, "delete")
        return await headers.remove_folder(self._permissions, folder, owner)

    async def sizes(self, blocks: Iterable[Block]) -> dict[str, tuple[int, int]]:
        """Map the ids of some blocks to their newest version and its size in characters."""
        await self._permissions.require_trust("read", "", "list")
        return await bulk.find_sizes(self._universe, [each.id for each in blocks])

    async def rename(self, label: str, to: str, *, owner: str | None = None) -> Block:
        """Change the label of a block."""
        block = await self.get(label, owner=owner)
        ids.check_name(to, "label")

        async def work(tx: Transaction, header: Header) -> None:
            if to != header.value.label:
                await headers.check_free(tx, header.value.owner, to)
            await tx.store(header.replace(value=replace(header.value, label=to)))

        note = f"rename {label} to {to}"
        return await headers.change_header(self._permissions, block, "rename", work, note)

    async def describe(
        self,
        label: str,
        *,
        owner: str | None = None,
        description: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        permission: str | None = None,
        template: TemplateLike = None,
    ) -> Block:
        """Change the description, kind, limit, permission or template of a block.

        A `template` changes the shape for the same kind of document; the content must fit it. A change that
        allows more than before needs consent, so that an agent cannot give itself permission to write what it
        may only read.
        """
        block = await self.get(label, owner=owner)
        given = {"description": description, "kind": kind, "limit": limit, "permission": permission}
        fields = headers.check_fields(**given)
        wanted = None if template is None else find_template(template)
        return await headers.describe_block(self._permissions, block, fields, wanted)

    async def pin(self, label: str, pinned: bool = True, *, owner: str | None = None) -> Block:
        """Keep a working block in the context, or stop keeping it there."""
        block = await self.get(label, owner=owner)

        async def work(tx: Transaction, header: Header) -> None:
            await tx.store(header.replace(value=replace(header.value, pinned=pinned is True)))

        note = f"{'pin' if pinned else 'unpin'} {label}"
        return await headers.change_header(self._permissions, block, "pin", work, note)

    async def retain(self, label: str, keep: int | None, *, owner: str | None = None) -> Block:
        """Keep this many of the newest versions, and those with a checkpoint, from now on; None for all.

        Older versions are compacted from time to time, as by `Block.compact`. Only the partner may.
        """
        block = await self.get(label, owner=owner)
        wanted = check_retain(keep)

        async def work(tx: Transaction, header: Header) -> None:
            await tx.store(set_retain(header, wanted))

        note = f"retain {keep or 'all'} versions of {label}"
        return await headers.change_header(self._permissions, block, "retain", work, note, "erase")

    async def view(
        self, label: str, start: int = 1, lines: int | None = None, *, owner: str | None = None
    ) -> Block:
        """Show only `lines` lines of a long text in the context, from `start`; without `lines` all of it."""
        block = await self.get(label, owner=owner)
        extra = check_view(block.document_kind, start, lines)

        async def work(tx: Transaction, header: Header) -> None:
            rest = {name: each for name, each in header.value.extra.items() if name != VIEW}
            await tx.store(header.replace(value=replace(header.value, extra=rest | extra)))

        return await headers.change_header(self._permissions, block, "view", work, f"view {label}")

    async def delete(self, label: str, *, owner: str | None = None) -> None:
        """Delete a block; its label is free at once, and `restore` brings it back with its history."""
        await headers.remove_block(self._permissions, await self.get(label, owner=owner))

    async def restore(self, label: str, *, to: str | None = None, owner: str | None = None) -> Block:
        """Restore the block of a label that was deleted last, optionally under another label.

        It has its history and its shares as before. With `owner="_constellation_"` the partner restores one
        that belonged to all. Raises LabelTaken when another block has the label now.
        """
        await self._permissions.require_trust("manage", label)
        whose = await headers.check_owner(self._permissions, label, owner, "restore")
        wanted = ids.check_name(label if to is None else to, "label")
        return await headers.restore_block(self._permissions, whose, label, wanted)

    async def list_deleted(self, *, owner: str | None = None) -> builtins.list[str]:
        """Return the labels of this agent's deleted blocks, the last deleted first.

        With `owner="_constellation_"` those that belonged to all.
        """
        await self._permissions.require_trust("read", "")
        whose = CONSTELLATION if owner == CONSTELLATION else self.agent
        return [header.value.label for header in await headers.find_deleted(self._universe, whose)]

    # -- sharing ------------------------------------------------------------------------------

    async def share(
        self,
        label: str,
        *,
        with_agent: str | None = None,
        with_group: str | None = None,
        permission: str = "append",
        owner: str | None = None,
    ) -> None:
        """Share a block with another agent or a group; sharing again changes the permission."""
        allowed = check_permission(permission)
        block = await self.get(label, owner=owner)

        async def work(tx: Transaction, header: Header) -> None:
            await sharing.put_share(tx, header, self.agent, with_agent, with_group, allowed)

        note = f"share {label} with {with_agent or with_group}"
        await headers.manage(self._permissions, block, "share", work, note)

    async def unshare(
        self,
        label: str,
        *,
        with_agent: str | None = None,
        with_group: str | None = None,
        owner: str | None = None,
    ) -> bool:
        """Stop sharing a block with an agent or a group; False when it was not shared with them."""
        block = await self.get(label, owner=owner)
        was: builtins.list[bool] = []

        async def work(tx: Transaction, header: Header) -> None:
            id = share_id(header.id, await sharing.find_recipient(tx, with_agent, with_group))
            was[:] = [await tx.exists(id)]
            if was[0]:
                await tx.delete(id)

        note = f"unshare {label} with {with_agent or with_group}"
        await headers.manage(self._permissions, block, "unshare", work, note)
        return was[0]

    async def list_shares(self) -> builtins.list[Share]:
        """Return the shares this agent gave and received, its own blocks first."""
        await self._permissions.require_trust("read", "")
        return await sharing.list_shares(self._universe, self._actor)

    async def refusals(self, limit: int = 100) -> builtins.list[Refusal]:
        """Return the refusals of this agent and those about its blocks, newest first."""
        await self._permissions.require_trust("read", "")
        return await audit.list_refusals(self._universe, self.agent, limit)

    # -- changes by others -----------------------------------------------------------------------------

    async def notices(self, *, mark: bool = False) -> builtins.list[Notice]:
        """Return the changes by others to the blocks this agent may see, since it last looked, with diffs.

        `mark=True` records them as seen, so that they are reported once.
        """
        await self._permissions.require_trust("read", "", "notices")
        return await list_notices(self, mark)

    async def activity(
        self, since: int | datetime | None = None, *, limit: int = 50
    ) -> builtins.list[Activity]:
        """Return who did what to the blocks this agent may see, since a commit or a time; newest first.

        Includes its archival entries, and the crumbs and trails of the store, which belong to all agents.
        """
        await self._permissions.require_trust("read", "", "activity")
        return await activity.list_activity(self, since, limit)

    # -- the context ------------------------------------------------------------------------------

    async def render(
        self,
        *,
        budget_tokens: int | None = None,
        referenced: str | Iterable[str] = (),
        priorities: Mapping[str, int] | None = None,
        changes: bool = True,
        since: int | datetime | None = None,
        mark: bool = False,
        tokens: Tokens = estimate,
    ) -> str:
        """Return the memory part of a prompt: core blocks, pinned or referenced working blocks, and logs.

        It is never longer than `budget_tokens`, as counted by `tokens`; the end names what was cut, and a
        block with a higher priority is cut later. With `changes` it ends with what others did to these blocks
        since the agent last looked; `mark=True` records every fully shown block as seen. With `since`, a
        commit or a time, it includes the newest activity after that.
        """
        asked = (budget_tokens, names_of(referenced), priorities or {}, changes, since, mark, tokens)
        return (await self.context(*asked)).text

    async def context(
        self,
        budget_tokens: int | None = None,
        referenced: str | Iterable[str] = (),
        priorities: Mapping[str, int] | None = None,
        changes: bool = True,
        since: int | datetime | None = None,
        mark: bool = False,
        tokens: Tokens = estimate,
    ) -> Context:
        """Return the same as `render`, with its token count and which blocks are whole, shortened or cut."""
        await self._permissions.require_trust("read", "", "render")
        wanted = ContextRequest(
            budget_tokens, names_of(referenced), priorities or {}, changes, since, mark, tokens
        )
        return await build_context(self, wanted)

    # -- rolling logs -------------------------------------------------------------------------
    # The system writes what happened, and the agent reads it. Every entry is kept: the shape bounds what a
    # prompt shows, and what a rule of the shape removes is still in the history.

    async def log_tool(
        self, tool: str, result: Any = None, *, ok: bool = True, label: str = LOG_LABEL
    ) -> Version:
        """Add a use of a tool and its result to the agent's rolling log."""
        entry = {"tool": ids.check_name(tool, "tool"), "result": result, "ok": None if ok else False}
        return await self._log("tool", entry, label)

    async def log_event(self, event: str, details: Any = None, *, label: str = LOG_LABEL) -> Version:
        """Add an event to the agent's rolling log."""
        entry = {"event": ids.check_name(event, "event"), "details": details}
        return await self._log("event", entry, label)

    async def log_summary(self, summary: str, count: int | None = None, *, label: str = LOG_LABEL) -> Version:
        """Add a summary, of `count` messages, to the agent's rolling log."""
        return await self._log("summary", {"summary": check_text(summary), "count": count}, label)

    async def _log(self, op: str, entry: Mapping[str, Any], label: str) -> Version:
        """Add an entry to a rolling log, which is created if it does not exist."""
        await self._permissions.require_trust("append", label, op)
        header = await headers.find_header(self._universe, self.agent, label)
        if header is None:
            with suppress(errors.LabelTaken):  # somebody else may create it at the same moment
                await self.create(label, template=ROLLING_LOG)
            header = await headers.find_header(self._universe, self.agent, label)
        if header is None:
            raise errors.BlockNotFound(f"{self.agent} has no block {label!r}", label=label)
        if header.value.document != "log":
            raise errors.WrongKind(f"{label!r} is a {header.value.document}, not a log")
        system = System(self.agent, self.trust)
        block = Block(self._permissions.with_actor(system), system.own_permission(header))
        return await block._log(op, {key: each for key, each in entry.items() if each is not None}, None, "")

    # -- files ------------------------------------------------------------------------------------

    async def sync(
        self,
        folder: str | os.PathLike[str],
        *,
        by: str | None = None,
        dry_run: bool = False,
        wait_s: float = WAIT_S,
    ) -> FolderReport:
        """Synchronize a folder of files with the blocks that this agent may see.

        Each block is a file that can be edited, with a small file beside it that describes it. Edits are
        applied with the permission checks of any edit, as versions by `by`, and merged with what happened to
        the blocks since; then the files are written again. With `dry_run` it only reports what it would do.
        """
        await self._permissions.require_trust("read", "", "sync")
        return await sync_folder(self, folder, by, dry_run, wait_s)

    async def follow_folder(
        self, folder: str | os.PathLike[str], *, every: float = 1.0, by: str | None = None
    ) -> AsyncIterator[FolderReport]:
        """Sync a folder every `every` seconds while iterated; yields each report that has news."""
        await self._permissions.require_trust("read", "", "sync")
        async for report in follow_folder(self, folder, every, by):
            yield report

    # -- the archive --------------------------------------------------------------------------------

    async def archive(self, text: str, *, tags: Iterable[str] = ()) -> Entry:
        """Store a text in the archive, where search finds it."""
        await self._permissions.require_trust("append", "", "archive")
        return await archive.put(self._universe, self.agent, text, tags)

    async def get_archived(self, id: str) -> Entry:
        """Return an archival entry of this agent, or of an archive that is shared with it."""
        await self._permissions.require_trust("read", "", "get_archived")
        return await archive.get(self._universe, self.agent, id)

    async def unarchive(self, id: str, *, forget: bool = False) -> None:
        """Delete an archival entry; with `forget` from the history too, which only the partner may."""
        await self._permissions.require_trust("erase" if forget else "manage", "", "unarchive")
        await archive.require_own(self._universe, self.agent, id)
        if forget:
            await self._universe.forget(id)
        else:
            await self._universe.delete(id, note="unarchive")

    async def share_archive(self, *, with_agent: str | None = None, with_group: str | None = None) -> None:
        """Let another agent, or every member of a group, read and search this agent's archive."""
        await self._permissions.require_trust("manage", "", "share_archive")

        async def work(tx: Transaction) -> None:
            await sharing.put_archive_share(tx, self.agent, with_agent, with_group)

        await self._universe.transact(work, note=f"share the archive with {with_agent or with_group}")

    async def unshare_archive(self, *, with_agent: str | None = None, with_group: str | None = None) -> bool:
        """Stop sharing this agent's archive; False when it was not shared with them."""
        await self._permissions.require_trust("manage", "", "unshare_archive")
        to = await sharing.find_recipient(self._universe, with_agent, with_group)
        note = f"unshare the archive with {with_agent or with_group}"
        return await self._universe.delete(archive_share_id(self.agent, to), note=note)

    async def list_archive_shares(self) -> builtins.list[Share]:
        """Return who may read this agent's archive, and whose archives it may read."""
        await self._permissions.require_trust("read", "")
        return await sharing.list_archive_shares(self._universe, self._actor)

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        kind: str | None = None,
        owner: str | None = None,
        tags: Iterable[str] = (),
    ) -> builtins.list[Hit]:
        """Search the blocks and archival entries that this agent may see, best match first.

        Any text is a search: `"…"` is a phrase, `word*` the beginning of a word. `kind` is core, working,
        archival, log or entry; `tags` are those of entries. `limit` is at most 1,000.
        """
        await self._permissions.require_trust("read", "", "search")
        if kind is not None:
            check_choice(kind, (*BLOCK_KINDS, "entry"), "kind")
        wanted = SearchFilter(self.agent, kind, owner, ids.check_tags(tags))
        return await self._search.find(query, wanted, limit)
