"""Turn the writes of a transaction into lines, and append them so that each commit is whole or absent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dgent import clock, ids
from dgent.store.backend import KINDS
from dgent.store.engine import merge
from dgent.store.engine.catalog import SchemaState
from dgent.store.engine.kernel import FORGET, QUIET, SAME, Logged, Writing
from dgent.store.engine.row import Row
from dgent.store.jsonl import folder
from dgent.store.jsonl.line import seal_line
from dgent.system.files import disk_errors

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel


class RecordedChanges:
    """The writes of one transaction that lines must hold; derived rows are left out."""

    def __init__(self) -> None:
        self.commits: list[tuple[Logged, dict[int, Row]]] = []
        self.rows: dict[int, Row] = {}  # of the current commit, by record key
        self.new: set[int] = set()  # the keys of new records
        self.keep: dict[tuple[int, int], int] = {}  # how many older versions to keep, by record key and rev
        self.states: dict[str, SchemaState] = {}
        self.states_before: dict[str, SchemaState | None] = {}
        self.drops: dict[int, int] = {}
        self.erased: list[Row] = []
        self.floor: int | None = None
        self.expired: int | None = None

    @property
    def has_retention(self) -> bool:
        """True if a retention rule was applied."""
        return bool(self.drops) or self.floor is not None or self.expired is not None


class RecordingKernel:
    """A kernel that records the writes it passes on; wrappers that change bytes are below it."""

    def __init__(self, kernel: Writing) -> None:
        self._kernel = kernel
        self.recorded = RecordedChanges()
        # Called many times in a commit, so `__getattr__` is bypassed.
        for name in ("head", "make_number", "make_index", "add_entries", "state", "name", "index_number"):
            setattr(self, name, getattr(kernel, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def take_changes(self) -> RecordedChanges:
        """Return the writes since the last call."""
        recorded, self.recorded = self.recorded, RecordedChanges()
        return recorded

    def insert(self, rows: Sequence[Row]) -> None:
        """Insert rows of new records."""
        self._kernel.insert(rows)
        for row in rows:
            self.recorded.rows[row.dk] = row
            self.recorded.new.add(row.dk)

    def replace(self, row: Row) -> None:
        """Replace the newest version of a record."""
        self._kernel.replace(row)
        recorded = self.recorded
        recorded.rows[row.dk] = row
        below = recorded.drops.pop(row.dk, None)
        if below is not None:
            recorded.keep[row.dk, row.rev] = row.rev - below

    def drop_past(self, dk: int, below_rev: int) -> int:
        """Remove old versions below a rev; if `replace` follows, this is the schema's history limit."""
        self.recorded.drops[dk] = below_rev
        return self._kernel.drop_past(dk, below_rev)

    def append(self, logged: Logged) -> None:
        """Append a commit to the log."""
        self._kernel.append(logged)
        recorded = self.recorded
        recorded.commits.append((logged, recorded.rows))
        recorded.rows = {}

    def set_state(self, state: SchemaState) -> None:
        """Store the state of a schema."""
        self.recorded.states_before.setdefault(state.name, self._kernel.state(state.name))
        self._kernel.set_state(state)
        self.recorded.states[state.name] = state

    def erase(self, rows: Sequence[Row], seqs: Sequence[int], seq: int) -> int:
        """Remove records and their traces in the log."""
        self.recorded.erased.extend(rows)
        return self._kernel.erase(rows, seqs, seq)

    def expire_keys(self, before: int) -> None:
        """Delete the keys of commits before a time, in microseconds."""
        self._kernel.expire_keys(before)
        if self._kernel.connection.changes():  # type: ignore[attr-defined]
            self.recorded.expired = before

    def raise_floor(self, seq: int) -> int:
        """Remove commits up to a seq, and return how many."""
        self.recorded.floor = seq
        return self._kernel.raise_floor(seq)


Fields = dict[str, Any]


class Journal:
    """The lines of one transaction."""

    def __init__(self, kernel: JSONLKernel) -> None:
        self._kernel, self._cache = kernel, kernel.cache
        self._chunks: dict[str, list[bytes]] = {}
        self._lines: list[tuple[int, int, str, str, int, int, int, int]] = []
        self._marks: list[tuple[str, int]] = []
        self._written = 0
        self._names: dict[int, str] = {}
        self._latest: dict[int, str] = {}  # sums of the lines of this transaction, by record key

    # -- lines ----------------------------------------------------------------------------

    def add(self, recorded: RecordedChanges) -> None:
        """Add the lines of a transaction."""
        # Each schema has its file, so several schemas mean several files.
        schemas = {row.schema for _, rows in recorded.commits for row in rows.values()}
        for logged, rows in recorded.commits:
            self._add_commit(logged, rows, recorded, spread=len(schemas) > 1)
        for schema, state in recorded.states.items():
            self._add_schema(state, recorded.states_before[schema])
        if recorded.has_retention:
            self._add_retention(recorded)

    def _add_commit(
        self, logged: Logged, rows: dict[int, Row], recorded: RecordedChanges, *, spread: bool
    ) -> None:
        """Add a commit; it gets a mark if its lines are in several files or cannot hold all of it.

        Note and key of several records are not in the line of one of them: they must be removed when another
        one is forgotten, and a line never changes.
        """
        c = self._kernel.commit_id(logged.seq)
        about = self._commit_fields(logged)
        changed = [(i, op) for i, op in enumerate(logged.ops) if op[0] & ~QUIET not in (SAME, FORGET)]
        marked = spread or len(changed) != len(logged.ops) or not changed
        marked = marked or (len(changed) > 1 and not {"note", "key"}.isdisjoint(about))
        self._written += 1
        for i, (_, record_key, _) in changed:
            row = rows[record_key]
            fields: Fields = {}
            if len(changed) > 1 or marked:
                fields["i"] = i
                fields["n"] = 0 if marked else len(changed)
            in_line = about if not marked and i == changed[0][0] else {}
            prev = None if record_key in recorded.new else self.sum_of(record_key)
            self.add_line(row, c, fields, in_line, prev, recorded.keep.get((record_key, row.rev)))
        if marked:
            mark = {"c": c, "seq": logged.seq, "at": clock.from_us(logged.at), "n": len(changed)}
            self.add_mark({**mark, **about, **self._op_fields(logged, recorded)}, logged.seq)

    def _commit_fields(self, logged: Logged) -> Fields:
        """Return the fields about the commit itself."""
        fields: Fields = {"by": self._kernel.name(logged.author)}
        if logged.kind:
            fields["kind"] = KINDS[logged.kind]
        if logged.note is not None:
            fields["note"] = logged.note
        if logged.of_seq is not None:
            fields["of"] = self._cache.commit_of(logged.of_seq) or ""
        if logged.key is not None:
            fields["key"] = logged.key.hex()
        if logged.digest is not None:
            fields["digest"] = logged.digest.hex()
        return fields

    def _op_fields(self, logged: Logged, recorded: RecordedChanges) -> Fields:
        """Return the fields about ops without a line: unchanged and forgotten records."""
        fields: Fields = {}
        same = []
        for i, (code, record_key, rev) in enumerate(logged.ops):
            if code & ~QUIET == SAME:
                row = self._kernel.row(record_key) if record_key else None
                same.append((i, None if row is None else row.id, rev))
        if same:
            fields["same"] = same
        erased = {row.dk: row for row in recorded.erased}
        gone = [erased[record_key] for code, record_key, _ in logged.ops if code & ~QUIET == FORGET]
        if gone:
            fields["forget"] = [(self._kernel._hash(row.id).hex(), row.rev) for row in gone]
            lines = {self._kernel._hash(row.id).hex(): self._erased_lines(row) for row in gone}
            fields["lines"] = {hashed: sums for hashed, sums in lines.items() if sums is not None}
            self._cache.put_erased(fields["forget"], fields["lines"])
            if not fields["lines"]:
                del fields["lines"]
        return fields

    def _erased_lines(self, row: Row) -> list[str] | None:
        """Return the sums of a forgotten record's lines if only these are erased; None to erase by id.

        Ids of records that a room settles jointly are numbers: another copy may have given the same id to
        another record, which must not be erased with the deleted record.
        """
        rules = None if row.live else merge.rules_of(schema := self._kernel.name(row.schema))
        if rules is None or schema not in rules.joint:
            return None
        return sorted(self._cache.lines_of(row.dk))

    def add_line(
        self,
        row: Row,
        c: str,
        decided: Fields,
        about: Fields,
        prev: Any,
        keep: int | None = None,
        local_rev: int | None = None,
    ) -> str:
        """Add the line of a version and return its sum; `local_rev` is the rev here if it differs."""
        names, name = self._names, self._kernel.name
        schema = names.get(row.schema) or names.setdefault(row.schema, name(row.schema))
        author = names.get(row.author) or names.setdefault(row.author, name(row.author))
        fields: Fields = {"id": row.id, "rev": row.rev, "seq": row.seq, "c": c, **decided}
        if fields["seq"] is None:
            del fields["seq"]
        self._add_record_fields(fields, row, schema, author)
        if keep is not None:
            fields["keep"] = keep
        after = self._kernel.forgotten_rev(row.id)
        if after:
            fields["after"] = after
        for key, value in about.items():
            if key != "by" or value != author:
                fields[key] = value
        if prev is not None:
            fields["prev"] = prev
        file = folder.file_of(schema)
        made = self._append(file, fields)
        rev = row.rev if local_rev is None else local_rev
        number = self._cache.number(file)
        self._lines.append((row.dk, rev, made, c, row.at, number, row.rev, after))
        self._latest[row.dk] = made
        return made

    def _add_record_fields(self, fields: Fields, row: Row, schema: str, author: str) -> None:
        """Add the fields of the record itself, in the order of a line."""
        fields["at"] = clock.from_us(row.at)
        if not row.live:
            fields["op"] = "delete"
        fields["created_at"] = clock.from_us(row.t)
        if schema:
            fields["schema"], fields["schema_version"] = schema, row.sv
        fields["author"] = author
        if row.source is not None:
            fields["source"] = self._kernel.name(row.source)
        if row.parent is not None:
            fields["parent_id"] = row.parent
        if row.tags != "[]":
            fields["tags"] = msgspec.Raw(row.tags.encode())
        if row.x is not None:
            fields["extra"] = msgspec.Raw(row.x)
        if row.data is not None:
            fields["data"] = msgspec.Raw(row.data)
        if row.content is not None:
            fields["content"] = row.content

    def add_mark(self, fields: Fields, seq: int) -> None:
        """Add the mark of a commit that has a seq here."""
        self._marks.append((fields["c"], seq))
        self._append(folder.COMMITS, fields)

    def sum_of(self, record_key: int) -> str | None:
        """Return the sum of the line of a record's newest version."""
        made = self._latest.get(record_key)
        if made is None:
            found = self._cache.find_newest_line(record_key)
            made = None if found is None else found.sum
        return made

    def _add_schema(self, state: SchemaState, before: SchemaState | None) -> None:
        """Add the declaration of a schema if it changed; index progress is only in the cache."""
        declared = declared_fields(state)
        if declared != ({} if before is None else declared_fields(before)):
            at = clock.from_us(max(clock.now_us(), self._kernel.tip.at))
            self._append(folder.SCHEMAS, {"schema": state.name, "at": at, **declared})

    def _add_retention(self, recorded: RecordedChanges) -> None:
        kernel, tip = self._kernel, self._kernel.tip
        fields: Fields = {"c": ids.new_id(), "seq": tip.seq, "at": clock.from_us(tip.at), "kind": "compact"}
        rows = [(kernel.row(record_key), below) for record_key, below in recorded.drops.items()]
        drops = {row.id: below for row, below in rows if row is not None}
        if drops:
            fields["drops"] = drops
        if recorded.floor is not None:
            fields["floor"] = recorded.floor
        if recorded.expired is not None:
            fields["expired"] = clock.from_us(recorded.expired)
        self._append(folder.COMMITS, fields)

    def _append(self, name: str, fields: Fields) -> str:
        line, made = seal_line(fields)
        self._chunks.setdefault(name, []).append(line)
        return made

    def joined_lines(self) -> bytes:
        """Return all lines as bytes, for a caller that writes them itself."""
        return b"".join(line for lines in self._chunks.values() for line in lines)

    # -- writing --------------------------------------------------------------------------

    def write(self) -> None:
        """Append all lines and make them durable: records first, then the marks that decide about them."""
        if self._kernel.unlocked:
            self._chunks = {}  # the lock's holder writes the same lines
        records = [name for name in self._chunks if name != folder.COMMITS]
        marks = [folder.COMMITS] if folder.COMMITS in self._chunks else []
        with disk_errors(self._kernel.folder.path):
            for names, commits in ((records, 0 if marks else self._written), (marks, self._written)):
                if names:
                    self._append_to(names)
                    self._kernel.syncing.sync_appended(names, commits, final=self._kernel.final)
        self._kernel.note_lines(self._lines)
        self._cache.put_marks(self._marks)

    def _append_to(self, names: Iterable[str]) -> None:
        kernel = self._kernel
        for name in names:
            chunk = b"".join(self._chunks[name])
            known = kernel.file_state(name)
            stamp = kernel.folder.append(name, chunk, known.stamp.size, known.stamp.inode, known.ended)
            kernel.set_file_state(name, known.extend(stamp, chunk, len(self._chunks[name])))


_PLAIN = SchemaState("", 0)
_NAMES = {"version": "iv", "indexes": "paths"} | {
    name: name for name in ("refs", "history", "feed", "owner", "digest")
}


def declared_fields(state: SchemaState) -> Fields:
    """Return the declared fields of a schema that differ from their defaults."""
    declared = {name: getattr(state, field) for name, field in _NAMES.items()}
    return {name: value for name, value in declared.items() if value != getattr(_PLAIN, _NAMES[name])}
