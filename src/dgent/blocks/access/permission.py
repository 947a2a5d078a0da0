"""Leave to do one thing to a block: the one gate that everything passes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dgent.blocks import errors
from dgent.blocks.access.standing import Reader, Standing
from dgent.blocks.errors import missing
from dgent.blocks.kind import PERMISSIONS, TRUSTS
from dgent.errors import DgentError, InputError, VersionConflict
from dgent.store.backend import Op

if TYPE_CHECKING:
    from dgent.blocks.access.authority import Authority
    from dgent.blocks.block import Block


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
    """Allowed, to be asked for, or denied; and why."""

    verdict: Verdict
    reason: str = ""


def judge(operation: str, permission: str, trust: str) -> Judgement:
    """What the rules say about an operation on a block with a permission, by a caller of a trust."""
    if operation not in _TRUSTED[trust]:
        return Judgement("deny", f"a caller of trust {trust} may not {operation}")
    verdict = _ALLOWED[operation][permission]
    if verdict == "deny":
        return Judgement("deny", f"the permission {permission} does not allow to {operation}")
    if verdict == "consent":
        who = "the partner" if permission == "partner" else "a human"
        return Judgement("consent", f"{who} must agree to {operation}")
    return Judgement("allow")


def judge_card(permission: str, trust: str) -> Judgement:
    """What the rules say about changing what others and the prompt see of a block, by whoever manages it.

    A block that its owner may not rewrite must not be hidden, replaced or redescribed instead.
    """
    if trust == "partner" or permission in ("read_write", "admin"):
        return Judgement("allow")
    who = "a human" if permission == "human" else "the partner"
    return Judgement("consent", f"{who} must agree to manage a block of the permission {permission}")


def least(*permissions: str) -> str:
    """The most restrictive of some permissions."""
    return min(permissions, key=PERMISSIONS.index)


def check_permission(value: object) -> str:
    """A permission in its plain spelling, or what is wrong with it."""
    text = value.strip().lower().replace("-", "_") if isinstance(value, str) else ""
    text = {"readonly": "read_only", "readwrite": "read_write"}.get(text, text)
    if text not in PERMISSIONS:
        raise InputError(
            f"{value!r} is no permission", hint=f"use one of {', '.join(PERMISSIONS)}", field="permission"
        )
    return text


def check_trust(value: object) -> str:
    """A trust, or what is wrong with it."""
    if not isinstance(value, str) or value not in TRUSTS:
        raise InputError(f"{value!r} is no trust", hint=f"use one of {', '.join(TRUSTS)}", field="trust")
    return value


def denied(label: str, operation: str, judgement: Judgement) -> errors.PermissionDenied:
    """The error for what is not allowed, to a block, an agent or a group."""
    what = f"{operation} of {label!r}" if label else operation
    return errors.PermissionDenied(f"{what} is denied: {judgement.reason}", label=label, operation=operation)


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
            raise await self._refused(denied(block.label, self._what, judgement), judgement)
        if judgement.verdict == "consent" and judgement.reason not in self._agreed:
            if not await library._agreed(block.label, self._operation, self._what, judgement.reason):
                message = f"{self._what} of {block.label!r} is denied: {judgement.reason}, and nobody did"
                error = errors.ConsentRefused(message, label=block.label, operation=self._operation)
                raise await self._refused(error, judgement)
            self._agreed.add(judgement.reason)

    def _judged(self) -> Judgement:
        standing, trust = self.standing, self._library.trust
        judgement = judge(self._operation, standing.for_operation(self._operation), trust)
        if self._operation != "manage" or judgement.verdict != "allow":
            return judgement
        return judge_card(standing.card.value.permission, trust)

    async def _gone(self, reader: Reader) -> DgentError:
        """The error for a block that was there, or was shared, when it was last looked at."""
        block = self._block
        card = await reader.get(block.id)
        if card is None or not card.value.active:
            gone = errors.BlockNotFound(f"the block {block.label!r} was deleted", label=block.label)
            return missing(self._library._universe, gone)
        judgement = Judgement("deny", f"it is not shared with {self._library.agent}")
        return await self._refused(denied(block.label, self._what, judgement), judgement)

    async def _refused(self, error: errors.PermissionDenied, judgement: Judgement) -> errors.PermissionDenied:
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
