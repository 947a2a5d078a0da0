"""Leave to do one thing to a block: the one gate that everything passes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgent.blocks import errors, gate
from dgent.blocks.access import Reader, Standing
from dgent.blocks.away import missing
from dgent.errors import DgentError, VersionConflict
from dgent.store.backend import Op

if TYPE_CHECKING:
    from dgent.blocks.authority import Authority
    from dgent.blocks.block import Block


@dataclass(frozen=True)
class Request:
    """What somebody is asked to agree to."""

    agent: str
    label: str
    operation: str
    what: str
    reason: str


Consent = Callable[[Request], Awaitable[bool] | bool]


class Permit:
    """Leave to do one thing to a block. Its `checks` go into the commit: so it is still valid then."""

    def __init__(self, library: Authority, block: Block, operation: str, what: str) -> None:
        self._library, self._block, self._operation, self._what = library, block, operation, what
        self._agreed: set[str] = set()  # what was asked and agreed to: nobody is asked twice for one thing

    @property
    def standing(self) -> Standing:
        """What it rests on."""
        return self._block._standing

    def checks(self) -> list[Op]:
        """Ops for the commit that uses it."""
        return self.standing.checks()

    def is_of(self, conflict: VersionConflict) -> bool:
        """Whether a commit failed because what this rests on has changed: then `renew` it."""
        return any(op.id == conflict.details.get("id") for op in self.checks())

    async def ask(self) -> Permit:
        """Get it, by what is known of the block; what is not allowed by that is looked up first."""
        if self._operation == "read" or self._judged().verdict != "allow":
            await self.renew()
        return self

    async def renew(self, reader: Reader | None = None) -> None:
        """Read again what the agent may do; ask where somebody must agree; refuse what it may not."""
        library, block = self._library, self._block
        source = library._universe if reader is None else reader
        standing = await library._caller.standing(source, block.id, block.owner)
        if standing is None:
            raise await self._gone(source)
        block._standing = standing
        judgement = self._judged()
        if judgement.verdict == "deny":
            raise await self._refused(gate.denied(block.label, self._what, judgement), judgement)
        if judgement.verdict == "consent" and judgement.reason not in self._agreed:
            if not await library._agreed(block.label, self._operation, self._what, judgement.reason):
                message = f"{self._what} of {block.label!r} is denied: {judgement.reason}, and nobody did"
                error = errors.ConsentRefused(message, label=block.label, operation=self._operation)
                raise await self._refused(error, judgement)
            self._agreed.add(judgement.reason)

    def _judged(self) -> gate.Judgement:
        standing, trust = self.standing, self._library.trust
        judgement = gate.judge(self._operation, standing.for_operation(self._operation), trust)
        if self._operation != "manage" or judgement.verdict != "allow":
            return judgement
        return gate.judge_card(standing.card.value.permission, trust)

    async def _gone(self, reader: Reader) -> DgentError:
        """The error for a block that was there, or was shared, when it was last looked at."""
        block = self._block
        card = await reader.get(block.id)
        if card is None or not card.value.active:
            gone = errors.BlockNotFound(f"the block {block.label!r} was deleted", label=block.label)
            return missing(self._library._universe, gone)
        judgement = gate.Judgement("deny", f"it is not shared with {self._library.agent}")
        return await self._refused(gate.denied(block.label, self._what, judgement), judgement)

    async def _refused(
        self, error: errors.PermissionDenied, judgement: gate.Judgement
    ) -> errors.PermissionDenied:
        block = self._block
        told = (self._operation, self._what, block.label, block.owner, block.id)
        return await self._library._refused(error, judgement, *told)


async def agreed(consent: Consent | None, request: Request, within_s: float) -> bool:
    """Whether somebody agrees in time. A plain function is called in a thread, so that the time is kept."""
    if consent is None:
        return False
    try:
        async with asyncio.timeout(within_s):
            direct = inspect.iscoroutinefunction(consent)
            answer: Any = consent(request) if direct else await asyncio.to_thread(_call, consent, request)
            return (await answer if inspect.isawaitable(answer) else answer) is True
    except TimeoutError:
        return False


def _call(consent: Consent, request: Request) -> Any:
    return consent(request)
