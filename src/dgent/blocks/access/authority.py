"""Who uses a library: the agent, what trust it has, and the one gate that everything passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgent import clock, ids
from dgent.blocks import errors
from dgent.blocks.access import audit, permission
from dgent.blocks.access.permission import Consent, Permit, Request, agreed
from dgent.blocks.access.rule import RULE
from dgent.blocks.access.standing import Caller, Card
from dgent.blocks.kind import CONSTELLATION, TRUSTS
from dgent.blocks.record import ROOM, SCHEMAS, AuditRecord
from dgent.errors import Denied, InputError
from dgent.universe.gate import Gate
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from dgent.blocks.block import Block

CONSENT_S = 60.0  # how long an answer is waited for


def _check_handle(universe: Universe, agent: str, trust: str) -> None:
    """Refuse to do more on a handle that acts for somebody than that one may."""
    if not isinstance(universe.backend, Gate):
        return
    who = universe.backend.principal
    if agent != who.name:
        raise Denied(f"this handle acts for {who.name!r}, not for {agent!r}", principal=who.name)
    if TRUSTS.index(trust) < TRUSTS.index(who.trust):
        raise Denied(
            f"this handle acts for {who.name!r}, who is {who.trust} and not {trust}",
            hint=f"give trust={who.trust!r}",
            principal=who.name,
        )


class Authority:
    """The base of a library: in whose name it acts, and what it may do."""

    def __init__(
        self, universe: Universe, agent: str, trust: str, consent: Consent | None, consent_s: float
    ) -> None:
        if not isinstance(universe, Universe):
            raise InputError(
                f"a library is on a universe, not on a {type(universe).__name__}",
                hint="with dgent.sync.open use dgent.sync.blocks",
            )
        if ids.check_name(agent, "agent") == CONSTELLATION:
            raise InputError(f"{CONSTELLATION} is no agent: give its blocks by owner=", field="agent")
        self.agent = agent
        self.trust = permission.check_trust(trust)
        _check_handle(universe, agent, trust)
        self.universe = universe
        universe.register(*SCHEMAS)
        universe.rules[ROOM] = RULE
        self._universe = universe.for_room(ROOM, partial=True)
        self._universe.author = agent  # who its commits are by, whoever the universe is opened for
        self._caller = Caller(agent, self.trust)
        self._consent, self._consent_s = consent, consent_s

    # -- who may do what ------------------------------------------------------------------------

    async def _check(self, block: Block, operation: str, what: str) -> Permit:
        """The one gate that everything passes; asks for consent where the permission wants it."""
        return await Permit(self, block, operation, what).ask()

    async def _agreed(self, label: str, operation: str, what: str, reason: str) -> bool:
        request = Request(self.agent, label, operation, what, reason)
        return await agreed(self._consent, request, self._consent_s)

    async def _widened(self, block: Block, before: str, what: str) -> None:
        """Have somebody agree to more being allowed than the permission of before."""
        who = "a human" if before == "human" else "the partner"
        judgement = permission.Judgement("consent", f"{who} must agree to allow {what}")
        await self._ask(judgement, "describe", block._card)

    async def _ask(self, judgement: permission.Judgement, what: str, card: Card) -> None:
        """Have somebody agree to a change of a block's card, or refuse it."""
        block = card.value
        if await self._agreed(block.label, "manage", what, judgement.reason):
            return
        message = f"{what} of {block.label!r} is denied: {judgement.reason}, and nobody did"
        error = errors.ConsentRefused(message, label=block.label, operation="manage")
        raise await self._refused(error, judgement, "manage", what, block.label, block.owner, card.id)

    async def _may(self, operation: str, label: str, what: str = "") -> None:
        """The gate for what is not about one block: the caller's trust alone decides."""
        judgement = permission.judge(operation, "admin", self.trust)
        if judgement.verdict != "allow":
            error = permission.denied(label, what or operation, judgement)
            raise await self._refused(error, judgement, operation, what or operation, label)

    async def _refused(
        self,
        error: errors.PermissionDenied,
        judgement: permission.Judgement,
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
            judgement = permission.Judgement("deny", f"a caller of trust {self.trust} writes as {self.agent}")
            told = ("write", what, block.label, block.owner, block.id)
            raise await self._refused(permission.denied(block.label, what, judgement), judgement, *told)
        return ids.check_name(by, "by")

    def _stamped(self, entry: dict[str, Any], by: str | None) -> dict[str, Any]:
        return {**entry, "at": clock.text(clock.now()), "agent": by or self.agent}
