"""Turn the contents of legacy files into records: of the membrane where they are known, else plain ones.

Ids follow from the file and the place in it, so that the same file imported twice makes the same records.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from dgent import clock, codec, ids
from dgent.errors import DgentError, InputError
from dgent.exchange.foreign.legacy.source import SourceFile
from dgent.membrane.membrane import Membrane, read_row
from dgent.membrane.record import SCHEMAS, TABLES, AgentState, PromptCheckpoint
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.store.sqlite.foreign import ForeignRow

_DAMAGE = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)
_DECODE = msgspec.json.Decoder().decode
_BY_NAME = {each.name: each for each in SCHEMAS}
_GENUS = {"soul": "k-gent"}
_TEXT_KEYS = ("content", "prompt", "text")


class Item(NamedTuple):
    """A record to import. `spare` has the id that it gets where its own is taken by something else.

    `plain` is the record in place of one of the membrane that cannot be stored; None for a plain one.
    """

    datum: Datum
    spare: str | None = None
    plain: Datum | None = None


class Origin(NamedTuple):
    """The file that records come from: its SHA-256, and the row of the table of legacy paths it is in."""

    file: SourceFile
    sha256: str
    row: str

    @property
    def id(self) -> str:
        """The id of the record about the file itself."""
        return self.id_of("")

    def id_of(self, place: str) -> str:
        """Return the id of a record at a place in the file."""
        id = ids.compose("legacy", self.sha256, self.file.name + (f"#{place}" if place else ""))
        if len(id.encode(errors="replace")) <= ids.MAX_ID_BYTES:
            return id
        return f"legacy/{self.sha256}/{codec.blake2b(id.encode(), size=16).hexdigest()}"

    def make(self, place: str, data: dict[str, Any], **more: Any) -> Datum:
        """Return a record of a place in the file, caused by the record about the file."""
        fields = {
            "schema": f"legacy.{self.row}",
            "schema_version": 1,
            "created_at": self.file.changed_at,
            "parent_id": self.id,
            "source": "legacy",
            **more,
        }
        return Datum(fields.pop("id", None) or self.id_of(place), data=data, **fields)


class Parser:
    """Parses files of a legacy folder for one membrane."""

    def __init__(self, membrane: Membrane) -> None:
        self._membrane = membrane

    # -- JSON ---------------------------------------------------------------------------------

    def parse_json(self, origin: Origin, raw: bytes) -> Iterator[Item]:
        """Yield the record of a JSON file, of a list one for each object; InputError if it is not JSON."""
        value = _load(raw)
        several = isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
        if several and origin.row not in ("soul", "hypnagogia"):
            for number, each in enumerate(value, 1):
                yield self._read(origin, str(number), each)
        else:
            yield self._read(origin, "", value)

    def parse_lines(self, origin: Origin, raw: bytes) -> Iterator[Item]:
        """Yield a record for each line; of lines of the ancestor's datums, the last of each id."""
        last: dict[str, tuple[int, dict[str, Any]]] = {}
        for number, line in enumerate(raw.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                value = _load(line)
            except InputError:
                yield Item(origin.make(str(number), _keep_bytes(line)))
                continue
            if _is_datum(value) or _is_deleted(value):
                last.pop(value["id"], None)
                last[value["id"]] = number, value
            else:
                yield self._read(origin, str(number), value)
        for number, value in last.values():
            if not _is_deleted(value):
                yield self._read(origin, str(number), value)

    def _read(self, origin: Origin, place: str, value: Any) -> Item:
        if _is_datum(value):
            return _read_datum(origin, place or "1", value)
        if origin.row in ("soul", "hypnagogia"):
            return self._state(origin, place or "1", value)
        if origin.row == "prompt-history" and isinstance(value, dict):
            text = next((value[key] for key in _TEXT_KEYS if isinstance(value.get(key), str)), None)
            if text is not None:
                return self._checkpoint(origin, place, text, value)
        if isinstance(value, dict) and (typed := _read_typed(origin, place or "1", value)) is not None:
            return typed
        data = value if isinstance(value, dict) else {"value": value}
        return Item(origin.make(place or "1", data))

    def _state(self, origin: Origin, place: str, value: Any) -> Item:
        """Return the state of an agent: `soul/state.json` is that of soul, others have their paths."""
        name = origin.file.name.removesuffix(".json").removesuffix("/state")
        plain = origin.make(place, value if isinstance(value, dict) else {"value": value})
        state = AgentState(
            agent_id=name[: ids.MAX_NAME_BYTES],
            genus=_GENUS.get(origin.row, origin.row),
            state=value,
            updated_at=origin.file.changed_at,
        )
        return self._own(state, plain)

    def _checkpoint(self, origin: Origin, place: str, text: str, value: Mapping[str, Any]) -> Item:
        known = (*_TEXT_KEYS, "name", "reason", "parent_id")
        rest = {key: each for key, each in value.items() if key not in known or not isinstance(each, str)}
        name = value.get("name")
        checkpoint = PromptCheckpoint(
            id="legacy-" + codec.blake2b(origin.id_of(place or "1").encode(), size=12).hexdigest(),
            name=name if isinstance(name, str) and name else origin.file.path.stem,
            content=text,
            parent_id=_text(value.get("parent_id")),
            reason=_text(value.get("reason")),
            created_at=origin.file.changed_at,
            metadata={**rest, "path": origin.file.name, "sha256": origin.sha256},
        )
        return self._own(checkpoint, origin.make(place or "1", dict(value)))

    def parse_prompt(self, origin: Origin, raw: bytes) -> Iterator[Item]:
        """Yield the checkpoint of a file that is the text of a prompt; InputError if it is not text."""
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise InputError("it is not UTF-8 text") from None
        yield self._checkpoint(origin, "", text, {"content": text})

    def _own(self, record: Any, plain: Datum) -> Item:
        try:
            return Item(self._membrane.datum_of(record).check(), None, plain)
        except DgentError:
            return Item(plain)

    # -- rows of SQLite files -----------------------------------------------------------------

    def parse_row(self, origin: Origin, row: ForeignRow) -> Iterator[Item]:
        """Yield the record of a row; a row of a known table with other columns has a plain one beside it."""
        values = {name: _plain_value(value) for name, value in row.values.items()}
        place = f"{row.table}/{row.number}"
        plain = origin.make(place, {"table": row.table, "row": values})
        if _is_datum(row.values):
            yield _read_datum(origin, place, row.values)
            return
        table = row.table if row.table in TABLES else f"cli_{row.table}"
        known = {
            name: each for name, each in values.items() if table in TABLES and name in TABLES[table].columns
        }
        if table not in TABLES or not values.get(TABLES[table].key):
            yield Item(plain)
            return
        try:
            own = self._own(read_row(table, _BY_NAME[TABLES[table].schema], known), plain)
        except DgentError:
            yield Item(plain)
            return
        yield own
        if len(known) < len(values) and own.plain is not None:
            yield Item(plain)


def _load(raw: bytes) -> Any:
    """Return a value of JSON that a record can hold; InputError says why not."""
    try:
        value = _DECODE(raw.removeprefix(b"\xef\xbb\xbf"))
        codec.plain([[[value]]])
    except _DAMAGE as error:
        raise InputError(f"it is not valid JSON: {error}"[:200]) from None
    return value


# -- datums of the ancestor -----------------------------------------------------------------------


def _is_datum(value: Any) -> bool:
    """Return whether a line or a row is a datum of the ancestor."""
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("id"), str)
        and bool(value["id"])
        and isinstance(value.get("content"), str | bytes)
        and type(value.get("created_at")) in (int, float)
        and "causal_parent" in value
    )


def _is_deleted(value: Any) -> bool:
    return isinstance(value, dict) and value.get("_deleted") is True and isinstance(value.get("id"), str)


def _read_datum(origin: Origin, place: str, value: Mapping[str, Any]) -> Item:
    """Return a datum of the ancestor: its content, or the typed record that the content is."""
    content = value["content"]
    if isinstance(content, str):
        try:
            content = base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            content = content.encode(errors="replace")
    metadata = value.get("metadata")
    if isinstance(metadata, str):
        try:
            metadata = _load(metadata.encode())
        except InputError:
            metadata = {"metadata": metadata}
    more: dict[str, Any] = {"schema": None, "schema_version": None}
    try:
        more["created_at"] = clock.from_us(int(value["created_at"] * 1e6))
    except (DgentError, ValueError, OverflowError):
        more["created_at"] = origin.file.changed_at
    parent = value.get("causal_parent")
    more["parent_id"] = parent if isinstance(parent, str) and parent else origin.id
    data = dict(metadata) if isinstance(metadata, dict) else {}
    try:
        inner = _load(content)
    except InputError:
        inner = None
    if isinstance(inner, dict) and (typed := _read_typed(origin, place, inner, **more)) is not None:
        return _with_id(origin, place, typed.datum, value["id"])
    return _with_id(origin, place, origin.make(place, data, content=content, **more), value["id"])


def _read_typed(origin: Origin, place: str, value: Mapping[str, Any], **more: Any) -> Item | None:
    """Return the record of a value that names its schema and version inside; None if it does not."""
    schema, version = value.get("_schema"), value.get("_version", 1)
    if not isinstance(schema, str) or type(version) is not int or not 1 <= version < 2**31:
        return None
    if reserved.is_reserved(schema):
        return None
    data = {name: each for name, each in value.items() if name not in ("_schema", "_version")}
    made = origin.make(place, data, **{**more, "schema": schema, "schema_version": version})
    try:
        made.check()
    except DgentError:
        return None
    return _with_id(origin, place, made, value.get("id"))


def _with_id(origin: Origin, place: str, datum: Datum, id: Any) -> Item:
    """Return a record under the id that it had, where that can be one; else under one of its place."""
    try:
        own = ids.check_id(id)
    except InputError:
        return Item(datum)
    if "/" in own or reserved.may_be_of_room(own) or reserved.is_own(own, None):
        return Item(datum)
    return Item(datum.replace(id=own), origin.id_of(place))


# -- values ---------------------------------------------------------------------------------------


def _plain_value(value: Any) -> Any:
    """Return a value of SQLite as a record holds it: bytes in base64, infinite numbers as text."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _keep_bytes(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode()
        if "\0" not in text:
            return {"line": text}
    except UnicodeDecodeError:
        pass
    return {"line_base64": base64.b64encode(raw).decode()}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
