"""Merge versions of one record that two copies wrote apart: three ways, field by field.

A change of one side is taken; the same change of both sides is taken once. A field that both changed
differently is decided by the rule of the schema's room, or the later version counts and the field is
disputed. A merge depends on the versions alone, so that every copy comes to the same result.

Rooms bring their rules: the store asks the room that owns the schema, and imports it only then.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from dgent.errors import DgentError
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.model.order import same

_UNDISPUTED = frozenset(("dgent.fork", "dgent.fork.base", "dgent.fork.pulled", "dgent.copy"))
"""Schemas of dgent itself, of which the later version counts."""

DELETED = "deleted"

UNREADABLE = (DgentError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions that a rule may raise for a record that does not fit its schema."""


class MissingField:
    """The type of `MISSING`, the value of a field that is not there."""


MISSING = MissingField()


class MergedRecord(NamedTuple):
    """The result of a merge: the version, None for a deletion, and the fields that both sides changed."""

    version: Datum | None
    disputed: tuple[str, ...] = ()


class RecordTip(NamedTuple):
    """A newest version of a record in one of several copies; the one with the greater `order` is later."""

    version: Datum | None
    order: tuple[int, str]


Resolve = Callable[[str, Any, Any, Any], Any]
"""Decides about a field that both sides changed: path, base, left, right; MISSING leaves it disputed."""

Rule = Callable[[Datum | None, Datum | None, Datum | None], MergedRecord]
"""Merges a version of the left with a later one of the right side; the first argument is their base."""


class Settlement(Protocol):
    """A merge in progress: the reads that a room may do, and the way it changes records."""

    @property
    def touched_ids(self) -> Mapping[str, set[str]]:
        """The ids of the records that were read from lines, by schema."""

    @property
    def diverged_tips(self) -> Mapping[str, Sequence[RecordTip]]:
        """The newest versions of records that the room settles jointly, earliest first, by id."""

    def get(self, id: str) -> Datum | None:
        """Return the record as it is merged so far; None when there is none."""

    def records(self, schema: str) -> Iterable[Datum]:
        """Yield all records of a schema as they are merged so far."""

    def ids(self, prefix: str) -> list[str]:
        """Return the ids with a prefix, also of deleted records."""

    def put(
        self,
        versions: Mapping[str, Datum | None],
        disputed: Mapping[str, str] = MappingProxyType({}),
        erased: Collection[str] = (),
    ) -> None:
        """Write versions (None deletes) that take effect together or not at all.

        `disputed` says of records what somebody must look at; they stay a problem until they are settled.
        `erased` are ids of records whose former versions are removed from the store's files, too.
        """


class Rules(NamedTuple):
    """The rules of a room: one per schema that needs one, the schemas it settles jointly, and how.

    Records of `internal` schemas are never in dispute, because no user wrote them.
    """

    rules: Mapping[str, Rule]
    joint: frozenset[str] = frozenset()
    internal: frozenset[str] = frozenset()
    settle: Callable[[Settlement], None] | None = None


@cache
def rules_of_room(name: str) -> Rules:
    """Return the rules of a room; loads the room."""
    found: Rules = importlib.import_module(reserved.MODULES[name]).ROOM.merge_rules()
    return found


def rules_of(schema: str) -> Rules | None:
    """Return the rules of the room that a schema belongs to; None when it belongs to none."""
    room = reserved.OWNERS.get(schema)
    return None if room is None else rules_of_room(room)


def is_joint(schema: str) -> bool:
    """Check whether a room settles the records of a schema jointly: together they hold one thing."""
    rules = rules_of(schema)
    return rules is not None and schema in rules.joint


def is_internal(schema: str) -> bool:
    """Check whether records of a schema are never in dispute, because no user wrote them."""
    rules = rules_of(schema)
    return schema in _UNDISPUTED or (rules is not None and schema in rules.internal)


def merge(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
    """Merge two versions of a record, the later one on the right; `base` is the version both began with."""
    schema = (right or left or base or _NOBODY).schema or ""
    rules = rules_of(schema)
    rule = None if rules is None else rules.rules.get(schema)
    if rule is not None and all(each is None or each.schema == schema for each in (base, left, right)):
        return rule(base, left, right)
    if schema in _UNDISPUTED:
        return MergedRecord(right)
    return merge_records(base, left, right)


_NOBODY = Datum("nobody")
_ATOMS = ("content", "source", "parent_id")


def merge_records(
    base: Datum | None,
    left: Datum | None,
    right: Datum | None,
    resolve: Resolve = lambda path, base, left, right: MISSING,
    ignored: Iterable[str] = (),
) -> MergedRecord:
    """Merge two versions field by field; changing only `ignored` fields does not outlast a deletion."""
    if left is None or right is None:
        return _merge_deletion(base, left or right, frozenset(ignored))
    if (left.schema, left.schema_version) != (right.schema, right.schema_version):
        return _merge_atoms(base, left, right)
    was = None if base is None or base.schema != right.schema else base
    disputed: list[str] = []
    data = merge_maps({} if was is None else was.data, left.data, right.data, resolve, disputed)
    fields: dict[str, Any] = {"data": data}
    for name in _ATOMS:
        before = None if was is None else getattr(was, name)
        fields[name] = _decide(name, before, getattr(left, name), getattr(right, name), resolve, disputed)
    extra = merge_maps(_extra(was), _extra(left), _extra(right), resolve, disputed, "extra.")
    tags = frozenset() if was is None else was.tags
    return MergedRecord(
        right.replace(
            **fields,
            extra=extra or None,
            tags=(left.tags & right.tags) | (left.tags - tags) | (right.tags - tags),
            created_at=min(left.created_at, right.created_at),
        ),
        tuple(disputed),
    )


def merge_maps(
    base: Mapping[str, Any],
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    resolve: Resolve,
    disputed: list[str],
    path: str = "",
) -> dict[str, Any]:
    """Merge maps key by key, nested maps too; paths that both sides changed are added to `disputed`."""
    merged: dict[str, Any] = {}
    for key in {**left, **right}:
        was, one, other = (side.get(key, MISSING) for side in (base, left, right))
        chosen = _decide(path + key, was, one, other, resolve, disputed)
        if chosen is not MISSING:
            merged[key] = chosen
    return merged


def _decide(path: str, base: Any, left: Any, right: Any, resolve: Resolve, disputed: list[str]) -> Any:
    if same(left, right) or same(left, base):
        return right
    if same(right, base):
        return left
    chosen = resolve(path, base, left, right)
    if chosen is not MISSING:
        return chosen
    if isinstance(left, dict) and isinstance(right, dict):
        known = base if isinstance(base, dict) else {}
        return merge_maps(known, left, right, resolve, disputed, path + ".")
    disputed.append(path)
    return right


def merge_lists(base: Any, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """Merge lists of texts as sets: the additions of either side, without the removals of either side."""
    known = base if isinstance(base, list | tuple) else ()
    kept = [each for each in left if each in right or each not in known]
    return kept + [each for each in right if each not in left and each not in known]


def says_the_same(one: Datum | None, other: Datum | None, ignored: Iterable[str] = ()) -> bool:
    """Check whether two versions have the same content, from any author; some data fields may be ignored."""
    if one is None or other is None:
        return one is other
    left, right = ({k: v for k, v in each.data.items() if k not in ignored} for each in (one, other))
    return same(left, right) and all(
        getattr(one, name) == getattr(other, name) for name in (*_ATOMS, "tags", "schema", "schema_version")
    )


def _merge_deletion(base: Datum | None, kept: Datum | None, ignored: frozenset[str]) -> MergedRecord:
    """Merge with a side that deleted the record: changes of the other side stay, and are disputed."""
    if kept is None or (base is not None and says_the_same(base, kept, ignored)):
        return MergedRecord(None)
    return MergedRecord(kept, (DELETED,))


def _merge_atoms(base: Datum | None, left: Datum, right: Datum) -> MergedRecord:
    """Merge records of two shapes, which have no fields in common: one of them counts as a whole."""
    if base is not None and says_the_same(base, right):
        return MergedRecord(left)
    if base is not None and says_the_same(base, left):
        return MergedRecord(right)
    return MergedRecord(right, ("data",))


def _extra(datum: Datum | None) -> Mapping[str, Any]:
    return {} if datum is None or datum.extra is None else datum.extra
