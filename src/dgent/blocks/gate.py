"""The one gate: whether a caller may do something to a block."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dgent.blocks import errors
from dgent.blocks.kind import PERMISSIONS, TRUSTS
from dgent.errors import InputError

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
