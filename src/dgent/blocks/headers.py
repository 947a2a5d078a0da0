"""Block headers: find, create, change, delete and restore them, each with the checks it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
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
from dgent.blocks.document.default import first_content
from dgent.blocks.document.shape import dump_shape, load_shape
from dgent.blocks.document.template import LIMIT, Template
from dgent.blocks.document.validate import check_fit, find_unlocked
from dgent.blocks.errors import missing
from dgent.blocks.history.log import VersionLog
from dgent.blocks.kind import BLOCK_KINDS, CONSTELLATION, least_permission
from dgent.blocks.record import BLOCK, BlockRecord, version_id
from dgent.errors import DgentError, InputError, VersionConflict
from dgent.model.query import Query
from dgent.system.near import ask, find_near
from dgent.universe.transaction import Transaction

NEAR = 200  # newest blocks of an agent whose labels are compared with an unknown one

Work = Callable[[Transaction, Header], Awaitable[None]]


def check_fields(**given: Any) -> dict[str, Any]:
    """Return the given fields of a header, without those that are None, the permission as it is stored."""
    fields = {name: value for name, value in given.items() if value is not None}
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
    return fields


# -- finding ----------------------------------------------------------------------------------


async def find_header(reader: Reader, owner: str, label: str) -> Header | None:
    """Return the header of an agent's block with a label; None when there is none."""
    query = Query(schema=BLOCK.name, where={"label": label, "owner": owner, "active": True}, limit=1)
    found = await reader.recall(query)
    return found[0] if found else None


async def check_free(reader: Reader, owner: str, label: str) -> None:
    """Raise LabelTaken when an agent has a block with a label."""
    if await find_header(reader, owner, label) is not None:
        raise errors.LabelTaken(f"{owner} already has a block {label!r}", label=label)


async def find_deleted(reader: Reader, owner: str, label: str | None = None) -> list[Header]:
    """Return the headers of an agent's deleted blocks, all or those of a label, the last deleted first."""
    where = {"owner": owner, "active": False} | ({} if label is None else {"label": label})
    found = await reader.recall(Query(schema=BLOCK.name, where=where, limit=None))
    return sorted(found, key=lambda header: header.seq or 0, reverse=True)


async def missing_error(permissions: AgentPermissions, label: str, owner: str | None) -> DgentError:
    """Build the error for a label that was not found, with similar labels."""
    agent, universe = permissions.agent, permissions.universe
    seen = await permissions.actor.find_visible(universe, limit=NEAR)
    labels = [each.header.value.label for each in seen if owner in (None, each.header.value.owner)]
    whose = f"{owner} shares no" if owner not in (None, agent) else f"{agent} has no"
    hint = ask(map(repr, find_near(label, labels))) or "`list(shared=True)` shows them"
    return missing(universe, errors.BlockNotFound(f"{whose} block {label!r}", hint=hint, label=label))


# -- creating ---------------------------------------------------------------------------------


async def check_owner(
    permissions: AgentPermissions, label: str, owner: str | None, what: str = "create"
) -> str:
    """Return the owner of a block to create or restore: the agent itself, or all if the partner does it."""
    whose = permissions.agent if owner is None else owner
    if whose not in (permissions.agent, CONSTELLATION):
        raise InputError(f"{permissions.agent} cannot {what} blocks owned by {whose!r}", field="owner")
    if whose == CONSTELLATION and permissions.trust != "partner":  # it would be in the prompt of every agent
        judgement = Judgement("deny", f"only the partner may {what} a block that belongs to all")
        error = denied_error(label, what, judgement)
        raise await permissions.record_refusal(error, judgement, "manage", what, label, whose)
    return whose


async def create_block(permissions: AgentPermissions, header: BlockRecord, value: Any) -> Block:
    """Create a block with its first content; its label must be free."""
    universe, owner, label = permissions.universe, header.owner, header.label
    content, size = first_content(header, value)
    id = ids.new_id()
    log = VersionLog(universe, id)
    first = log.build_first(content, size, permissions.agent)

    async def work(tx: Transaction) -> None:
        await agents.enrol(tx, permissions.agent)
        await check_free(tx, owner, label)
        await tx.remember(header, id=id)
        await tx.put(first, expect=0)

    await universe.transact(work, lock=f"blocks of {owner}", note=f"create {label}")
    return Block(permissions, permissions.actor.own_permission(await universe.get(id)), log)


# -- changing ---------------------------------------------------------------------------------


async def manage(
    permissions: AgentPermissions, block: Block, what: str, work: Work, note: str, operation: str = "manage"
) -> None:
    """Change a block's header or shares in a transaction that checks the permission itself."""
    await manage_many(permissions, [block], what, work, note, operation)


async def manage_many(
    permissions: AgentPermissions,
    blocks: Sequence[Block],
    what: str,
    work: Work,
    note: str,
    operation: str = "manage",
) -> None:
    """Change the headers of several blocks in one transaction, each with the permission that it needs."""
    checks = [await permissions.check(block, operation, what) for block in blocks]

    async def check_and_work(tx: Transaction) -> None:
        for each in checks:
            await each.renew(tx)
            await work(tx, each.block_permission.header)

    await permissions.universe.transact(check_and_work, note=note)


async def change_header(
    permissions: AgentPermissions, block: Block, what: str, work: Work, note: str, operation: str = "manage"
) -> Block:
    """Change a block's header as `manage` does, and return the block with its header read again."""
    await manage(permissions, block, what, work, note, operation)
    await permissions.check(block, "read", "read")
    return block


async def describe_block(
    permissions: AgentPermissions, block: Block, fields: dict[str, Any], template: Template | None
) -> Block:
    """Change fields of a header, and its shape to that of a template, with consent to all that widens it."""
    if template is not None:
        fields = fields | {"template": template.name, "shape": dump_shape(template.shape)}
    asked: set[str] = set()

    async def require_consent(before: str, what: str) -> None:
        if what not in asked:  # consent is asked once for each
            await permissions.ask_to_widen(block, before, what)
            asked.add(what)

    async def work(tx: Transaction, header: Header) -> None:
        before, wanted = header.value.permission, fields.get("permission", header.value.permission)
        if least_permission(wanted, before) != wanted:
            await require_consent(before, f"{wanted} instead of {before}")
        if template is not None:
            old = load_shape(header.value.document, header.value.shape)
            for name in find_unlocked(old, template.shape):
                await require_consent(before, f"changes of {name}")
            check_fit(old, template.shape, await block._version_log.newest(tx))
        await tx.store(header.replace(value=replace(header.value, **fields)))

    return await change_header(permissions, block, "describe", work, f"describe {block.label}")


# -- folders ----------------------------------------------------------------------------------
# A label may be a path, as in projects/x/notes. A folder is what begins alike; there is no record of it.


async def find_folder(permissions: AgentPermissions, folder: str, owner: str | None) -> list[Block]:
    """Return the blocks of a folder, the longest labels first; raises BlockNotFound when there are none."""
    whose = permissions.agent if owner is None else owner
    where = {"owner": whose, "label": {"$prefix": folder_prefix(folder)}}
    found = await permissions.actor.find_own(permissions.universe, where)
    if not found:
        raise errors.BlockNotFound(f"{whose} has no blocks in {folder!r}", label=folder)
    blocks = [Block(permissions, each) for each in found]
    return sorted(blocks, key=lambda block: (-len(block.label), block.label))


def folder_prefix(folder: str) -> str:
    """Return the beginning of the labels in a folder: its name and a slash."""
    name = folder.strip("/")
    ids.check_name(name, "folder")
    return name + "/"


async def move_folder(permissions: AgentPermissions, folder: str, to: str, owner: str | None) -> list[Block]:
    """Give all blocks of a folder labels in another one, in one commit: all or none."""
    blocks = await find_folder(permissions, folder, owner)
    before, after = folder_prefix(folder), folder_prefix(to)

    async def work(tx: Transaction, header: Header) -> None:
        label = ids.check_name(after + header.value.label.removeprefix(before), "label")
        if label != header.value.label:
            await check_free(tx, header.value.owner, label)
        await tx.store(header.replace(value=replace(header.value, label=label)))

    await manage_many(permissions, blocks, "rename", work, f"move {before} to {after}")
    for block in blocks:
        await permissions.check(block, "read", "read")
    return blocks[::-1]


async def remove_folder(permissions: AgentPermissions, folder: str, owner: str | None) -> list[Block]:
    """Delete all blocks of a folder in one commit: all or none."""
    blocks = await find_folder(permissions, folder, owner)

    async def work(tx: Transaction, header: Header) -> None:
        await tx.store(header.replace(value=replace(header.value, active=False)))

    await manage_many(permissions, blocks, "delete", work, f"delete {folder_prefix(folder)}")
    return blocks[::-1]


# -- deleting and restoring -------------------------------------------------------------------


async def remove_block(permissions: AgentPermissions, block: Block, *, at: int | None = None) -> None:
    """Delete a block; with `at` only if that is still its newest version."""

    async def work(tx: Transaction, header: Header) -> None:
        if at is not None and await tx.exists(version_id(header.id, at + 1)):
            raise VersionConflict(
                f"the block {header.value.label!r} is no longer at version {at}", id=header.id
            )
        await tx.store(header.replace(value=replace(header.value, active=False)))

    await manage(permissions, block, "delete", work, f"delete {block.label}")


async def restore_block(permissions: AgentPermissions, owner: str, label: str, wanted: str) -> Block:
    """Restore an owner's block of a label that was deleted last, with another label if that is wanted."""
    universe = permissions.universe
    asked: set[str] = set()

    async def work(tx: Transaction) -> str:
        gone = await find_deleted(tx, owner, ids.check_name(label, "label"))
        if not gone:
            raise errors.BlockNotFound(f"{owner} has no deleted block {label!r}", label=label)
        judgement = judge_header(gone[0].value.permission, permissions.trust)
        if judgement.verdict == "consent" and judgement.reason not in asked:
            await permissions.require_consent(judgement, "restore", gone[0])
            asked.add(judgement.reason)
        await check_free(tx, owner, wanted)
        await tx.store(gone[0].replace(value=replace(gone[0].value, label=wanted, active=True)))
        return gone[0].id

    id = await universe.transact(work, note=f"restore {label}")
    block_permission = await permissions.actor.find_permission(universe, id, owner)
    if block_permission is None:
        raise errors.BlockNotFound(f"the block {wanted!r} was deleted again", label=wanted)
    return Block(permissions, block_permission)
