"""The calls of a store over HTTP: the input and the answer of each, as bytes and back."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from dgent.errors import Corrupt, InputError
from dgent.model.datum import Datum
from dgent.search.wanted import Phrase, Prefix, Wanted
from dgent.store.backend import (
    BackendStats,
    Committed,
    Compacted,
    Declaration,
    Declared,
    Forgotten,
    Rank,
    Reverted,
    Version,
)
from dgent.store.remote.wire import (
    Hello,
    WireChange,
    WireDatum,
    WireGuard,
    WireOp,
    WirePage,
    WireQuery,
    WireView,
    pack_datum,
    unpack_datum,
)
from dgent.store.search import LazyTexts, SearchPage

FORMAT = 1
KIND = "application/vnd.dgent.store+msgpack"
PATH = "/v1/store/"


class Ask(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base class of the input of a call."""


class Nothing(Ask, frozen=True):
    """The input of a call that takes nothing."""


class OneAsk(Ask, frozen=True):
    """One record."""

    id: str
    as_of: int | None = None


class ManyAsk(Ask, frozen=True):
    """Some records."""

    ids: list[str]
    as_of: int | None = None


class QueryAsk(Ask, frozen=True):
    """A query."""

    query: WireQuery
    view: WireView = WireView()
    as_of: int | None = None


class TallyAsk(Ask, frozen=True):
    """Values of a field, or tags."""

    query: WireQuery
    path: str | None
    prefix: str | None = None
    limit: int | None = None
    view: WireView = WireView()
    as_of: int | None = None


class SearchAsk(Ask, frozen=True):
    """A search for words."""

    words: list[str]
    prefixes: list[tuple[str, list[str]]]
    phrases: list[list[str | tuple[str, list[str]]]]
    query: WireQuery
    limit: int
    view: WireView = WireView()
    as_of: int | None = None
    among: list[str] | None = None


class ListAsk(Ask, frozen=True):
    """Something about one record, and how many of it."""

    id: str
    limit: int | None
    view: WireView = WireView()


class ChangesAsk(Ask, frozen=True):
    """Commits after one."""

    since: int
    limit: int


class WaitAsk(Ask, frozen=True):
    """A commit after one, as soon as there is one."""

    since: int
    timeout_s: float


class SeqAsk(Ask, frozen=True):
    """One commit."""

    seq: int


class TimeAsk(Ask, frozen=True):
    """A moment."""

    us: int


class KeyAsk(Ask, frozen=True):
    """The key of a commit."""

    key: str


class SchemaAsk(Ask, frozen=True):
    """A schema."""

    schema: str


class GuardAsk(Ask, frozen=True):
    """The reads of a transaction."""

    guard: WireGuard
    view: WireView = WireView()


class DeclareAsk(Ask, frozen=True):
    """A schema to make known."""

    declaration: Declaration


class CommitAsk(Ask, frozen=True):
    """A commit. Its author, its time and its room are not the client's to say."""

    ops: list[WireOp]
    key: str | None = None
    guard: WireGuard | None = None
    note: str | None = None
    kind: Literal["data", "undo"] = "data"
    of_seq: int | None = None
    keep_idle: bool = True
    view: WireView = WireView()


class FillAsk(Ask, frozen=True):
    """A schema whose old records are to be indexed, and the version that the caller knows."""

    schema: str
    version: int | None = None


class IndexAsk(Ask, frozen=True):
    """An index."""

    schema: str
    path: str


class ForgetAsk(Ask, frozen=True):
    """Records to erase for good."""

    ids: list[str]
    only_deleted: bool = False


class KeepAsk(Ask, frozen=True):
    """A retention rule; its time is microseconds."""

    versions: int | None = None
    after: int | None = None
    schema: str | None = None


Call: TypeAlias = tuple[type[Ask], Any]

CALLS: dict[str, Call] = {
    "hello": (Nothing, Hello),
    "get": (OneAsk, Datum | None),
    "get_many": (ManyAsk, list[Datum | None]),
    "ranks": (ManyAsk, list[Rank | None]),
    "query": (QueryAsk, WirePage),
    "count": (QueryAsk, int),
    "tally": (TallyAsk, list[tuple[Any, int]]),
    "search": (SearchAsk, SearchPage),
    "referrers": (ListAsk, list[Datum]),
    "ancestors": (ListAsk, list[Datum]),
    "history": (ListAsk, list[Version]),
    "changes": (ChangesAsk, list[WireChange]),
    "wait": (WaitAsk, int),
    "last_seq": (Nothing, int),
    "seq_at": (TimeAsk, int),
    "states_before": (SeqAsk, list[Reverted]),
    "validate": (GuardAsk, int),
    "outcome": (KeyAsk, Committed | None),
    "commit": (CommitAsk, Committed),
    "declare": (DeclareAsk, Declared),
    "versions": (SchemaAsk, dict[int, int]),
    "stats": (Nothing, BackendStats),
    # for partners
    "fill": (FillAsk, bool),
    "drop_index": (IndexAsk, None),
    "forget": (ForgetAsk, Forgotten),
    "compact": (KeepAsk, Compacted),
}
"""The input and the answer of each call."""


def _encode(value: Any) -> Any:
    if isinstance(value, Datum):
        return pack_datum(value)
    if isinstance(value, LazyTexts):
        return list(value)
    raise NotImplementedError(type(value).__name__)


def _decode(kind: type, value: Any) -> Any:
    if kind is Datum:
        return unpack_datum(msgspec.convert(value, WireDatum, builtin_types=(bytes,)))
    raise NotImplementedError(kind.__name__)


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode)


def pack(value: Any) -> bytes:
    """Return a request or an answer as bytes; InputError for what cannot be sent."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise InputError(f"the request cannot be sent: {error}") from None


_asks = {name: msgspec.msgpack.Decoder(ask) for name, (ask, _) in CALLS.items()}
_answers = {name: msgspec.msgpack.Decoder(answer, dec_hook=_decode) for name, (_, answer) in CALLS.items()}


def unpack_ask(name: str, body: bytes) -> Any:
    """Return the input of a call; InputError if it does not fit."""
    try:
        return _asks[name].decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{name}: the input cannot be read: {error}") from None
    except RecursionError:
        raise InputError(f"{name}: the input is nested too deeply") from None


def unpack_answer(name: str, body: bytes, place: str) -> Any:
    """Return the answer of a server; Corrupt if it does not fit."""
    try:
        return _answers[name].decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError, RecursionError) as error:
        reason = str(error)[:200] or type(error).__name__
        raise Corrupt(
            f"the answer of {place} to {name} is not one of dgent's: {reason}",
            hint="is a dgent server of the same version there?",
        ) from None


def pack_wanted(wanted: Wanted) -> dict[str, Any]:
    """Return the words of a search as they are sent."""

    def step(each: str | Prefix) -> Any:
        return each if isinstance(each, str) else (each.text, sorted(each.stems))

    return {
        "words": list(wanted.words),
        "prefixes": [(each.text, sorted(each.stems)) for each in wanted.prefixes],
        "phrases": [[step(each) for each in phrase.steps] for phrase in wanted.phrases],
    }


def unpack_wanted(sent: SearchAsk) -> Wanted:
    """Return the words of a search that were sent."""

    def step(each: str | tuple[str, list[str]]) -> str | Prefix:
        return each if isinstance(each, str) else Prefix(each[0], frozenset(each[1]))

    return Wanted(
        tuple(sent.words),
        tuple(Prefix(text, frozenset(stems)) for text, stems in sent.prefixes),
        tuple(Phrase(tuple(map(step, steps))) for steps in sent.phrases),
    )
