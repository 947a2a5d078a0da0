"""The library: an agent's blocks."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from dgent import ids
from dgent.blocks.access import audit, sharing
from dgent.blocks.access import permission as gate
from dgent.blocks.access.agents import Groups, Roster, one_of
from dgent.blocks.access.audit import Refusal
from dgent.blocks.access.authority import CONSENT_S
from dgent.blocks.access.permission import Request
from dgent.blocks.access.sharing import Share
from dgent.blocks.access.standing import Card
from dgent.blocks.context import activity, archive, search
from dgent.blocks.context import notices as notice
from dgent.blocks.context.activity import Activity
from dgent.blocks.context.archive import Entry
from dgent.blocks.context.budget import Context, Tokens, estimate
from dgent.blocks.context.bulk import Drawn
from dgent.blocks.context.context import Wanted, context, names_of
from dgent.blocks.context.notices import Notice
from dgent.blocks.context.search import Fulltexts, Hit, Text, text_of
from dgent.blocks.edit import rolling
from dgent.blocks.edit.editable import check_text
from dgent.blocks.folder import sync as syncing
from dgent.blocks.folder.report import FolderReport
from dgent.blocks.history.version import Version
from dgent.blocks.kind import BLOCK_KINDS
from dgent.blocks.record import share_id
from dgent.blocks.records import Cards
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe


class Library(Cards):
    """The blocks of one agent in a universe: `Library(u, agent="scout")`.

    `trust` is that of whoever uses this handle. `consent` is asked where a block's permission wants the
    partner or a human to agree; without one, or without an answer within `consent_s`, nothing is done.
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
        self._drawn: dict[str, Drawn] = {}  # texts of versions, which never change
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
        """Give a block to another agent, or to the members of a group; once more changes the permission."""
        allowed = gate.check_permission(permission)
        block = await self.get(label, owner=owner)

        async def work(tx: Transaction, card: Card) -> None:
            await sharing.put(tx, card, self.agent, with_agent, with_group, allowed)

        await self._manage(block, "share", work, f"share {label} with {with_agent or with_group}")

    async def unshare(
        self,
        label: str,
        *,
        with_agent: str | None = None,
        with_group: str | None = None,
        owner: str | None = None,
    ) -> bool:
        """Take a block back from an agent or a group; False when it was not shared with them."""
        block = await self.get(label, owner=owner)
        was: builtins.list[bool] = []

        async def work(tx: Transaction, card: Card) -> None:
            id = share_id(card.id, await sharing.recipient(tx, with_agent, with_group))
            was[:] = [await tx.exists(id)]
            if was[0]:
                await tx.delete(id)

        await self._manage(block, "unshare", work, f"unshare {label} with {with_agent or with_group}")
        return was[0]

    async def shared(self) -> builtins.list[Share]:
        """What this agent has given to others and what others have given to it, its own first."""
        await self._may("read", "")
        return await sharing.shares(self._universe, self._caller)

    async def refusals(self, limit: int = 100) -> builtins.list[Refusal]:
        """What this agent was refused, and what others were refused of its blocks; newest first."""
        await self._may("read", "")
        return await audit.refusals(self._universe, self.agent, limit)

    # -- what others do -----------------------------------------------------------------------------

    async def notices(self, *, mark: bool = False) -> builtins.list[Notice]:
        """What others did to the blocks that this agent may see, since it last looked, with the difference.

        With `mark` it has looked now: they are told once.
        """
        await self._may("read", "", "notices")
        return await notice.notices(self, mark)

    async def activity(
        self, since: int | datetime | None = None, *, limit: int = 50
    ) -> builtins.list[Activity]:
        """Who did what to blocks that this agent may see, since a commit or a time; newest first.

        Also to its archival entries, and to the crumbs and trails of the store, which belong to all agents.
        """
        await self._may("read", "", "activity")
        return await activity.activity(self, since, limit)

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
        """The memory part of a prompt: core blocks, working blocks that are pinned or referenced, and logs.

        It is never more than `budget_tokens`, as `tokens` counts them; what is cut is named at the end, and
        a block of a higher priority is cut later. With `changes` it ends with what others did to these blocks
        since the agent last looked, and `mark` keeps that it has looked now. With `since`, a commit or a
        time, it has the newest of what was done after that.
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
        """As `render`, with how many tokens it is and which blocks are whole, shortened and cut."""
        await self._may("read", "", "render")
        wanted = Wanted(budget_tokens, names_of(referenced), priorities or {}, changes, since, mark, tokens)
        return await context(self, wanted)

    # -- rolling logs -------------------------------------------------------------------------

    async def log_tool(
        self, tool: str, result: Any = None, *, ok: bool = True, label: str = rolling.LABEL
    ) -> Version:
        """Note in the agent's rolling log that a tool was used, and what came of it."""
        entry = {"tool": ids.check_name(tool, "tool"), "result": result, "ok": None if ok else False}
        return await rolling.log(self, "tool", entry, label)

    async def log_event(self, event: str, details: Any = None, *, label: str = rolling.LABEL) -> Version:
        """Note in the agent's rolling log that something happened."""
        entry = {"event": ids.check_name(event, "event"), "details": details}
        return await rolling.log(self, "event", entry, label)

    async def log_summary(
        self, summary: str, count: int | None = None, *, label: str = rolling.LABEL
    ) -> Version:
        """Note in the agent's rolling log what so many messages came to."""
        return await rolling.log(self, "summary", {"summary": check_text(summary), "count": count}, label)

    # -- files ------------------------------------------------------------------------------------

    async def sync(
        self,
        folder: str | os.PathLike[str],
        *,
        by: str | None = None,
        dry_run: bool = False,
        wait_s: float = syncing.WAIT_S,
    ) -> FolderReport:
        """Make a folder of files and the blocks that this agent may see agree.

        Each block is a file that can be edited, and a small one that describes it. What was edited in them
        is taken in through the gate as versions by `by`, merged with what happened to the blocks since;
        then files are written anew. With `dry_run` it is only told what would be done.
        """
        await self._may("read", "", "sync")
        return await syncing.sync(self, folder, by, dry_run, wait_s)

    async def follow_folder(
        self, folder: str | os.PathLike[str], *, every: float = 1.0, by: str | None = None
    ) -> AsyncIterator[FolderReport]:
        """Sync a folder every so many seconds, as long as it is asked; gives each report that has news."""
        await self._may("read", "", "sync")
        async for report in syncing.follow(self, folder, every, by):
            yield report

    # -- the archive --------------------------------------------------------------------------------

    async def archive(self, text: str, *, tags: Iterable[str] = ()) -> Entry:
        """Put a text away, to be found by search."""
        await self._may("append", "", "archive")
        return await archive.put(self._universe, self.agent, text, tags)

    async def archived(self, id: str) -> Entry:
        """An archival entry of this agent."""
        await self._may("read", "", "archived")
        return await archive.get(self._universe, self.agent, id)

    async def unarchive(self, id: str, *, forget: bool = False) -> None:
        """Delete an archival entry. History has it still; `forget`, for the partner alone, leaves none."""
        await self._may("erase" if forget else "manage", "", "unarchive")
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
        """Find a text in the blocks and archival entries that this agent may see, the best first.

        Any text can be searched for: what is no letter or digit sets words apart. `kind` is core, working,
        archival, log, or entry; `tags` are those of entries.
        """
        await self._may("read", "", "search")
        if kind is not None:
            one_of(kind, (*BLOCK_KINDS, "entry"), "kind")
        terms = search.terms_of(query)
        texts = self._texts(terms, kind, owner, ids.check_tags(tags))
        return await search.found(texts, terms, limit)

    async def _texts(
        self, terms: builtins.list[str], kind: str | None, owner: str | None, tags: frozenset[str]
    ) -> AsyncIterator[Text]:
        """The texts to look through; of the entries only those that have some of the words."""
        if kind != "entry" and not tags:
            visible = [each.card for each in await self._caller.visible(self._universe)]
            self._fulltexts.keep([card.id for card in visible])
            wanted = [card for card in visible if kind in (None, card.value.kind)]
            wanted = [card for card in wanted if owner in (None, card.value.owner)]
            for text in await self._fulltexts.of(self._universe, wanted):
                yield text
        if kind in (None, "entry") and owner in (None, self.agent):
            async for entry in archive.with_words(self._universe, self.agent, terms, tags):
                yield text_of("entry", entry.id, entry.agent, "", entry.text, " ".join(sorted(entry.tags)))
