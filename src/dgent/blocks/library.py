"""The library: an agent's blocks."""

from __future__ import annotations

import builtins
import difflib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from dgent import clock, ids
from dgent.blocks import (
    activity,
    archive,
    audit,
    constellation,
    errors,
    gate,
    notice,
    rolling,
    search,
    sharing,
)
from dgent.blocks.access import Caller, Card, Reader
from dgent.blocks.activity import Activity
from dgent.blocks.archive import Entry
from dgent.blocks.audit import Refusal
from dgent.blocks.block import Block
from dgent.blocks.budget import Context, Tokens, estimate
from dgent.blocks.bulk import Drawn
from dgent.blocks.chain import Chain
from dgent.blocks.constellation import Groups, Roster, one_of
from dgent.blocks.context import Wanted, context, names_of
from dgent.blocks.editable import check_text
from dgent.blocks.filling import first_content, new_card
from dgent.blocks.kind import BLOCK_KINDS, CONSTELLATION
from dgent.blocks.notice import Notice
from dgent.blocks.permit import Consent, Permit, Request, agreed
from dgent.blocks.record import (
    BLOCK,
    ROOM,
    SCHEMAS,
    AuditRecord,
    share_id,
)
from dgent.blocks.search import Hit, Text
from dgent.blocks.sharing import Share
from dgent.blocks.template import LIMIT, Given, find
from dgent.blocks.version import Version
from dgent.blocks.viewport import VIEW, check_view
from dgent.errors import InputError
from dgent.model.query import Query
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

CONSENT_S = 60.0


class Library:
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
        consent: Consent | None = None,
        consent_s: float = CONSENT_S,
    ) -> None:
        if ids.check_name(agent, "agent") == CONSTELLATION:
            raise InputError(f"{CONSTELLATION} is no agent: give its blocks by owner=", field="agent")
        self.agent = agent
        self.trust = gate.check_trust(trust)
        universe.register(*SCHEMAS)
        self._universe = universe.for_room(ROOM)
        self._universe.author = agent  # who its commits are by, whoever the universe is opened for
        self._caller = Caller(agent, self.trust)
        self._consent, self._consent_s = consent, consent_s
        self.agents, self.groups = Roster(self), Groups(self)
        self._drawn: dict[str, Drawn] = {}  # texts of versions, which never change

    # -- blocks -------------------------------------------------------------------------------

    async def create(
        self,
        label: str,
        *,
        template: Given = None,
        document: str | None = None,
        description: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        permission: str | None = None,
        pinned: bool = False,
        text: str | None = None,
        value: Any = None,
        owner: str | None = None,
    ) -> Block:
        """Make a block of this agent's, or of all with `owner="_constellation_"`; its label must be free.

        A template says what it holds and what is not given here. `value` is what it holds at first: the text
        of a text (or `text=`), the fields of a map, the items of a list, the sections of a composite.
        """
        await self._may("manage", label, "create")
        whose = self.agent if owner is None else owner
        if whose not in (self.agent, CONSTELLATION):
            raise InputError(f"{self.agent} makes no blocks of {whose!r}", field="owner")
        if text is not None and value is not None:
            raise InputError("text= and value= are the same thing", hint="give one of them")
        given = {"kind": kind, "limit": limit, "description": description, "permission": permission}
        fields = {name: each for name, each in given.items() if each is not None}
        _check_card(fields)
        ids.check_name(label, "label")
        card = new_card(find(template, document), owner=whose, label=label, pinned=pinned is True, **fields)
        content, size = first_content(card, value if text is None else text)
        id = ids.new_id()
        chain = Chain(self._universe, id)
        first = chain.first(content, size, self.agent)

        async def work(tx: Transaction) -> None:
            await constellation.enrol(tx, self.agent)
            await self._check_free(tx, whose, label)
            await tx.remember(card, id=id)
            await tx.put(first, expect=0)

        await self._universe.transact(work, lock=f"blocks of {whose}", note=f"create {label}")
        return Block(self, self._caller.of_own(await self._universe.get(id)), chain)

    async def get(self, label: str, *, owner: str | None = None) -> Block:
        """A block by its label: this agent's, or one that was shared with it, or that belongs to all.

        Its own comes first. Where several others have shared one of this label, `owner` says whose.
        """
        await self._may("read", label)
        ids.check_name(label, "label")
        own = None if owner not in (None, self.agent) else await self._find(self._universe, self.agent, label)
        if own is not None:
            return Block(self, self._caller.of_own(own))
        others = [] if owner == self.agent else await self._caller.visible(self._universe, label)
        others = [each for each in others if owner in (None, each.card.value.owner)]
        if not others:
            raise await self._missing(label, owner)
        if len(others) > 1:
            owners = [each.card.value.owner for each in others]
            raise errors.LabelAmbiguous(
                f"{len(owners)} agents have shared a block {label!r}: {', '.join(owners)}",
                hint="give owner=",
                owners=owners,
            )
        return Block(self, others[0])

    async def list(self, *, kind: str | None = None, shared: bool = False) -> builtins.list[Block]:
        """This agent's blocks by label; with `shared` also those of others that it may see, by owner."""
        await self._may("read", "")
        if kind is not None:
            one_of(kind, BLOCK_KINDS, "kind")
        look = self._caller.visible if shared else self._caller.own
        found = await look(self._universe)
        return [Block(self, each) for each in found if kind in (None, each.card.value.kind)]

    async def rename(self, label: str, to: str, *, owner: str | None = None) -> Block:
        """Give a block another label."""
        block = await self.get(label, owner=owner)
        ids.check_name(to, "label")

        async def work(tx: Transaction, card: Card) -> None:
            if to != card.value.label:
                await self._check_free(tx, card.value.owner, to)
            await tx.store(card.replace(value=replace(card.value, label=to)))

        await self._manage(block, "rename", work, f"rename {label} to {to}")
        return await self._again(block)

    async def describe(
        self,
        label: str,
        *,
        owner: str | None = None,
        description: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        permission: str | None = None,
    ) -> Block:
        """Change what a block is for, when it is in the context, how long it may be, or its permission.

        A permission that allows more than before needs somebody's consent: else an agent could give
        itself leave to change what it may only read.
        """
        block = await self.get(label, owner=owner)
        given: dict[str, Any] = {
            "description": description,
            "kind": kind,
            "limit": limit,
            "permission": permission,
        }
        fields = {name: value for name, value in given.items() if value is not None}
        _check_card(fields)
        asked: set[str] = set()

        async def work(tx: Transaction, card: Card) -> None:
            wanted = fields.get("permission", card.value.permission)
            if gate.least(wanted, card.value.permission) != wanted and card.value.permission not in asked:
                asked.add(card.value.permission)
                await self._widened(block, card.value.permission, wanted)
            await tx.store(card.replace(value=replace(card.value, **fields)))

        await self._manage(block, "describe", work, f"describe {label}")
        return await self._again(block)

    async def pin(self, label: str, pinned: bool = True, *, owner: str | None = None) -> Block:
        """Keep a working block in the context, or no longer."""
        block = await self.get(label, owner=owner)

        async def work(tx: Transaction, card: Card) -> None:
            await tx.store(card.replace(value=replace(card.value, pinned=pinned is True)))

        await self._manage(block, "pin", work, f"{'pin' if pinned else 'unpin'} {label}")
        return await self._again(block)

    async def view(
        self, label: str, start: int = 1, lines: int | None = None, *, owner: str | None = None
    ) -> Block:
        """Show only some lines of a long text in the context, from one on; without `lines` all of it."""
        block = await self.get(label, owner=owner)
        extra = check_view(block.document_kind, start, lines)

        async def work(tx: Transaction, card: Card) -> None:
            rest = {name: each for name, each in card.value.extra.items() if name != VIEW}
            await tx.store(card.replace(value=replace(card.value, extra=rest | extra)))

        await self._manage(block, "view", work, f"view {label}")
        return await self._again(block)

    async def delete(self, label: str, *, owner: str | None = None) -> None:
        """Remove a block; its label is free at once, and `restore` brings it back with its history."""
        block = await self.get(label, owner=owner)

        async def work(tx: Transaction, card: Card) -> None:
            await tx.store(card.replace(value=replace(card.value, active=False)))

        await self._manage(block, "delete", work, f"delete {label}")

    async def restore(self, label: str, *, to: str | None = None) -> Block:
        """Bring back the block of a label that was deleted last, perhaps under another label.

        It has its history and its shares as before. LabelTaken when another block has the label now.
        """
        await self._may("manage", label)
        wanted = ids.check_name(label if to is None else to, "label")

        async def work(tx: Transaction) -> str:
            gone = await self._deleted(tx, ids.check_name(label, "label"))
            if not gone:
                raise errors.BlockNotFound(f"{self.agent} has deleted no block {label!r}", label=label)
            await self._check_free(tx, self.agent, wanted)
            await tx.store(gone[0].replace(value=replace(gone[0].value, label=wanted, active=True)))
            return gone[0].id

        id = await self._universe.transact(work, note=f"restore {label}")
        standing = await self._caller.standing(self._universe, id, self.agent)
        if standing is None:
            raise errors.BlockNotFound(f"the block {wanted!r} was deleted again", label=wanted)
        return Block(self, standing)

    async def deleted(self) -> builtins.list[str]:
        """The labels of this agent's deleted blocks, the last one first."""
        await self._may("read", "")
        return [card.value.label for card in await self._deleted(self._universe)]

    async def _deleted(self, reader: Reader, label: str | None = None) -> builtins.list[Card]:
        where = {"owner": self.agent, "active": False} | ({} if label is None else {"label": label})
        found = await reader.recall(Query(schema=BLOCK.name, where=where, limit=None))
        return sorted(found, key=lambda card: card.seq or 0, reverse=True)

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
        """Who did what to the blocks that this agent may see, since a commit or a time; newest first."""
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
            for block in await self.list(kind=kind, shared=True):
                if owner in (None, block.owner):
                    await block._chain.refresh()
                    text = search.flat(block._chain.document.value())
                    yield Text(block.kind, block.id, block.owner, block.label, text, block.description)
        if kind in (None, "entry") and owner in (None, self.agent):
            async for entry in archive.with_words(self._universe, self.agent, terms, tags):
                yield Text("entry", entry.id, entry.agent, "", entry.text, " ".join(sorted(entry.tags)))

    # -- how a card changes -----------------------------------------------------------------------

    async def _manage(
        self, block: Block, what: str, work: Callable[[Transaction, Card], Awaitable[None]], note: str
    ) -> None:
        """Change a block's card or shares, if the agent may, in a transaction that sees whether it may."""
        permit = await self._check(block, "manage", what)

        async def checked(tx: Transaction) -> None:
            await permit.renew(tx)
            await work(tx, permit.standing.card)

        await self._universe.transact(checked, note=note)

    async def _again(self, block: Block) -> Block:
        """The block as it is after a change of its card."""
        await self._check(block, "read", "read")
        return block

    async def _find(self, reader: Reader, owner: str, label: str) -> Card | None:
        query = Query(schema=BLOCK.name, where={"label": label, "owner": owner, "active": True}, limit=1)
        found = await reader.recall(query)
        return found[0] if found else None

    async def _check_free(self, reader: Reader, owner: str, label: str) -> None:
        if await self._find(reader, owner, label) is not None:
            raise errors.LabelTaken(f"{owner} has a block {label!r} already", label=label)

    async def _missing(self, label: str, owner: str | None) -> errors.BlockNotFound:
        """The error for a label that leads nowhere: with the labels that are near it."""
        seen = await self._caller.visible(self._universe)
        labels = [each.card.value.label for each in seen if owner in (None, each.card.value.owner)]
        near = difflib.get_close_matches(label, labels, 3)
        whose = f"{owner} shares no" if owner not in (None, self.agent) else f"{self.agent} has no"
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "`list(shared=True)` shows them"
        return errors.BlockNotFound(f"{whose} block {label!r}", hint=hint, label=label)

    # -- who may do what ------------------------------------------------------------------------

    async def _check(self, block: Block, operation: str, what: str) -> Permit:
        """The one gate that everything passes; asks for consent where the permission wants it."""
        return await Permit(self, block, operation, what).ask()

    async def _agreed(self, label: str, operation: str, what: str, reason: str) -> bool:
        request = Request(self.agent, label, operation, what, reason)
        return await agreed(self._consent, request, self._consent_s)

    async def _widened(self, block: Block, before: str, after: str) -> None:
        who = "a human" if before == "human" else "the partner"
        judgement = gate.Judgement("consent", f"{who} must agree to allow {after} instead of {before}")
        if await self._agreed(block.label, "manage", "describe", judgement.reason):
            return
        message = f"describe of {block.label!r} is denied: {judgement.reason}, and nobody did"
        error = errors.ConsentRefused(message, label=block.label, operation="manage")
        raise await self._refused(error, judgement, "manage", "describe", block.label, block.owner, block.id)

    async def _may(self, operation: str, label: str, what: str = "") -> None:
        """The gate for what is not about one block: the caller's trust alone decides."""
        judgement = gate.judge(operation, "admin", self.trust)
        if judgement.verdict != "allow":
            error = gate.denied(label, what or operation, judgement)
            raise await self._refused(error, judgement, operation, what or operation, label)

    async def _refused(
        self,
        error: errors.PermissionDenied,
        judgement: gate.Judgement,
        operation: str,
        what: str,
        label: str,
        owner: str = "",
        block: str = "",
    ) -> errors.PermissionDenied:
        """Keep that something was refused; returns the error to raise."""
        record = AuditRecord(
            *(self.agent, self.trust, owner, str(label)[: audit.MAX_REASON], what, operation),
            *(judgement.verdict, judgement.reason[: audit.MAX_REASON], block),
        )
        await audit.note(self._universe, record, error)
        return error

    async def _author(self, block: Block, what: str, by: str | None) -> str:
        """Who a change is by. Only who speaks for the partner may write in another name."""
        if by is None or by == self.agent:
            return self.agent
        if self.trust != "partner":
            judgement = gate.Judgement("deny", f"a caller of trust {self.trust} writes as {self.agent}")
            told = ("write", what, block.label, block.owner, block.id)
            raise await self._refused(gate.denied(block.label, what, judgement), judgement, *told)
        return ids.check_name(by, "by")

    def _stamped(self, entry: dict[str, Any], by: str | None) -> dict[str, Any]:
        return {**entry, "at": clock.text(clock.now()), "agent": by or self.agent}


def _check_card(fields: dict[str, Any]) -> None:
    """Check what is given for a card, and bring the permission into its plain spelling."""
    if "kind" in fields:
        one_of(fields["kind"], BLOCK_KINDS, "kind")
    if "description" in fields and not isinstance(fields["description"], str):
        raise InputError("a description is text", field="description")
    limit = fields.get("limit", LIMIT)
    if type(limit) is not int or not 1 <= limit < 2**53:
        raise InputError(f"a limit is a number of characters from 1, not {limit!r}", field="limit")
    if "permission" in fields:
        fields["permission"] = gate.check_permission(fields["permission"])
