"""The vocabulary of blocks: kinds of blocks and documents, permissions, trust, operations."""

from __future__ import annotations

from typing import Literal, get_args

BlockKind = Literal["core", "working", "archival", "log"]
DocumentKind = Literal["text", "map", "list", "log", "tree", "counter", "composite"]
Permission = Literal["read_only", "partner", "human", "append", "read_write", "admin"]
Trust = Literal["partner", "friend", "conversant", "untrusted"]
Operation = Literal["read", "append", "overwrite", "delete", "manage", "erase"]
"""An operation on a block. `manage` is for its header and shares, not its content: pin, rename,
delete, restore, share, describe. `erase` removes history itself, which only a partner may."""
Status = Literal["active", "hibernated", "archived"]
Role = Literal["regular", "supervisor", "observer", "specialist"]

BLOCK_KINDS: tuple[str, ...] = get_args(BlockKind)
DOCUMENT_KINDS: tuple[str, ...] = get_args(DocumentKind)
PERMISSIONS: tuple[str, ...] = get_args(Permission)
TRUSTS: tuple[str, ...] = get_args(Trust)
OPERATIONS: tuple[str, ...] = get_args(Operation)
STATUSES: tuple[str, ...] = get_args(Status)
ROLES: tuple[str, ...] = get_args(Role)

CONSTELLATION = "_constellation_"
"""The owner of blocks that belong to all agents of a constellation."""


def least_permission(*permissions: str) -> str:
    """Return the most restrictive of some permissions."""
    return min(permissions, key=PERMISSIONS.index)
