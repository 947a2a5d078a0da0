"""The library: the blocks of one agent."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from dgent import ids
from dgent.blocks.access import audit, sharing
from dgent.blocks.access.actor import Header
from dgent.blocks.access.agents import Groups, Roster, check_choice
from dgent.blocks.access.audit import Refusal
from dgent.blocks.access.permission import CONSENT_S, Request, check_permission
from dgent.blocks.access.sharing import Share
from dgent.blocks.context import activity, archive, search
from dgent.blocks.context.activity import Activity
from dgent.blocks.context.archive import Entry
from dgent.blocks.context.budget import Context, Tokens, estimate
from dgent.blocks.context.bulk import RenderedBlock
from dgent.blocks.context.context import ContextRequest, build_context, names_of
from dgent.blocks.context.notices import Notice, list_notices
from dgent.blocks.context.search import Fulltexts, Hit, Text, text_of
from dgent.blocks.edit import rolling
from dgent.blocks.edit.editable import check_text
from dgent.blocks.folder.report import FolderReport
from dgent.blocks.folder.sync import WAIT_S, follow_folder, sync_folder
from dgent.blocks.headers import BlockHeaders
from dgent.blocks.history.version import Version
from dgent.blocks.kind import BLOCK_KINDS
from dgent.blocks.record import share_id
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe


class Library(BlockHeaders):
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
        super().__init__(universe, agent, trust, consent, consent_s)
        self.agents = Roster(self)
        self.groups = Groups(self)
        self._rendered: dict[str, RenderedBlock] = {}  # texts of versions, which never change
        self._fulltexts = Fulltexts()

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

        await self._manage(block, "share", work, f"share {label} with {with_agent or with_group}")

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

        await self._manage(block, "unshare", work, f"unshare {label} with {with_agent or with_group}")
        return was[0]

    async def list_shares(self) -> builtins.list[Share]:
        """Return the shares this agent gave and received, its own blocks first."""
        await self._check_trust("read", "")
        return await sharing.list_shares(self._universe, self._actor)

    async def refusals(self, limit: int = 100) -> builtins.list[Refusal]:
        """Return the refusals of this agent and those about its blocks, newest first."""
        await self._check_trust("read", "")
        return await audit.list_refusals(self._universe, self.agent, limit)

    # -- changes by others -----------------------------------------------------------------------------

    async def notices(self, *, mark: bool = False) -> builtins.list[Notice]:
        """Return the changes by others to the blocks this agent may see, since it last looked, with diffs.

        `mark=True` records them as seen, so that they are reported once.
        """
        await self._check_trust("read", "", "notices")
        return await list_notices(self, mark)

    async def activity(
        self, since: int | datetime | None = None, *, limit: int = 50
    ) -> builtins.list[Activity]:
        """Return who did what to the blocks this agent may see, since a commit or a time; newest first.

        Includes its archival entries, and the crumbs and trails of the store, which belong to all agents.
        """
        await self._check_trust("read", "", "activity")
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
        await self._check_trust("read", "", "render")
        wanted = ContextRequest(
            budget_tokens, names_of(referenced), priorities or {}, changes, since, mark, tokens
        )
        return await build_context(self, wanted)

    # -- rolling logs -------------------------------------------------------------------------

    async def log_tool(
        self, tool: str, result: Any = None, *, ok: bool = True, label: str = rolling.LABEL
    ) -> Version:
        """Add a use of a tool and its result to the agent's rolling log."""
        entry = {"tool": ids.check_name(tool, "tool"), "result": result, "ok": None if ok else False}
        return await rolling.log(self, "tool", entry, label)

    async def log_event(self, event: str, details: Any = None, *, label: str = rolling.LABEL) -> Version:
        """Add an event to the agent's rolling log."""
        entry = {"event": ids.check_name(event, "event"), "details": details}
        return await rolling.log(self, "event", entry, label)

    async def log_summary(
        self, summary: str, count: int | None = None, *, label: str = rolling.LABEL
    ) -> Version:
        """Add a summary, of `count` messages, to the agent's rolling log."""
        return await rolling.log(self, "summary", {"summary": check_text(summary), "count": count}, label)

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
        await self._check_trust("read", "", "sync")
        return await sync_folder(self, folder, by, dry_run, wait_s)

    async def follow_folder(
        self, folder: str | os.PathLike[str], *, every: float = 1.0, by: str | None = None
    ) -> AsyncIterator[FolderReport]:
        """Sync a folder every `every` seconds while iterated; yields each report that has news."""
        await self._check_trust("read", "", "sync")
        async for report in follow_folder(self, folder, every, by):
            yield report

    # -- the archive --------------------------------------------------------------------------------

    async def archive(self, text: str, *, tags: Iterable[str] = ()) -> Entry:
        """Store a text in the archive, where search finds it."""
        await self._check_trust("append", "", "archive")
        return await archive.put(self._universe, self.agent, text, tags)

    async def get_archived(self, id: str) -> Entry:
        """Return an archival entry of this agent."""
        await self._check_trust("read", "", "get_archived")
        return await archive.get(self._universe, self.agent, id)

    async def unarchive(self, id: str, *, forget: bool = False) -> None:
        """Delete an archival entry; with `forget` from the history too, which only the partner may."""
        await self._check_trust("erase" if forget else "manage", "", "unarchive")
        await archive.get(self._universe, self.agent, id)
        if forget:
            await self._universe.forget(id)
        else:
            await self._universe.delete(id, note="unarchive")

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

        Any text can be searched for: characters that are not letters or digits separate words. `kind` is
        core, working, archival, log or entry; `tags` are those of entries.
        """
        await self._check_trust("read", "", "search")
        if kind is not None:
            check_choice(kind, (*BLOCK_KINDS, "entry"), "kind")
        terms = search.terms_of(query)
        texts = self._texts(terms, kind, owner, ids.check_tags(tags))
        return await search.rank_texts(texts, terms, limit)

    async def _texts(
        self, terms: builtins.list[str], kind: str | None, owner: str | None, tags: frozenset[str]
    ) -> AsyncIterator[Text]:
        """Yield the texts to search; of the entries only those with some of the words."""
        if kind != "entry" and not tags:
            visible = [each.header for each in await self._actor.find_visible(self._universe)]
            self._fulltexts.keep([header.id for header in visible])
            wanted = [header for header in visible if kind in (None, header.value.kind)]
            wanted = [header for header in wanted if owner in (None, header.value.owner)]
            for text in await self._fulltexts.of(self._universe, wanted):
                yield text
        if kind in (None, "entry") and owner in (None, self.agent):
            async for entry in archive.with_words(self._universe, self.agent, terms, tags):
                yield text_of("entry", entry.id, entry.agent, "", entry.text, " ".join(sorted(entry.tags)))
