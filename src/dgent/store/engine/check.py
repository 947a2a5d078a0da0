"""Check arguments before an engine sees them, so that every engine refuses the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dgent import clock, codec, ids
from dgent.errors import InputError, SchemaError
from dgent.model import path as paths
from dgent.model.contract import scalar
from dgent.store.backend import (
    KINDS,
    LIVE,
    NEW,
    Check,
    Commit,
    Declaration,
    Delete,
    Guard,
    Keep,
    Op,
    Put,
    Shaped,
)

MAX_SEQ = 2**63 - 1
MAX_VERSION = 2**31
_OPS = frozenset((Put, Delete, Check))
_WORDS = (LIVE, NEW)


def check_seq(value: object, field: str) -> int:
    """Return a seq that a commit could have, or 0."""
    if type(value) is not int or not 0 <= value <= MAX_SEQ:
        raise InputError(f"{field} must be a whole number from 0, not {value!r}", field=field)
    return value


def check_as_of(value: object) -> None:
    """Check a seq to read at; None is now."""
    if value is not None:
        check_seq(value, "as_of")


def check_limit(value: object) -> None:
    """Check a largest number of results; None is all."""
    if value is not None and (type(value) is not int or not 1 <= value <= MAX_SEQ):
        raise InputError(
            f"limit must be a whole number from 1, not {value!r}", field="limit", hint="None gives all"
        )


def check_ids(values: object) -> list[str]:
    """Return some ids; a bare text is refused because it would become its letters."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise InputError(f"ids must be a list of texts, not {type(values).__name__}", field="ids")
    return [ids.check_id(value) for value in values]


def check_moment(value: object, field: str) -> int:
    """Return a time with a zone, in microseconds."""
    if not isinstance(value, datetime):
        raise InputError(f"{field} must be a datetime, not {type(value).__name__}", field=field)
    return clock.to_us(value)


# -- commits ------------------------------------------------------------------------------


def check_op(op: Op) -> None:
    """Check the fields of an op besides its record."""
    if type(op) not in _OPS:
        raise InputError(f"an op is a Put, a Delete or a Check, not {type(op).__name__}", field="ops")
    expect = op.expect
    if not (expect is None or expect in _WORDS or (type(expect) is int and 0 <= expect <= MAX_SEQ)):
        hint = "0 means: must not exist"
        raise InputError(
            f"expect must be None, a rev, LIVE or NEW, not {expect!r}", field="expect", hint=hint
        )
    if type(op) is Put and op.indexed is not None:
        # Index keys are made while writing, when it is too late to refuse.
        if not isinstance(op.indexed, Shaped) or not isinstance(op.indexed.data, dict):
            raise InputError("indexed must be a Shaped with a dict", field="indexed")
        codec.encode(codec.plain(op.indexed.data))


def check_commit(commit: Commit) -> None:
    """Check the fields of a commit besides its ops."""
    ids.check_name(commit.author, "author")
    kind = type(commit.ops)
    listed = kind is tuple or kind is list  # quicker than asking what a sequence is
    if not listed and (not isinstance(commit.ops, Sequence) or isinstance(commit.ops, str | bytes)):
        raise InputError(f"ops must be a list, not {type(commit.ops).__name__}", field="ops")
    if commit.kind not in KINDS:
        raise InputError(f"{commit.kind!r} is not a kind of commit", field="kind")
    if commit.note is not None:
        check_note(commit.note)
    if commit.of_seq is not None:
        check_seq(commit.of_seq, "of_seq")
    if commit.guard is not None:
        check_guard_since(commit.guard)


def check_note(note: object) -> None:
    """Check the text that says why a commit was made."""
    if not isinstance(note, str):
        raise InputError(f"note must be text, not {type(note).__name__}", field="note")
    if "\0" in note:
        raise InputError("note contains a NUL character", field="note")
    try:
        note.encode()
    except UnicodeEncodeError:
        raise InputError("note contains half of a surrogate pair", field="note") from None


def check_guard_since(guard: Guard) -> None:
    """Check the seq that a guard starts at."""
    check_seq(guard.since, "since")


# -- upkeep -------------------------------------------------------------------------------


def check_declaration(wanted: Declaration) -> Declaration:
    """Return a declaration with its paths in one spelling, each once."""
    try:
        ids.check_name(wanted.name, "name")
        if wanted.owner is not None:
            ids.check_name(wanted.owner, "owner")
        indexes, refs = _paths(wanted.indexes, "indexes"), _paths(wanted.refs, "refs")
    except InputError as error:
        raise SchemaError(error.message, hint=error.hint, **error.details) from None
    version, history = wanted.version, wanted.history
    if type(version) is not int or not 1 <= version < MAX_VERSION:
        raise SchemaError(f"version must be a whole number from 1, not {version!r}", field="version")
    if history not in ("all", "none") and (type(history) is not int or history < 0):
        hint = 'it is "all", "none", or how many old versions to keep'
        raise SchemaError(f"history is {history!r}", hint=hint, field="history")
    if type(wanted.feed) is not bool:
        raise SchemaError(f"feed must be True or False, not {wanted.feed!r}", field="feed")
    if not isinstance(wanted.kinds, dict) or not set(wanted.kinds.values()) <= set(scalar.KINDS.values()):
        raise SchemaError(
            f"kinds map paths to what their texts stand for, not {wanted.kinds!r}", field="kinds"
        )
    kinds = {path: wanted.kinds[path] for path in indexes if path in wanted.kinds}
    return msgspec.structs.replace(wanted, indexes=indexes, refs=refs, kinds=kinds)


def _paths(values: Any, field: str) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InputError(f"{field} must be a list of paths, not {type(values).__name__}", field=field)
    return tuple(dict.fromkeys(paths.text(paths.parse(value)) for value in values))


def check_keep(keep: Keep) -> None:
    """Check a retention rule; one that names nothing to keep would remove everything."""
    if keep.versions is None and keep.after is None:
        raise InputError(
            "a retention rule says how many versions or from when on", hint="Keep(versions=10) for example"
        )
    if keep.versions is not None and (type(keep.versions) is not int or keep.versions < 0):
        raise InputError(f"versions must be a whole number from 0, not {keep.versions!r}", field="versions")
    if keep.after is not None:
        check_moment(keep.after, "after")
    if keep.schema is not None:
        ids.check_name(keep.schema, "schema")
