"""The journal: lines of a transaction, appended to files so that each commit is whole or absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dgent import clock, ids
from dgent.errors import OutcomeUnknown
from dgent.store.backend import KINDS
from dgent.store.engine import merge
from dgent.store.engine.catalog import SchemaState
from dgent.store.engine.kernel import FORGET, QUIET, SAME, Logged
from dgent.store.engine.row import Row
from dgent.store.jsonl import folder
from dgent.store.jsonl.cache import EMPTY, Cache, CachedLine, FileState
from dgent.store.jsonl.folder import Stamp, StoreFolder
from dgent.store.jsonl.fsync import Policy, Syncer
from dgent.store.jsonl.line import seal_line
from dgent.store.jsonl.recorder import RecordedChanges, RecordedCommit
from dgent.system.files import disk_errors

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel

UNKNOWN = -1
UNSAVED = 1 << 18  # bytes of a file that may be read again after a crash

Fields = dict[str, Any]


class Journal:
    """The lines of one transaction."""

    def __init__(self, kernel: JSONLKernel) -> None:
        self._kernel, self._cache, self._store = kernel, kernel.cache, kernel.store
        self._chunks: dict[str, list[bytes]] = {}
        self._lines: list[CachedLine] = []
        self._marks: list[tuple[str, int]] = []
        self._written = 0
        self._names: dict[int, str] = {}
        self._latest: dict[int, str] = {}  # sums of the lines of this transaction, by record key

    # -- lines ----------------------------------------------------------------------------

    def add(self, recorded: RecordedChanges) -> None:
        """Add the lines of a transaction."""
        # Each schema has its file, so several schemas mean several files.
        schemas = {row.schema for commit in recorded.commits for row in commit.rows.values()}
        for commit in recorded.commits:
            self._add_commit(commit, recorded, spread=len(schemas) > 1)
        for schema, state in recorded.states.items():
            self._add_schema(state, recorded.states_before[schema])
        if recorded.has_retention:
            self._add_retention(recorded)

    def _add_commit(self, commit: RecordedCommit, recorded: RecordedChanges, *, spread: bool) -> None:
        """Add a commit; it gets a mark if its lines are in several files or cannot hold all of it.

        Note and key of several records are not in the line of one of them: they must be removed when another
        one is forgotten, and a line never changes.
        """
        logged, rows, c = commit
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
        fields: Fields = {"by": self._store.name(logged.author)}
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
                same.append((i, self._cache.find_id(record_key) if record_key else None, rev))
        if same:
            fields["same"] = same
        erased = {row.record_key: row for row in recorded.erased}
        gone = [erased[record_key] for code, record_key, _ in logged.ops if code & ~QUIET == FORGET]
        if gone:
            fields["forget"] = [(self._cache.hash(row.id).hex(), row.rev) for row in gone]
            lines = {self._cache.hash(row.id).hex(): self._erased_lines(row) for row in gone}
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
        if row.live or not merge.is_joint(self._store.name(row.schema)):
            return None
        return sorted(self._cache.lines_of(row.record_key))

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
        names, name = self._names, self._store.name
        schema = names.get(row.schema) or names.setdefault(row.schema, name(row.schema))
        author = names.get(row.author) or names.setdefault(row.author, name(row.author))
        fields: Fields = {"id": row.id, "rev": row.rev, "seq": row.seq, "c": c, **decided}
        if fields["seq"] is None:
            del fields["seq"]
        self._add_record_fields(fields, row, schema, author)
        if keep is not None:
            fields["keep"] = keep
        after = self._store.forgotten_rev(row.id)
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
        self._lines.append(CachedLine(row.record_key, rev, made, c, row.at, number, row.rev, after))
        self._latest[row.record_key] = made
        return made

    def _add_record_fields(self, fields: Fields, row: Row, schema: str, author: str) -> None:
        """Add the fields of the record itself, in the order of a line."""
        fields["at"] = clock.from_us(row.at)
        if not row.live:
            fields["op"] = "delete"
        fields["created_at"] = clock.from_us(row.created_at)
        if schema:
            fields["schema"], fields["schema_version"] = schema, row.schema_version
        fields["author"] = author
        if row.source is not None:
            fields["source"] = self._store.name(row.source)
        if row.parent is not None:
            fields["parent_id"] = row.parent
        if row.tags != "[]":
            fields["tags"] = msgspec.Raw(row.tags.encode())
        if row.extra is not None:
            fields["extra"] = msgspec.Raw(row.extra)
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
            at = clock.from_us(max(clock.now_us(), self._store.tip.at))
            self._append(folder.SCHEMAS, {"schema": state.name, "at": at, **declared})

    def _add_retention(self, recorded: RecordedChanges) -> None:
        tip = self._store.tip
        fields: Fields = {"c": ids.new_id(), "seq": tip.seq, "at": clock.from_us(tip.at), "kind": "compact"}
        found = [(self._cache.find_id(record_key), below) for record_key, below in recorded.drops.items()]
        drops = {id: below for id, below in found if id is not None}
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

    def write(self) -> None:
        """Append all lines and make them durable."""
        self._kernel.files.append(self._chunks, self._written, final=self._kernel.final)
        self._cache.add_lines(self._lines)
        self._cache.put_marks(self._marks)


_PLAIN = SchemaState("", 0)
_NAMES = {"version": "index_version", "indexes": "paths"} | {
    name: name
    for name in (
        "refs",
        "history",
        "feed",
        "owner",
        "digest",
        "text",
        "tokenizer",
        "dates",
        "thread",
        "vector",
    )
}


def declared_fields(state: SchemaState) -> Fields:
    """Return the declared fields of a schema that differ from their defaults."""
    if not state.index_version:
        return {}  # its texts follow from that nobody declared it
    declared = {name: getattr(state, field) for name, field in _NAMES.items()}
    return {name: value for name, value in declared.items() if value != getattr(_PLAIN, _NAMES[name])}


class JournalFiles:
    """The files of the journal: appending to them, and their states as the cache knows them."""

    def __init__(self, folder: StoreFolder, policy: Policy) -> None:
        self._folder, self._syncer = folder, Syncer(folder, policy)
        self.unlocked = False  # True while the files are read without the lock, and must not be written
        self.unsaved: dict[str, int] = {}  # files whose state in the cache is old, and their size then
        self._known: dict[str, FileState] = {}
        self._changed: dict[str, FileState] = {}  # the files that this transaction changed
        self._before: dict[str, int] = {}  # the sizes of files before this transaction appended to them
        self._seen: dict[str, Stamp] = {}  # the files as the cache knows them, for readers on other threads
        self._seen_folder = UNKNOWN

    # -- the state of files ---------------------------------------------------------------

    def state(self, name: str) -> FileState:
        """Return the state of a file, with the changes of this transaction."""
        return self._changed.get(name) or self._known.get(name, EMPTY)

    def set_state(self, name: str, known: FileState) -> None:
        """Record that this transaction changed a file."""
        self._changed[name] = known

    def reset(self, known: dict[str, FileState]) -> None:
        """Replace all states by those that the cache has."""
        self._known, self._changed, self._before, self.unsaved = known, {}, {}, {}

    def save(self, cache: Cache) -> None:
        """Write to the cache how far the files are read.

        Not needed with every commit: lines after that are read again, and known lines change nothing.
        """
        for name in self.unsaved | self._changed:
            cache.put_file(name, self.state(name))
        self.unsaved = {}

    def is_save_due(self) -> bool:
        """Check whether a crash would leave too much to read again."""
        return any(self.state(name).stamp.size - size > UNSAVED for name, size in self.unsaved.items())

    def are_changed(self) -> bool:
        """Check whether the files changed since the cache read them; quick, because every read calls it."""
        try:
            return self._look()
        except OSError as error:
            with disk_errors(self._folder.path):
                raise error

    def _look(self) -> bool:
        stamp = self._folder.stamp
        for name, seen in self._seen.items():
            if stamp(name) != seen:
                return True
        mtime = self._folder_mtime()
        if mtime == self._seen_folder:
            return False
        if self._folder.stamps() != self._seen:
            return True
        self._seen_folder = mtime
        return False

    def _folder_mtime(self) -> int:
        found = self._folder.stamp(".")
        return -2 if found is None else found.mtime

    def publish(self) -> None:
        """Tell readers that the cache is up to date."""
        mtime = self._folder_mtime()  # read first: a later change makes it differ
        self._seen = {name: known.stamp for name, known in self._known.items()}
        if mtime != self._seen_folder:
            self._seen_folder = mtime if self._folder.stamps().keys() <= self._seen.keys() else UNKNOWN

    # -- appending ------------------------------------------------------------------------

    def append(self, lines: Mapping[str, list[bytes]], commits: int, *, final: bool) -> None:
        """Append lines and make them durable: records first, then the marks that decide about them."""
        if self.unlocked:
            return  # the lock's holder writes the same lines
        records = [name for name in lines if name != folder.COMMITS]
        marks = [folder.COMMITS] if folder.COMMITS in lines else []
        with disk_errors(self._folder.path):
            for names, decided in ((records, 0 if marks else commits), (marks, commits)):
                for name in names:
                    self._append_to(name, lines[name])
                if names:
                    self._syncer.sync_appended(names, decided, final=final)

    def _append_to(self, name: str, lines: list[bytes]) -> None:
        chunk, known = b"".join(lines), self.state(name)
        file = self._folder.open_for_append(name, known.stamp.inode)
        self._before.setdefault(name, known.stamp.size)
        stamp = self._folder.append(file, chunk if known.ended else b"\n" + chunk)
        self._changed[name] = known.extend(stamp, chunk, len(lines))

    def growth(self) -> int:
        """Return how many bytes this transaction appended."""
        return sum(
            known.stamp.size - self._known.get(name, EMPTY).stamp.size
            for name, known in self._changed.items()
        )

    def confirm(self) -> None:
        """Confirm the appended lines: they are in the cache now, or held."""
        self._before = {}
        if self._changed:
            new = self._changed.keys() - self._known.keys()
            for name, known in self._changed.items():
                self.unsaved.setdefault(name, self._known.get(name, EMPTY).stamp.size)
                self._known[name] = known
                if name not in new:  # readers iterate over it, so it must not grow
                    self._seen[name] = known.stamp
            self._changed = {}
            if new:
                self.publish()

    def undo(self) -> None:
        """Undo the appends of this transaction; raises OutcomeUnknown if that fails.

        Under the lock nobody else can have appended meanwhile.
        """
        before, self._before, self._changed = self._before, {}, {}
        try:
            for name, size in before.items():
                stamp = self._folder.truncate(name, size)
                if stamp is not None and name in self._known:  # only its time has changed
                    self._known[name] = self._known[name]._replace(stamp=stamp)
                    self._seen[name] = stamp
                    self.unsaved.setdefault(name, size)
        except OSError as error:
            raise OutcomeUnknown(f"{self._folder.path}: {error.strerror}") from error

    def close(self) -> None:
        """Sync what was not synced yet; raises if acknowledged commits may not be on the disk."""
        self._syncer.close()
