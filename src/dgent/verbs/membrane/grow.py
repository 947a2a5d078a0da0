"""Verbs for proposed changes of prompts and files, and their rollback."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dgent.errors import Conflict, InputError, NotFound
from dgent.membrane.growth import SelfGrow
from dgent.membrane.record import Proposal, RollbackToken, Seedling
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, argument, option, verb

SeedlingId = Annotated[str, argument("the seedling's id, as `grow list` shows it")]
Folder = Annotated[str | None, option("the folder of its files; without it the project around here")]


async def _growth(context: Context, folder: str | None = None) -> SelfGrow:
    return SelfGrow(await context.universe(), folder)


class Growth(msgspec.Struct, frozen=True):
    """Proposals, what is or was tried in the nursery, and the tokens of promotions; each newest first."""

    proposals: list[Proposal]
    nursery: list[Seedling]
    tokens: list[RollbackToken]


class ListGrowth(Ask):
    """Input of `grow.list`."""

    limit: Annotated[int, option("how many of each at most", short="n")] = 20


@verb("grow.list", effect="read")
async def list_(context: Context, ask: ListGrowth) -> Growth:
    """List proposals, the nursery, and the promotions that can be rolled back."""
    grow = await _growth(context)
    return Growth(
        await grow.proposals(limit=ask.limit),
        await grow.nursery(limit=ask.limit),
        await grow.tokens(limit=ask.limit),
    )


class Propose(Ask):
    """Input of `grow.propose`."""

    entity: Annotated[str, argument("what should change, such as the name of a prompt")]
    prompt: Annotated[str | None, option("the new text of the prompt")] = None
    spec: Annotated[str | None, option("the new text of its specification")] = None
    impl: Annotated[str | None, option("the new text of its implementation")] = None
    reason: Annotated[str, option("what it is for", short="m")] = ""


@verb("grow.propose", effect="append", errors=(InputError,), makes=True)
async def propose(context: Context, ask: Propose) -> Proposal:
    """Propose new texts for a prompt, or for files; nothing changes yet."""
    given = {"prompt": ask.prompt, "spec": ask.spec, "impl": ask.impl}
    texts = {name: text for name, text in given.items() if text is not None}
    return await (await _growth(context)).propose(ask.entity, texts, context=ask.reason)


class Germinate(Ask):
    """Input of `grow.germinate`."""

    id: Annotated[str, argument("the proposal's id")]
    handle: Annotated[str | None, option("the prompt's name, if it is not that of the proposal")] = None


@verb("grow.germinate", effect="write", errors=(NotFound, Conflict))
async def germinate(context: Context, ask: Germinate) -> Seedling:
    """Put a proposal into the nursery, where it is tried."""
    return await (await _growth(context)).germinate(ask.id, ask.handle)


class Promote(Ask):
    """Input of `grow.promote`."""

    id: SeedlingId
    spec_path: Annotated[str | None, option("where its specification goes, below the folder")] = None
    impl_path: Annotated[str | None, option("where its implementation goes, below the folder")] = None
    folder: Folder = None


@verb("grow.promote", effect="write", errors=(NotFound, Conflict, InputError), local=True)
async def promote(context: Context, ask: Promote) -> RollbackToken:
    """Put the texts of a seedling in their places; the answer is the token that takes them back."""
    grow = await _growth(context, _folder_of(context, ask.folder))
    return await grow.promote(ask.id, spec_path=ask.spec_path, impl_path=ask.impl_path)


class Rollback(Ask):
    """Input of `grow.rollback`."""

    id: Annotated[str, argument("the token's id")]
    force: Annotated[bool, option("also after its time, and over files that were changed since")] = False
    folder: Folder = None


@verb("grow.rollback", effect="write", errors=(NotFound, Conflict), local=True)
async def rollback(context: Context, ask: Rollback) -> RollbackToken:
    """Put back the texts that a promotion replaced."""
    grow = await _growth(context, _folder_of(context, ask.folder))
    return await grow.rollback(ask.id, force=ask.force)


def _folder_of(context: Context, folder: str | None) -> str | None:
    if folder is not None:
        return folder
    project = context.settings.project
    return None if project is None else str(project)
