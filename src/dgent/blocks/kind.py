"""The words of blocks: kinds of blocks and documents, permissions, trust, operations."""

from __future__ import annotations

from typing import Literal, get_args

BlockKind = Literal["core", "working", "archival", "log"]
DocumentKind = Literal["text", "map", "list", "log", "tree", "counter", "composite"]
Permission = Literal["read_only", "partner", "human", "append", "read_write", "admin"]
Trust = Literal["partner", "friend", "conversant", "untrusted"]
Operation = Literal["read", "append", "overwrite", "delete", "erase"]
"""What an operation does to a block; `erase` removes history itself, which only a partner may."""

BLOCK_KINDS: tuple[str, ...] = get_args(BlockKind)
DOCUMENT_KINDS: tuple[str, ...] = get_args(DocumentKind)
PERMISSIONS: tuple[str, ...] = get_args(Permission)
TRUSTS: tuple[str, ...] = get_args(Trust)
OPERATIONS: tuple[str, ...] = get_args(Operation)

CONSTELLATION = "_constellation_"
"""The owner of blocks that belong to all agents of a constellation."""
