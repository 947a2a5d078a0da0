"""The library: an agent's blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from dgent import clock, ids
from dgent.blocks import errors, gate
from dgent.blocks.block import Block
from dgent.blocks.chain import Chain
from dgent.blocks.kind import BLOCK_KINDS, DOCUMENT_KINDS
from dgent.blocks.record import BLOCK, ROOM, SCHEMAS, BlockRecord
from dgent.errors import InputError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

LIMIT = 5000
CONSENT_S = 60.0


@dataclass(frozen=True)
class Request:
    """What somebody is asked to agree to."""

    agent: str
    label: str
    operation: str
    what: str
    reason: str


Consent = Callable[[Request], Awaitable[bool] | bool]


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
        self.agent = ids.check_name(agent, "agent")
        self.trust = gate.check_trust(trust)
        universe.register(*SCHEMAS)
        self._universe = universe.for_room(ROOM)
        self._consent, self._consent_s = consent, consent_s

    # -- blocks -------------------------------------------------------------------------------

    async def create(
        self,
        label: str,
        *,
        kind: str = "working",
        document: str = "text",
        description: str = "",
        template: str = "",
        limit: int = LIMIT,
        permission: str = "read_write",
        pinned: bool = False,
        text: str = "",
    ) -> Block:
        """Make a block of this agent's; its label must be free."""
        self._may("overwrite", label)
        _one_of(kind, BLOCK_KINDS, "kind")
        _one_of(document, DOCUMENT_KINDS, "document")
        if type(limit) is not int or limit < 1:
            raise InputError(f"a limit is a number of characters from 1, not {limit!r}", field="limit")
        card = BlockRecord(
            self.agent,
            ids.check_name(label, "label"),
            kind,
            document,
            description,
            template,
            limit=limit,
            permission=gate.check_permission(permission),
            pinned=pinned,
        )
        if len(text) > limit:
            raise errors.LimitExceeded(f"the text has {len(text)} characters; the limit is {limit}")
        id = ids.new_id()
        chain = Chain(self._universe, id)
        chain.document.splice(0, 0, text)
        first = chain.first(self.agent)

        async def work(tx: Transaction) -> None:
            if await self._find(tx, self.agent, label) is not None:
                raise errors.LabelTaken(f"{self.agent} has a block {label!r} already", label=label)
            await tx.remember(card, id=id)
            await tx.put(first, expect=0)

        await self._universe.transact(work, note=f"block {label}")
        return await self.get(label)

    async def get(self, label: str, *, owner: str | None = None) -> Block:
        """A block by its label, of this agent or of another that has shared it."""
        card = await self._find(self._universe, owner or self.agent, label)
        permission = None if card is None else await self._permission(card)
        if card is None or permission is None:
            raise errors.BlockNotFound(f"{owner or self.agent} has no block {label!r}", label=label)
        return Block(self, card, permission)

    async def list(self, *, kind: str | None = None) -> list[Block]:
        """This agent's blocks, by label."""
        where = {"owner": self.agent, "active": True} | ({} if kind is None else {"kind": kind})
        found = await self._universe.recall(Query(schema=BLOCK.name, where=where, limit=None))
        blocks = [Block(self, card, await self._permission(card) or "read_only") for card in found]
        return sorted(blocks, key=lambda block: block.label)

    async def rename(self, label: str, to: str) -> Block:
        """Give a block another label."""
        block = await self.get(label)
        await self._check(block, "overwrite", "rename")

        async def work(tx: Transaction) -> None:
            if await self._find(tx, block.owner, ids.check_name(to, "label")) is not None:
                raise errors.LabelTaken(f"{block.owner} has a block {to!r} already", label=to)
            await self._recard(tx, block.id, label=to)

        await self._universe.transact(work, note=f"block {label} is {to}")
        return await self.get(to)

    async def delete(self, label: str) -> None:
        """Remove a block; its label is free at once, and `restore` brings it back with its history."""
        block = await self.get(label)
        await self._check(block, "delete", "delete")
        await self._universe.transact(
            lambda tx: self._recard(tx, block.id, active=False), note=f"delete block {label}"
        )

    async def pin(self, label: str, pinned: bool = True) -> Block:
        """Keep a working block in the context, or no longer."""
        block = await self.get(label)
        await self._check(block, "overwrite", "pin")
        await self._universe.transact(
            lambda tx: self._recard(tx, block.id, pinned=pinned), note=f"pin block {label}"
        )
        return await self.get(label)

    async def _recard(self, tx: Transaction, id: str, **fields: Any) -> None:
        card = await tx.get(id)
        if not isinstance(card, Crystal):
            raise errors.BlockNotFound(f"there is no block {id!r}")
        await tx.store(card.replace(value=replace(card.value, **fields)))

    async def _find(
        self, reader: Universe | Transaction, owner: str, label: str
    ) -> Crystal[BlockRecord] | None:
        query = Query(schema=BLOCK.name, where={"label": label, "owner": owner, "active": True}, limit=1)
        found = await reader.recall(query)
        return found[0] if found else None

    # -- who may do what ------------------------------------------------------------------------

    async def _permission(self, card: Crystal[BlockRecord]) -> str | None:
        """What this agent may do with a block; None when it may not even see it."""
        if card.value.owner == self.agent:
            return card.value.permission if card.value.permission != "read_write" else "admin"
        return None

    async def _check(self, block: Block, operation: str, what: str) -> None:
        """The one gate that everything passes; asks for consent where the permission wants it."""
        judgement = gate.judge(operation, block.permission, self.trust)
        if judgement.verdict == "deny":
            raise gate.denied(block.label, what, judgement)
        if judgement.verdict == "consent" and not await self._agreed(
            block, operation, what, judgement.reason
        ):
            raise errors.ConsentRefused(
                f"{what} of the block {block.label!r} is denied: {judgement.reason}, and nobody did",
                label=block.label,
                operation=operation,
            )

    async def _agreed(self, block: Block, operation: str, what: str, reason: str) -> bool:
        if self._consent is None:
            return False
        request = Request(self.agent, block.label, operation, what, reason)
        try:
            async with asyncio.timeout(self._consent_s):
                answer = self._consent(request)
                return (await answer if isinstance(answer, Awaitable) else answer) is True
        except TimeoutError:
            return False

    def _may(self, operation: str, label: str) -> None:
        judgement = gate.judge(operation, "admin", self.trust)
        if judgement.verdict != "allow":
            raise gate.denied(label, operation, judgement)

    def _author(self, by: str | None) -> str:
        return self.agent if by is None else ids.check_name(by, "by")

    def _stamped(self, entry: Any, by: str | None) -> dict[str, Any]:
        data = dict(entry) if isinstance(entry, dict) else {"message": entry}
        return {"at": clock.text(clock.now()), "agent": self._author(by), **data}


def _one_of(value: str, known: tuple[str, ...], field: str) -> None:
    if value not in known:
        raise InputError(f"{value!r} is no {field}", hint=f"use one of {', '.join(known)}", field=field)
