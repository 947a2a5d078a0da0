"""Permission to act on blocks: the rules, asking for consent, and the check before every call."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.access import audit
from dgent.blocks.access.actor import Actor, BlockPermission, Header, PastActor, Reader
from dgent.blocks.errors import missing
from dgent.blocks.history.idle import IdleLogs
from dgent.blocks.kind import CONSTELLATION, PERMISSIONS, TRUSTS
from dgent.blocks.record import ROOM, SCHEMAS, AuditRecord
from dgent.errors import Denied, DgentError, InputError, VersionConflict
from dgent.store.backend import Op
from dgent.universe.gate import Gate
from dgent.universe.past import refuse_change
from dgent.universe.stamp import lower_handle
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from dgent.blocks.block import Block

CONSENT_S = 60.0  # seconds to wait for an answer

Verdict = Literal["allow", "consent", "deny"]

_ALLOWED: dict[str, dict[str, Verdict]] = {
    "read": dict.fromkeys(PERMISSIONS, "allow"),
    "append": {
        "read_only": "deny",
        "partner": "consent",
        "human": "consent",
        "append": "allow",
        "read_write": "allow",
        "admin": "allow",
    },
    "overwrite": {
        "read_only": "deny",
        "partner": "consent",
        "human": "consent",
        "append": "deny",
        "read_write": "allow",
        "admin": "allow",
    },
    "delete": {**dict.fromkeys(PERMISSIONS, "deny"), "admin": "allow"},
    "manage": {**dict.fromkeys(PERMISSIONS, "deny"), "admin": "allow"},
    "erase": {**dict.fromkeys(PERMISSIONS, "deny"), "admin": "allow"},
}
_TRUSTED: dict[str, frozenset[str]] = {
    "partner": frozenset(("read", "append", "overwrite", "delete", "manage", "erase")),
    "friend": frozenset(("read", "append", "overwrite", "delete", "manage")),
    "conversant": frozenset(("read", "append")),
    "untrusted": frozenset(),
}


class Judgement(NamedTuple):
    """The verdict of the rules (allow, consent or deny) and its reason."""

    verdict: Verdict
    reason: str = ""


def judge(operation: str, permission: str, trust: str) -> Judgement:
    """Apply the rules to an operation on a block with this permission, by a caller of this trust."""
    if operation not in _TRUSTED[trust]:
        return Judgement("deny", f"a caller of trust {trust} may not {operation}")
    verdict = _ALLOWED[operation][permission]
    if verdict == "deny":
        return Judgement("deny", f"the permission {permission} does not allow to {operation}")
    if verdict == "consent":
        who = "the partner" if permission == "partner" else "a human"
        return Judgement("consent", f"{who} must agree to {operation}")
    return Judgement("allow")


def judge_header(permission: str, trust: str) -> Judgement:
    """Apply the rules to a change of a block's header by an agent that manages it.

    A block that its owner may not rewrite must not be hidden, replaced or redescribed instead.
    """
    if trust == "partner" or permission in ("read_write", "admin"):
        return Judgement("allow")
    who = "a human" if permission == "human" else "the partner"
    return Judgement("consent", f"{who} must agree to manage a block of the permission {permission}")


def check_permission(value: object) -> str:
    """Return a permission in its stored spelling, or raise InputError."""
    text = value.strip().lower().replace("-", "_") if isinstance(value, str) else ""
    text = {"readonly": "read_only", "readwrite": "read_write"}.get(text, text)
    if text not in PERMISSIONS:
        raise InputError(
            f"{value!r} is not a valid permission",
            hint=f"use one of {', '.join(PERMISSIONS)}",
            field="permission",
        )
    return text


def check_trust(value: object) -> str:
    """Return a valid trust, or raise InputError."""
    if not isinstance(value, str) or value not in TRUSTS:
        raise InputError(
            f"{value!r} is not a valid trust", hint=f"use one of {', '.join(TRUSTS)}", field="trust"
        )
    return value


def denied_error(label: str, operation: str, judgement: Judgement) -> errors.PermissionDenied:
    """Build the error for a denied operation on a block, an agent or a group."""
    what = f"{operation} of {label!r}" if label else operation
    return errors.PermissionDenied(f"{what} is denied: {judgement.reason}", label=label, operation=operation)


@dataclass(frozen=True)
class Request:
    """A request for consent, as the consent function receives it."""

    agent: str
    label: str
    operation: str
    what: str
    reason: str


Consent = Callable[[Request], Awaitable[bool] | bool]


class PermissionCheck:
    """The permission for one operation on a block; its `checks` make the commit fail if it was revoked."""

    def __init__(self, permissions: AgentPermissions, block: Block, operation: str, what: str) -> None:
        self._permissions, self._block, self._operation, self._what = permissions, block, operation, what
        self._agreed: set[str] = set()  # reasons that got consent: it is asked once for each

    @property
    def block_permission(self) -> BlockPermission:
        """The agent's permission on the block, as last read."""
        return self._block._block_permission

    def checks(self) -> list[Op]:
        """Return the ops for the commit that relies on this permission."""
        return self.block_permission.checks()

    def is_cause_of(self, conflict: VersionConflict) -> bool:
        """Check whether a commit failed because this permission changed: then `renew` it."""
        return any(op.id == conflict.details.get("id") for op in self.checks())

    async def ask(self) -> PermissionCheck:
        """Check the permission in memory; read it again before anything is denied."""
        if self._operation == "read" or self._judge().verdict != "allow":
            await self.renew()
        return self

    async def renew(self, reader: Reader | None = None) -> None:
        """Read the permission again; ask for consent where it is needed, and raise when it is denied."""
        permissions, block = self._permissions, self._block
        source = permissions.universe if reader is None else reader
        block_permission = await permissions.actor.find_permission(source, block.id, block.owner)
        if block_permission is None:
            raise await self._gone_error(source)
        await self.settle(block_permission)

    async def settle(self, block_permission: BlockPermission) -> None:
        """Judge a permission that was just read; ask for consent where it is needed, raise when denied."""
        permissions, block = self._permissions, self._block
        block._block_permission = block_permission
        judgement = self._judge()
        if judgement.verdict == "deny":
            raise await self._record_refusal(denied_error(block.label, self._what, judgement), judgement)
        if judgement.verdict == "consent" and judgement.reason not in self._agreed:
            if not await permissions.ask_consent(block.label, self._operation, self._what, judgement.reason):
                message = f"{self._what} of {block.label!r} is denied: {judgement.reason}, and nobody did"
                error = errors.ConsentRefused(message, label=block.label, operation=self._operation)
                raise await self._record_refusal(error, judgement)
            self._agreed.add(judgement.reason)

    def _judge(self) -> Judgement:
        block_permission, trust = self.block_permission, self._permissions.trust
        judgement = judge(self._operation, block_permission.for_operation(self._operation), trust)
        if self._operation != "manage" or judgement.verdict != "allow":
            return judgement
        return judge_header(block_permission.header.value.permission, trust)

    async def _gone_error(self, reader: Reader) -> DgentError:
        """Build the error for a block that was deleted or unshared since it was last read."""
        block = self._block
        header = await reader.get(block.id)
        if header is None or not header.value.active:
            gone = errors.BlockNotFound(f"the block {block.label!r} was deleted", label=block.label)
            return missing(self._permissions.universe, gone)
        judgement = Judgement("deny", f"it is not shared with {self._permissions.agent}")
        return await self._record_refusal(denied_error(block.label, self._what, judgement), judgement)

    async def _record_refusal(
        self, error: errors.PermissionDenied, judgement: Judgement
    ) -> errors.PermissionDenied:
        block = self._block
        details = (self._operation, self._what, block.label, block.owner, block.id)
        return await self._permissions.record_refusal(error, judgement, *details)


async def ask_consent(consent: Consent | None, request: Request, within_s: float) -> bool:
    """Return True if consent is given in time; a plain function runs in a thread so that it can time out."""
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


def _check_handle(universe: Universe, agent: str, trust: str) -> None:
    """Raise Denied when a library asks for another agent or more trust than its universe handle has."""
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


class AgentPermissions:
    """The permissions of the agent that a library acts for, and every check of them.

    `universe` is its handle of this room, `actor` finds its permission on each block.
    """

    def __init__(
        self, universe: Universe, agent: str, trust: str, consent: Consent | None, consent_s: float
    ) -> None:
        if not isinstance(universe, Universe):
            raise InputError(
                f"this Library takes a universe of dgent.open, not a {type(universe).__name__}",
                hint="with dgent.sync.open use dgent.sync.blocks",
            )
        if ids.check_name(agent, "agent") == CONSTELLATION:
            raise InputError(f"{CONSTELLATION} is not an agent: give it as owner=", field="agent")
        self.agent = agent
        self.trust = check_trust(trust)
        _check_handle(universe, agent, trust)
        universe.register(*SCHEMAS)
        self.universe = lower_handle(universe, trust).for_room(ROOM, partial=True)
        self.universe.author = agent  # the author of its commits, whoever opened the universe
        if universe.past is None or self.trust == "partner":
            self.actor = Actor(agent, self.trust)
        else:
            self.actor = PastActor(agent, self.trust, self.universe.present())
        self.logs = IdleLogs(self.universe)
        self._consent, self._consent_s = consent, consent_s

    async def check(self, block: Block, operation: str, what: str) -> PermissionCheck:
        """Check permission for an operation on a block; asks for consent where it is needed."""
        self._check_present(operation)
        return await PermissionCheck(self, block, operation, what).ask()

    def _check_present(self, operation: str) -> None:
        """Raise Denied for anything but reading where the handle reads the past."""
        if operation != "read" and self.universe.past is not None:
            raise refuse_change(self.universe.past.seq)

    async def ask_consent(self, label: str, operation: str, what: str, reason: str) -> bool:
        """Ask the library's consent function; False when there is none or it does not answer in time."""
        request = Request(self.agent, label, operation, what, reason)
        return await ask_consent(self._consent, request, self._consent_s)

    async def ask_to_widen(self, block: Block, before: str, what: str) -> None:
        """Require consent to allow more than the permission before."""
        who = "a human" if before == "human" else "the partner"
        judgement = Judgement("consent", f"{who} must agree to allow {what}")
        await self.require_consent(judgement, "describe", block._header)

    async def require_consent(self, judgement: Judgement, what: str, header: Header) -> None:
        """Require consent to a change of a block's header; raises ConsentRefused."""
        block = header.value
        if await self.ask_consent(block.label, "manage", what, judgement.reason):
            return
        message = f"{what} of {block.label!r} is denied: {judgement.reason}, and nobody did"
        error = errors.ConsentRefused(message, label=block.label, operation="manage")
        raise await self.record_refusal(error, judgement, "manage", what, block.label, block.owner, header.id)

    async def require_trust(self, operation: str, label: str, what: str = "") -> None:
        """Check, by trust alone, an operation that is not about one block."""
        self._check_present(operation)
        judgement = judge(operation, "admin", self.trust)
        if judgement.verdict != "allow":
            error = denied_error(label, what or operation, judgement)
            raise await self.record_refusal(error, judgement, operation, what or operation, label)

    async def record_refusal(
        self,
        error: errors.PermissionDenied,
        judgement: Judgement,
        operation: str,
        what: str,
        label: str,
        owner: str = "",
        block: str = "",
    ) -> errors.PermissionDenied:
        """Record a refusal and return the error to raise."""
        record = AuditRecord(
            *(self.agent, self.trust, owner, str(label)[: audit.MAX_REASON], what, operation),
            *(judgement.verdict, judgement.reason[: audit.MAX_REASON], block),
        )
        await audit.record_refusal(self.universe, record, error)
        return error

    async def check_author(self, block: Block, what: str, by: str | None) -> str:
        """Return the author of a change; only the partner may write in another name."""
        if by is None or by == self.agent:
            return self.agent
        if self.trust != "partner":
            judgement = Judgement("deny", f"a caller of trust {self.trust} writes as {self.agent}")
            details = ("write", what, block.label, block.owner, block.id)
            raise await self.record_refusal(denied_error(block.label, what, judgement), judgement, *details)
        return ids.check_name(by, "by")

    def with_actor(self, actor: Actor) -> AgentPermissions:
        """Return the same permissions, with those on blocks found by another actor."""
        other = copy.copy(self)
        other.actor = actor
        return other
