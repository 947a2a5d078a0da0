"""The schema: a named contract with versions, and pure steps between them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from dgent import codec, ids
from dgent.errors import InputError, NewerRecord, QueryError, SchemaError, UpgradeFailed
from dgent.model import path, ref, span
from dgent.model.contract.compile import CompiledContract
from dgent.model.vector import VectorSpec

T = TypeVar("T")
Step = Callable[[dict[str, Any]], Any]

MAX_VERSION = 2**31 - 1
MAX_WEIGHT = 16
MAX_TTL = timedelta(days=36_525)
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclasses.dataclass(frozen=True, eq=False)
class Schema(Generic[T]):
    """A named, versioned kind of record, with a data contract; without one, its values are plain dicts.

    `migrations[v]` turns data of version v into version v + 1; every step from `oldest` on is there.
    `downgrades[v]` turns version v into v - 1, so that this program can read records of a newer one.
    `indexes` are dotted paths that queries find quickly, `text` those of texts that `search` finds by their
    words, with weights. `thread` is the path of what names a conversation, in which records lend each other
    their words. `dates` is the path of a time whose words a search finds too, as in "tuesday"; True is the
    time of creation, in UTC, which is the default where there is a thread. `vector` declares that records
    have vectors, `embed` are the paths of texts that an embedder makes vectors of. `history` and `feed` say
    which replaced versions the store keeps and whether changes are announced. `owner` is the room that alone
    may write. `ttl` is how long a record lives after it was put: `"14d"`, a timedelta or seconds; with
    `refresh_on_read` it lives that long after it was last read.
    """

    name: str
    version: int = 1
    contract: type[T] | None = None
    migrations: Mapping[int, Step] = dataclasses.field(default_factory=dict)
    downgrades: Mapping[int, Step] = dataclasses.field(default_factory=dict)
    indexes: tuple[str, ...] = ()
    history: str | int = "all"
    feed: bool = True
    owner: str | None = None
    oldest: int = 1
    text: Mapping[str, int] = dataclasses.field(default_factory=dict)
    dates: str | bool | None = None
    thread: str | None = None
    vector: VectorSpec | None = None
    embed: tuple[str, ...] = ()
    ttl: timedelta | str | float | None = None
    refresh_on_read: bool = False
    shape: CompiledContract[T] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_version(self.version, "version")
        _check_version(self.oldest, "oldest")
        if self.oldest > self.version:
            raise SchemaError(
                f"{self.name}: oldest is {self.oldest}, above version {self.version}", field="oldest"
            )
        self._set("shape", CompiledContract(self.contract))
        self._set("migrations", self._steps("migrations"))
        self._set("downgrades", self._steps("downgrades"))
        self._check_steps()
        self._set("indexes", self._check_indexes())
        self._set("text", self._check_texts())
        self._set("thread", self._check_thread())
        self._set("dates", self._check_dates())
        self._set("embed", self._check_embedded())
        self._check_keeping()
        self._set("ttl", self._check_ttl())

    @property
    def lifetime(self) -> timedelta | None:
        """How long a record lives after it was put; None: until it is deleted."""
        return self.ttl if isinstance(self.ttl, timedelta) else None

    def _set(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)

    def _steps(self, field: str) -> Mapping[int, Step]:
        """Return a read-only copy: a dict that the caller changes later must not change the schema."""
        given = getattr(self, field)
        if not isinstance(given, Mapping):
            raise SchemaError(f"{self.name}: {field} must map versions to functions", field=field)
        for version, step in given.items():
            if type(version) is not int or not callable(step):
                raise SchemaError(
                    f"{self.name}: {field}[{version!r}] must be a function under a whole number", field=field
                )
        return MappingProxyType(dict(given))

    def _check_steps(self) -> None:
        wanted = set(range(self.oldest, self.version))
        if missing := sorted(wanted - self.migrations.keys()):
            steps = ", ".join(f"{v} -> {v + 1}" for v in missing)
            raise SchemaError(
                f"{self.name} version {self.version} has no migration for {steps}",
                hint="add each step; derive_step(V1, V2) writes those that only add fields with defaults; "
                "oldest= says which records are no longer read",
                missing=missing,
                field="migrations",
            )
        if outside := sorted(self.migrations.keys() - wanted):
            raise SchemaError(
                f"{self.name}: migrations {outside} lie outside {self.oldest} to {self.version - 1}",
                hint="a migration's key is the version it starts from",
                field="migrations",
            )
        if wrong := sorted(v for v in self.downgrades if not 2 <= v <= MAX_VERSION):
            raise SchemaError(
                f"{self.name}: downgrades {wrong} have no version below them",
                hint="a downgrade's key is the version it starts from, 2 or more",
                field="downgrades",
            )

    def _check_texts(self) -> Mapping[str, int]:
        given = dict.fromkeys(self.text, 1) if isinstance(self.text, tuple | list) else self.text
        if not isinstance(given, Mapping):
            raise SchemaError(f"{self.name}: text must map paths to weights", field="text")
        for text, weight in given.items():
            if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
                raise SchemaError(
                    f"{self.name}: the weight of {text!r} is {weight!r}",
                    hint=f"a whole number from 1 to {MAX_WEIGHT}",
                    field="text",
                )
        return MappingProxyType(
            dict(zip(self._check_paths(given, "text", "the text"), given.values(), strict=True))
        )

    def _check_thread(self) -> str | None:
        """Return the path of the thread, and have it indexed."""
        if self.thread is None:
            return None
        if not isinstance(self.thread, str) or self.thread.endswith("*"):
            raise SchemaError(
                f"{self.name}: thread is {self.thread!r}", hint="the path of one field", field="thread"
            )
        (thread,) = self._check_paths((self.thread,), "thread", "the thread")
        if not self.text:
            raise SchemaError(
                f"{self.name}: records of a thread lend each other words of texts",
                hint="add text=",
                field="thread",
            )
        if thread not in self.indexes:
            self._set("indexes", (*self.indexes, thread))
        return thread

    def _check_dates(self) -> str | bool:
        if isinstance(self.dates, bool | None):
            wanted: str | bool = self.thread is not None if self.dates is None else self.dates
        elif isinstance(self.dates, str):
            (wanted,) = self._check_paths((self.dates,), "dates", "the time")
        else:
            raise SchemaError(
                f"{self.name}: dates is {self.dates!r}",
                hint="the path of a time, or True for the time of creation",
                field="dates",
            )
        if wanted and not self.text:
            raise SchemaError(f"{self.name}: dates are searched with texts", hint="add text=", field="dates")
        return wanted

    def _check_embedded(self) -> tuple[str, ...]:
        if isinstance(self.embed, str | bytes) or not hasattr(self.embed, "__iter__"):
            raise SchemaError(f"{self.name}: embed must be a tuple of paths", field="embed")
        if self.embed and self.vector is not None:
            raise SchemaError(f"{self.name}: vectors are the caller's own, or embedded", field="embed")
        return self._check_paths(self.embed, "embed", "the embedded text")

    def _check_indexes(self) -> tuple[str, ...]:
        if isinstance(self.indexes, str | bytes) or not hasattr(self.indexes, "__iter__"):
            raise SchemaError(f"{self.name}: indexes must be a tuple of paths", field="indexes")
        return self._check_paths(self.indexes, "indexes", "the index")

    def _check_paths(self, given: Iterable[str], field: str, what: str) -> tuple[str, ...]:
        """Return paths in their one spelling, each of which starts at a field of the contract."""
        seen: dict[str, None] = {}
        for each in given:
            if field == "text" and each == path.EVERY:
                seen[each] = None
                continue
            try:
                parts = path.parse(each)
            except QueryError as error:
                raise SchemaError(f"{self.name}: {what} {each!r}: {error.message}", field=field) from None
            if not self.shape.open and parts[0] not in self.shape.fields:
                known = ", ".join(self.shape.fields)
                raise SchemaError(
                    f"{self.name}: {what} {each!r} does not start at a field of {self.shape.label}",
                    hint=f"its fields are {known}",
                    field=field,
                )
            if (text := path.text(parts)) in seen:
                raise SchemaError(f"{self.name}: {what} {each!r} is declared twice", field=field)
            seen[text] = None
        return tuple(seen)

    def _check_keeping(self) -> None:
        keep = self.history
        if keep not in ("all", "none") and (type(keep) is not int or keep < 1):
            raise SchemaError(
                f'{self.name}: history must be "all", "none" or a number from 1, not {keep!r}',
                field="history",
            )
        if type(self.feed) is not bool:
            raise SchemaError(f"{self.name}: feed must be True or False, not {self.feed!r}", field="feed")
        if self.owner is not None:
            try:
                ids.check_name(self.owner, "owner")
            except InputError as error:
                raise SchemaError(f"{self.name}: {error.message}", field="owner") from None

    def _check_ttl(self) -> timedelta | None:
        if type(self.refresh_on_read) is not bool or (self.refresh_on_read and self.ttl is None):
            raise SchemaError(
                f"{self.name}: refresh_on_read is {self.refresh_on_read!r}",
                hint="True or False; True needs a ttl",
                field="refresh_on_read",
            )
        found = span.parse(self.ttl)
        if self.ttl is not None and (found is None or not timedelta(0) < found <= MAX_TTL):
            raise SchemaError(
                f"{self.name}: ttl is {self.ttl!r}",
                hint='"90s", "15m", "12h", "14d" or "2w", a timedelta, or seconds; at most 100 years',
                field="ttl",
            )
        return found

    def can_read(self, version: int) -> bool:
        """Return whether there are steps from a stored version to this one."""
        if version <= self.version:
            return version >= self.oldest
        # The count first: a stored version of two billion must not become a walk of that length.
        return version - self.version <= len(self.downgrades) and all(
            v in self.downgrades for v in range(self.version + 1, version + 1)
        )

    def shape_of(self, data: Mapping[str, Any], stored_version: int) -> dict[str, Any]:
        """Return a copy of the data in this schema's version, upgraded or downgraded."""
        if stored_version > self.version:
            return self.downgrade(data, stored_version)
        return self.upgrade(data, stored_version)

    def upgrade(self, data: Mapping[str, Any], from_version: int) -> dict[str, Any]:
        """Return a copy of older data in this version; the steps never see the caller's own data.

        Raises UpgradeFailed when a step does, and for data older than `oldest`.
        """
        if isinstance(data, int) and isinstance(from_version, Mapping):
            raise InputError(
                "upgrade takes the data first, then its version", hint=f"schema.upgrade(data, {data})"
            )
        if from_version > self.version:
            return self.downgrade(data, from_version)
        if from_version < self.oldest:
            raise UpgradeFailed(
                f"{self.name} reads versions from {self.oldest}; this record is of version {from_version}",
                schema=self.name,
                step=f"{from_version} -> {from_version + 1}",
                reason=f"no steps below version {self.oldest}",
            )
        out = self._copy(data, from_version)
        for version in range(from_version, self.version):
            out = self._run(self.migrations[version], out, version, version + 1)
        return out

    def downgrade(self, data: Mapping[str, Any], from_version: int) -> dict[str, Any]:
        """Return a copy of newer data in this version; raises NewerRecord when a step back is missing."""
        if not self.can_read(from_version):
            raise NewerRecord(
                f"this record is of {self.name} version {from_version}; this program knows {self.version}",
                schema=self.name,
                stored=from_version,
                version=self.version,
            )
        out = self._copy(data, from_version)
        for version in range(from_version, self.version, -1):
            out = self._run(self.downgrades[version], out, version, version - 1)
        return out

    def _copy(self, data: Mapping[str, Any], version: int) -> dict[str, Any]:
        try:
            return _plain(data)
        except InputError as error:
            raise self._upgrade_failure(f"{version}", f"the stored data: {error}") from error

    def _run(self, step: Step, data: dict[str, Any], start: int, end: int) -> dict[str, Any]:
        name = f"{start} -> {end}"
        try:
            made = step(data)
        except Exception as error:
            raise self._upgrade_failure(name, f"{type(error).__name__}: {error}") from error
        if not isinstance(made, dict):
            raise self._upgrade_failure(name, f"it returned a {type(made).__name__}, not a dict")
        try:
            return _plain(made)
        except InputError as error:
            raise self._upgrade_failure(name, f"it returned data that cannot be stored: {error}") from error

    def _upgrade_failure(self, step: str, reason: str) -> UpgradeFailed:
        return UpgradeFailed(f"{self.name} {step}: {reason}", schema=self.name, step=step, reason=reason)

    def parse(self, data: Mapping[str, Any], version: int | None = None) -> T:
        """Return the value of data, which is upgraded first if it is of an older `version`."""
        return self.decode(self.shape_of(data, self.version if version is None else version))

    def decode(self, data: dict[str, Any]) -> T:
        """Return the value of data in this version; raises DecodeFailed naming every wrong field."""
        return self.shape.decode(data)

    def encode(self, value: T) -> dict[str, Any]:
        """Return the storable data of a value; raises InputError naming every wrong field."""
        return self.shape.encode(value)

    def carry(self, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        """Return new data plus the fields of the old data that the contract does not know."""
        return self.shape.carry(old, new)

    def refs(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the path and the id of every link in the data."""
        return self.shape.refs(data)

    @property
    def ref_paths(self) -> tuple[str, ...]:
        """The paths of links, and of lists of links, that an engine indexes."""
        return self.shape.ref_paths

    @property
    def digest(self) -> str:
        """A short text that differs when the contract does."""
        return self.shape.digest

    @staticmethod
    def derive_step(old: type[Any], new: type[Any]) -> Step:
        """Return a migration that only adds the fields with defaults that `new` has and `old` lacks."""
        return _derive_step(CompiledContract(old), CompiledContract(new))


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = codec.plain(dict(data), enc_hook=ref.encode_hook)
    return out


def _check_name(name: object) -> None:
    try:
        text = ids.check_name(name, "a schema's name")
    except InputError as error:
        raise SchemaError(error.message, field="name") from None
    if not _NAME.fullmatch(text):
        raise SchemaError(
            f"{text!r} is not a valid name for a schema",
            hint="use letters, digits, _ and -, in parts joined by dots, as in witness.mark",
            field="name",
        )


def _check_version(value: object, field: str) -> None:
    if type(value) is not int or not 1 <= value <= MAX_VERSION:
        raise SchemaError(f"{field} must be a whole number from 1, not {value!r}", field=field)


def _derive_step(old: CompiledContract[Any], new: CompiledContract[Any]) -> Step:
    pair = f"{old.label} -> {new.label}"
    hint = "write this step by hand"
    if dropped := [name for name in old.fields if name not in new.fields]:
        raise SchemaError(f"{pair} drops or renames {', '.join(dropped)}", hint=hint, fields=dropped)
    if changed := [name for name, text in old.fields.items() if new.fields[name] != text]:
        raise SchemaError(f"{pair} changes the type of {', '.join(changed)}", hint=hint, fields=changed)
    added = [name for name in new.fields if name not in old.fields]
    if bare := [name for name in added if name not in new.defaults]:
        raise SchemaError(f"{pair} adds {', '.join(bare)} without a default", hint=hint, fields=bare)
    makers = {name: new.defaults[name] for name in added}

    def step(data: dict[str, Any]) -> dict[str, Any]:
        # Made per record, so that a default_factory such as "now" or "a new id" runs for each.
        return data | {name: _plain({"": make()})[""] for name, make in makers.items() if name not in data}

    try:
        step({})
    except Exception as error:  # of a factory that needs the other fields, too
        raise SchemaError(f"{pair}: a default cannot be stored: {error}", hint=hint) from None
    return step
