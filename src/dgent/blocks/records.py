"""The cards of blocks: making, finding, describing, deleting and bringing back an agent's blocks."""

from __future__ import annotations

import builtins
import difflib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.access import agents
from dgent.blocks.access import permission as gate
from dgent.blocks.access.agents import one_of
from dgent.blocks.access.authority import Authority
from dgent.blocks.access.standing import Card, Reader
from dgent.blocks.block import Block
from dgent.blocks.context.context import VIEW, check_view
from dgent.blocks.document import shape as shapes
from dgent.blocks.document.default import first_content, new_card
from dgent.blocks.document.template import LIMIT, Given, find
from dgent.blocks.document.validate import check_fit, unlocked
from dgent.blocks.errors import missing
from dgent.blocks.history.log import Chain
from dgent.blocks.history.retain import check_retain, retaining
from dgent.blocks.kind import BLOCK_KINDS, CONSTELLATION
from dgent.blocks.record import BLOCK, version_id
from dgent.errors import DgentError, InputError, VersionConflict
from dgent.model.query import Query
from dgent.universe.transaction import Transaction

NEAR = 200  # of an agent's newest blocks are compared with a label that is not there


class Cards(Authority):
    """The part of a library that keeps its blocks' cards."""

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
        if whose == CONSTELLATION and self.trust != "partner":  # it would be in the prompt of every agent
            judgement = gate.Judgement("deny", "only the partner may make a block that belongs to all")
            error = gate.denied(label, "create", judgement)
            raise await self._refused(error, judgement, "manage", "create", label, whose)
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
            await agents.enrol(tx, self.agent)
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
        others = [] if owner == self.agent else await self._caller.visible(self._universe, {"label": label})
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

    async def by_id(self, id: str) -> Block:
        """A block by its id: this agent's, or one that was shared with it, or that belongs to all."""
        await self._may("read", "", "by_id")
        standing = await self._caller.standing_by_id(self._universe, ids.check_id(id))
        if standing is None:
            raise errors.BlockNotFound(f"{self.agent} has no block of the id {id!r}", id=id)
        return Block(self, standing)

    async def list(self, *, kind: str | None = None, shared: bool = False) -> builtins.list[Block]:
        """This agent's blocks by label; with `shared` also those of others that it may see, by owner."""
        await self._may("read", "")
        if kind is not None:
            one_of(kind, BLOCK_KINDS, "kind")
        look = self._caller.visible if shared else self._caller.own
        found = await look(self._universe, {} if kind is None else {"kind": kind})
        return [Block(self, each) for each in found]

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
        template: Given = None,
    ) -> Block:
        """Change what a block is for, when it is in the context, how long it may be, or its permission.

        A `template` gives it another shape, for the same kind of document, which what it holds must fit; all
        else stays. What allows more than before needs somebody's consent: else an agent could give itself
        leave to change what it may only read.
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
        if template is not None:
            made = find(template)
            fields |= {"template": made.name, "shape": shapes.dump(made.shape)}
        asked: set[str] = set()

        async def agreed(before: str, what: str) -> None:
            if what not in asked:  # nobody is asked twice for one thing
                await self._widened(block, before, what)
                asked.add(what)

        async def work(tx: Transaction, card: Card) -> None:
            before, wanted = card.value.permission, fields.get("permission", card.value.permission)
            if gate.least(wanted, before) != wanted:
                await agreed(before, f"{wanted} instead of {before}")
            if template is not None:
                old = shapes.load(card.value.document, card.value.shape)
                for name in unlocked(old, made.shape):
                    await agreed(before, f"changes of {name}")
                check_fit(old, made.shape, await block._chain.newest(tx))
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

    async def retain(self, label: str, keep: int | None, *, owner: str | None = None) -> Block:
        """Keep so many of a block's newest versions from now on, and those with a checkpoint; None for all.

        Older ones are compacted now and then, as `Block.compact` does it. Only the partner may say so.
        """
        block = await self.get(label, owner=owner)
        wanted = check_retain(keep)

        async def work(tx: Transaction, card: Card) -> None:
            await tx.store(retaining(card, wanted))

        await self._manage(block, "retain", work, f"retain {keep or 'all'} versions of {label}", "erase")
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
        await self._remove(await self.get(label, owner=owner))

    async def _remove(self, block: Block, *, at: int | None = None) -> None:
        """Delete a block, perhaps only if it is still at a version."""

        async def work(tx: Transaction, card: Card) -> None:
            if at is not None and await tx.exists(version_id(card.id, at + 1)):
                raise VersionConflict(
                    f"the block {card.value.label!r} is not at version {at} any more", id=card.id
                )
            await tx.store(card.replace(value=replace(card.value, active=False)))

        await self._manage(block, "delete", work, f"delete {block.label}")

    async def restore(self, label: str, *, to: str | None = None) -> Block:
        """Bring back the block of a label that was deleted last, perhaps under another label.

        It has its history and its shares as before. LabelTaken when another block has the label now.
        """
        await self._may("manage", label)
        wanted = ids.check_name(label if to is None else to, "label")
        agreed: set[str] = set()

        async def work(tx: Transaction) -> str:
            gone = await self._deleted(tx, ids.check_name(label, "label"))
            if not gone:
                raise errors.BlockNotFound(f"{self.agent} has deleted no block {label!r}", label=label)
            judgement = gate.judge_card(gone[0].value.permission, self.trust)
            if judgement.verdict == "consent" and judgement.reason not in agreed:
                await self._ask(judgement, "restore", gone[0])
                agreed.add(judgement.reason)
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

    # -- how a card changes -----------------------------------------------------------------------

    async def _manage(
        self,
        block: Block,
        what: str,
        work: Callable[[Transaction, Card], Awaitable[None]],
        note: str,
        operation: str = "manage",
    ) -> None:
        """Change a block's card or shares, if the agent may, in a transaction that sees whether it may."""
        permit = await self._check(block, operation, what)

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

    async def _missing(self, label: str, owner: str | None) -> DgentError:
        """The error for a label that leads nowhere: with the labels that are near it."""
        seen = await self._caller.visible(self._universe, limit=NEAR)
        labels = [each.card.value.label for each in seen if owner in (None, each.card.value.owner)]
        near = difflib.get_close_matches(label, labels, 3)
        whose = f"{owner} shares no" if owner not in (None, self.agent) else f"{self.agent} has no"
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "`list(shared=True)` shows them"
        return missing(
            self._universe, errors.BlockNotFound(f"{whose} block {label!r}", hint=hint, label=label)
        )


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
