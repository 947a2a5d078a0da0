"""Many new datums of one kind, checked and encoded column by column.

Most batches are alike: one schema, one author, flat data of scalars. Asking each question once for a whole
column takes less than half the time of asking all of them for each datum. Where anything is unusual, each
datum is looked at by itself, which also says what is wrong with which one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from math import isfinite
from operator import attrgetter
from types import NoneType
from typing import Any, overload

from dgent import clock, codec, ids
from dgent.errors import InputError
from dgent.store.backend import Op, Put
from dgent.store.engine.row import MAX_RECORD_BYTES, EncodedDatum, tag_texts_of

FEWEST = 16  # a batch has at least so many datums

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_envelope = attrgetter(
    "id",
    "_created_at",
    "_data",
    "content",
    "tags",
    "author",
    "source",
    "parent_id",
    "schema",
    "schema_version",
    "extra",
)
_KINDS: tuple[frozenset[type], ...] = tuple(
    map(
        frozenset,
        (
            (str,),
            (datetime,),
            (dict,),
            (bytes,),
            (frozenset,),
            (str, NoneType),
            (NoneType,),
            (NoneType,),
            (str, NoneType),
            (int, NoneType),
            (NoneType,),
        ),
    )
)
"""The types that each column of the envelope may have."""

_zone = attrgetter("tzinfo")
_encoded = attrgetter(
    *("id", "created_at", "schema", "schema_version", "author", "tag_list", "tags", "data", "plain"),
    *("source", "parent", "extra", "content"),
)


class Batch(Sequence[EncodedDatum]):
    """Encoded datums that differ only in id, time, tags and data; one by itself is made on request."""

    __slots__ = ("data", "ids", "like", "plain", "size", "tag_lists", "tags", "times")

    def __init__(
        self,
        like: EncodedDatum,
        ids: Sequence[str],
        times: Sequence[int],
        tags: Sequence[tuple[tuple[str, ...], str]],
        data: Sequence[bytes],
        plain: Sequence[dict[str, Any]],
    ) -> None:
        self.like = like  # the first of them
        self.ids, self.times, self.data, self.plain = ids, times, data, plain
        self.tag_lists, self.tags = zip(*tags, strict=True)
        self.size = sum(map(len, data))

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> EncodedDatum: ...
    @overload
    def __getitem__(self, place: slice) -> list[EncodedDatum]: ...
    def __getitem__(self, place: int | slice) -> EncodedDatum | list[EncodedDatum]:
        if isinstance(place, slice):
            return [self._make(each) for each in range(*place.indices(len(self.ids)))]
        return self._make(place)

    def __iter__(self) -> Iterator[EncodedDatum]:
        return map(self._make, range(len(self.ids)))

    def _make(self, place: int) -> EncodedDatum:
        like = self.like
        return EncodedDatum(
            self.ids[place],
            self.times[place],
            like.schema,
            like.schema_version,
            like.author,
            None,
            None,
            self.tags[place],
            None,
            self.data[place],
            None,
            self.plain[place],
            self.tag_lists[place],
        )


def join(drafts: Sequence[EncodedDatum]) -> Batch | None:
    """Return datums that were encoded one by one as a batch; None if they differ in more than one may."""
    columns = tuple(zip(*map(_encoded, drafts), strict=True))
    names, times, schemas, versions, authors, tag_lists, tags, data, plain, *others = columns
    if any(len(set(column)) > 1 for column in (schemas, versions, authors)):
        return None
    if len(set(names)) < len(names) or any(column.count(None) < len(names) for column in others):
        return None
    return Batch(drafts[0], names, times, [*zip(tag_lists, tags, strict=True)], data, plain)


def encode_batch(ops: Sequence[Op], author: str) -> Batch | None:
    """Check and encode the datums of puts together; None where each has to be looked at by itself."""
    for op in ops:
        if type(op) is not Put or op.expect is not None or op.indexed is not None or op.raw is not None:
            return None
    try:
        return _encode([op.datum for op in ops], author)  # type: ignore[union-attr]
    except (AttributeError, InputError, TypeError, UnicodeError):
        return None  # said again, and for one datum, by whoever looks at each


def _encode(datums: Sequence[Any], author: str) -> Batch | None:
    columns = tuple(zip(*map(_envelope, datums), strict=True))
    if any(not kinds.issuperset(map(type, column)) for kinds, column in zip(_KINDS, columns, strict=True)):
        return None
    names, made, bodies, contents, tags, authors, _, _, schemas, versions, _ = columns
    if any(contents) or any(len(set(column)) > 1 for column in (authors, schemas, versions)):
        return None
    first = datums[0].check_envelope()
    if set(map(_zone, made)) != {UTC} or not _are_ids(names):
        return None
    if not {str}.issuperset(map(type, chain.from_iterable(tags))):
        return None
    texts = {each: tag_texts_of(each, False) for each in set(tags)}
    plain = [*map(dict.copy, bodies)]
    if not _are_flat(plain):
        plain = [codec.plain(body) for body in plain]
    data = [*map(codec.encode, plain)]
    if max(map(len, data)) > MAX_RECORD_BYTES:
        return None
    times = [*map(clock.to_us, made)]
    like = EncodedDatum(
        first.id,
        times[0],
        first.schema or "",
        first.schema_version or 0,
        first.author or author,
        None,
        None,
        texts[tags[0]][1],
        None,
        data[0],
        None,
        plain[0],
        texts[tags[0]][0],
    )
    return Batch(like, names, times, [*map(texts.__getitem__, tags)], data, plain)


def _are_ids(names: Sequence[str]) -> bool:
    """Check whether texts are ids, each another one, that need no closer look."""
    joined = "".join(names)
    return (
        joined.isascii()
        and "\0" not in joined
        and all(names)
        and max(map(len, names)) <= ids.MAX_ID_BYTES
        and len(set(names)) == len(names)
    )


def _are_flat(bodies: Sequence[dict[str, Any]]) -> bool:
    """Check whether all data has the same fields, with scalars in them that can be stored as they are."""
    fields = {*map(tuple, bodies)}
    if len(fields) > 1:
        return False
    if not all(type(name) is str and codec.is_text(name) for name in fields.pop()):
        return False
    for column in zip(*map(dict.values, bodies), strict=True):
        kinds = {*map(type, column)}
        for kind in kinds:
            check = _SOUND.get(kind)
            part = column if len(kinds) == 1 else [value for value in column if type(value) is kind]
            if check is None or not check(part):
                return False
    return True


_SOUND: dict[type, Callable[[Sequence[Any]], bool]] = {
    str: lambda texts: "".join(texts).isascii() or all(map(codec.is_text, texts)),
    int: lambda numbers: min(numbers) >= _INT_MIN and max(numbers) <= _INT_MAX,
    float: lambda numbers: all(map(isfinite, numbers)),
    bool: bool,
    NoneType: bool,
}
"""Tells for each type whether some values of it can be stored as they are."""
