"""Block headers: create, find, describe, delete and restore an agent's blocks."""

from __future__ import annotations

import builtins
import difflib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.access import agents
from dgent.blocks.access.actor import Header, Reader
from dgent.blocks.access.agents import check_choice
from dgent.blocks.access.permission import (
    AgentPermissions,
    Judgement,
    check_permission,
    denied_error,
    judge_header,
)
from dgent.blocks.block import Block
from dgent.blocks.context.context import VIEW, check_view
from dgent.blocks.document.default import first_content, new_header
from dgent.blocks.document.shape import dump_shape, load_shape
from dgent.blocks.document.template import LIMIT, TemplateLike, find_template
from dgent.blocks.document.validate import check_fit, find_unlocked
from dgent.blocks.errors import missing
from dgent.blocks.history.log import VersionLog
from dgent.blocks.history.retain import check_retain, set_retain
from dgent.blocks.kind import BLOCK_KINDS, CONSTELLATION, least_permission
from dgent.blocks.record import BLOCK, version_id
from dgent.errors import DgentError, InputError, VersionConflict
from dgent.model.query import Query
from dgent.universe.transaction import Transaction

NEAR = 200  # newest blocks of an agent whose labels are compared with an unknown one


class BlockHeaders(AgentPermissions):
    """The part of a library that manages the headers of its blocks."""

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
        pinned: bool = False,
        text: str | None = None,
        value: Any = None,
        owner: str | None = None,
    ) -> Block:
        """Create a block for this agent, or for all with `owner="_constellation_"`; its label must be free.

        The template gives its shape and the defaults of the other options. `value` is its first content: the
        text of a text (or `text=`), the fields of a map, the items of a list, the sections of a composite.
        """
        await self._check_trust("manage", label, "create")
        whose = self.agent if owner is None else owner
        if whose not in (self.agent, CONSTELLATION):
            raise InputError(f"{self.agent} cannot create blocks owned by {whose!r}", field="owner")
        if whose == CONSTELLATION and self.trust != "partner":  # it would be in the prompt of every agent
            judgement = Judgement("deny", "only the partner may create a block that belongs to all")
            error = denied_error(label, "create", judgement)
            raise await self._record_refusal(error, judgement, "manage", "create", label, whose)
        if text is not None and value is not None:
            raise InputError("text= and value= cannot be combined", hint="give one of them")
        given = {"kind": kind, "limit": limit, "description": description, "permission": permission}
        fields = {name: each for name, each in given.items() if each is not None}
        _check_header(fields)
        ids.check_name(label, "label")
        header = new_header(
            find_template(template, document), owner=whose, label=label, pinned=pinned is True, **fields
        )
        content, size = first_content(header, value if text is None else text)
        id = ids.new_id()
        log = VersionLog(self._universe, id)
        first = log.build_first(content, size, self.agent)

        async def work(tx: Transaction) -> None:
            await agents.enrol(tx, self.agent)
            await self._check_free(tx, whose, label)
            await tx.remember(header, id=id)
            await tx.put(first, expect=0)

        await self._universe.transact(work, lock=f"blocks of {whose}", note=f"create {label}")
        return Block(self, self._actor.own_permission(await self._universe.get(id)), log)

    async def get(self, label: str, *, owner: str | None = None) -> Block:
        """Return a block by label: this agent's own, one shared with it, or one that belongs to all.

        Its own comes first. If several agents have shared one with this label, `owner` chooses.
        """
        await self._check_trust("read", label)
        ids.check_name(label, "label")
        own = None if owner not in (None, self.agent) else await self._find(self._universe, self.agent, label)
        if own is not None:
            return Block(self, self._actor.own_permission(own))
        others = (
            [] if owner == self.agent else await self._actor.find_visible(self._universe, {"label": label})
        )
        others = [each for each in others if owner in (None, each.header.value.owner)]
        if not others:
            raise await self._missing(label, owner)
        if len(others) > 1:
            owners = [each.header.value.owner for each in others]
            raise errors.LabelAmbiguous(
                f"{len(owners)} agents have shared a block {label!r}: {', '.join(owners)}",
                hint="give owner=",
                owners=owners,
            )
        return Block(self, others[0])

    async def get_by_id(self, id: str) -> Block:
        """Return a block by id: this agent's own, one shared with it, or one that belongs to all."""
        await self._check_trust("read", "", "get_by_id")
        block_permission = await self._actor.find_permission_by_id(self._universe, ids.check_id(id))
        if block_permission is None:
            raise errors.BlockNotFound(f"{self.agent} has no block with the id {id!r}", id=id)
        return Block(self, block_permission)

    async def list(self, *, kind: str | None = None, shared: bool = False) -> builtins.list[Block]:
        """Return this agent's blocks by label; with `shared` also the others it may see, by owner."""
        await self._check_trust("read", "")
        if kind is not None:
            check_choice(kind, BLOCK_KINDS, "kind")
        look = self._actor.find_visible if shared else self._actor.find_own
        found = await look(self._universe, {} if kind is None else {"kind": kind})
        return [Block(self, each) for each in found]

    async def rename(self, label: str, to: str, *, owner: str | None = None) -> Block:
        """Change the label of a block."""
        block = await self.get(label, owner=owner)
        ids.check_name(to, "label")

        async def work(tx: Transaction, header: Header) -> None:
            if to != header.value.label:
                await self._check_free(tx, header.value.owner, to)
            await tx.store(header.replace(value=replace(header.value, label=to)))

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
        template: TemplateLike = None,
    ) -> Block:
        """Change the description, kind, limit, permission or template of a block.

        A `template` changes the shape for the same kind of document; the content must fit it. A change that
        allows more than before needs consent, so that an agent cannot give itself permission to write what it
        may only read.
        """
        block = await self.get(label, owner=owner)
        given: dict[str, Any] = {
            "description": description,
            "kind": kind,
            "limit": limit,
            "permission": permission,
        }
        fields = {name: value for name, value in given.items() if value is not None}
        _check_header(fields)
        if template is not None:
            made = find_template(template)
            fields |= {"template": made.name, "shape": dump_shape(made.shape)}
        asked: set[str] = set()

        async def require_consent(before: str, what: str) -> None:
            if what not in asked:  # consent is asked once for each
                await self._ask_to_widen(block, before, what)
                asked.add(what)

        async def work(tx: Transaction, header: Header) -> None:
            before, wanted = header.value.permission, fields.get("permission", header.value.permission)
            if least_permission(wanted, before) != wanted:
                await require_consent(before, f"{wanted} instead of {before}")
            if template is not None:
                old = load_shape(header.value.document, header.value.shape)
                for name in find_unlocked(old, made.shape):
                    await require_consent(before, f"changes of {name}")
                check_fit(old, made.shape, await block._version_log.newest(tx))
            await tx.store(header.replace(value=replace(header.value, **fields)))

        await self._manage(block, "describe", work, f"describe {label}")
        return await self._again(block)

    async def pin(self, label: str, pinned: bool = True, *, owner: str | None = None) -> Block:
        """Keep a working block in the context, or stop keeping it there."""
        block = await self.get(label, owner=owner)

        async def work(tx: Transaction, header: Header) -> None:
            await tx.store(header.replace(value=replace(header.value, pinned=pinned is True)))

        await self._manage(block, "pin", work, f"{'pin' if pinned else 'unpin'} {label}")
        return await self._again(block)

    async def retain(self, label: str, keep: int | None, *, owner: str | None = None) -> Block:
        """Keep this many of the newest versions, and those with a checkpoint, from now on; None for all.

        Older versions are compacted from time to time, as by `Block.compact`. Only the partner may.
        """
        block = await self.get(label, owner=owner)
        wanted = check_retain(keep)

        async def work(tx: Transaction, header: Header) -> None:
            await tx.store(set_retain(header, wanted))

        await self._manage(block, "retain", work, f"retain {keep or 'all'} versions of {label}", "erase")
        return await self._again(block)

    async def view(
        self, label: str, start: int = 1, lines: int | None = None, *, owner: str | None = None
    ) -> Block:
        """Show only `lines` lines of a long text in the context, from `start`; without `lines` all of it."""
        block = await self.get(label, owner=owner)
        extra = check_view(block.document_kind, start, lines)

        async def work(tx: Transaction, header: Header) -> None:
            rest = {name: each for name, each in header.value.extra.items() if name != VIEW}
            await tx.store(header.replace(value=replace(header.value, extra=rest | extra)))

        await self._manage(block, "view", work, f"view {label}")
        return await self._again(block)

    async def delete(self, label: str, *, owner: str | None = None) -> None:
        """Delete a block; its label is free at once, and `restore` brings it back with its history."""
        await self._remove(await self.get(label, owner=owner))

    async def _remove(self, block: Block, *, at: int | None = None) -> None:
        """Delete a block; with `at` only if that is still its newest version."""

        async def work(tx: Transaction, header: Header) -> None:
            if at is not None and await tx.exists(version_id(header.id, at + 1)):
                raise VersionConflict(
                    f"the block {header.value.label!r} is no longer at version {at}", id=header.id
                )
            await tx.store(header.replace(value=replace(header.value, active=False)))

        await self._manage(block, "delete", work, f"delete {block.label}")

    async def restore(self, label: str, *, to: str | None = None) -> Block:
        """Restore the block of a label that was deleted last, optionally under another label.

        It has its history and its shares as before. Raises LabelTaken when another block has the label now.
        """
        await self._check_trust("manage", label)
        wanted = ids.check_name(label if to is None else to, "label")
        asked: set[str] = set()

        async def work(tx: Transaction) -> str:
            gone = await self._find_deleted(tx, ids.check_name(label, "label"))
            if not gone:
                raise errors.BlockNotFound(f"{self.agent} has no deleted block {label!r}", label=label)
            judgement = judge_header(gone[0].value.permission, self.trust)
            if judgement.verdict == "consent" and judgement.reason not in asked:
                await self._require_consent(judgement, "restore", gone[0])
                asked.add(judgement.reason)
            await self._check_free(tx, self.agent, wanted)
            await tx.store(gone[0].replace(value=replace(gone[0].value, label=wanted, active=True)))
            return gone[0].id

        id = await self._universe.transact(work, note=f"restore {label}")
        block_permission = await self._actor.find_permission(self._universe, id, self.agent)
        if block_permission is None:
            raise errors.BlockNotFound(f"the block {wanted!r} was deleted again", label=wanted)
        return Block(self, block_permission)

    async def list_deleted(self) -> builtins.list[str]:
        """Return the labels of this agent's deleted blocks, the last deleted first."""
        await self._check_trust("read", "")
        return [header.value.label for header in await self._find_deleted(self._universe)]

    async def _find_deleted(self, reader: Reader, label: str | None = None) -> builtins.list[Header]:
        where = {"owner": self.agent, "active": False} | ({} if label is None else {"label": label})
        found = await reader.recall(Query(schema=BLOCK.name, where=where, limit=None))
        return sorted(found, key=lambda header: header.seq or 0, reverse=True)

    # -- changing a header -----------------------------------------------------------------------

    async def _manage(
        self,
        block: Block,
        what: str,
        work: Callable[[Transaction, Header], Awaitable[None]],
        note: str,
        operation: str = "manage",
    ) -> None:
        """Change a block's header or shares in a transaction that checks the permission itself."""
        permission_check = await self._check_permission(block, operation, what)

        async def check_and_work(tx: Transaction) -> None:
            await permission_check.renew(tx)
            await work(tx, permission_check.block_permission.header)

        await self._universe.transact(check_and_work, note=note)

    async def _again(self, block: Block) -> Block:
        """Return the block with its header read again after a change."""
        await self._check_permission(block, "read", "read")
        return block

    async def _find(self, reader: Reader, owner: str, label: str) -> Header | None:
        query = Query(schema=BLOCK.name, where={"label": label, "owner": owner, "active": True}, limit=1)
        found = await reader.recall(query)
        return found[0] if found else None

    async def _check_free(self, reader: Reader, owner: str, label: str) -> None:
        if await self._find(reader, owner, label) is not None:
            raise errors.LabelTaken(f"{owner} already has a block {label!r}", label=label)

    async def _missing(self, label: str, owner: str | None) -> DgentError:
        """Build the error for a label that was not found, with similar labels."""
        seen = await self._actor.find_visible(self._universe, limit=NEAR)
        labels = [each.header.value.label for each in seen if owner in (None, each.header.value.owner)]
        near = difflib.get_close_matches(label, labels, 3)
        whose = f"{owner} shares no" if owner not in (None, self.agent) else f"{self.agent} has no"
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "`list(shared=True)` shows them"
        return missing(
            self._universe, errors.BlockNotFound(f"{whose} block {label!r}", hint=hint, label=label)
        )


def _check_header(fields: dict[str, Any]) -> None:
    """Check the given header fields, and normalize the permission in place."""
    if "kind" in fields:
        check_choice(fields["kind"], BLOCK_KINDS, "kind")
    if "description" in fields and not isinstance(fields["description"], str):
        raise InputError(
            f"expected text for description, got {fields['description']!r:.80}", field="description"
        )
    limit = fields.get("limit", LIMIT)
    if type(limit) is not int or not 1 <= limit < 2**53:
        raise InputError(f"expected a limit of at least 1 character, got {limit!r}", field="limit")
    if "permission" in fields:
        fields["permission"] = check_permission(fields["permission"])
