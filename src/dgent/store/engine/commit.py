"""The one way to change a store: check everything, then write everything.

All checks of a commit come before its first write, so a refused commit leaves nothing behind and
many commits can share one transaction without savepoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter

import msgspec

from dgent import clock, codec, ids
from dgent.errors import (
    InputError,
    KeyReused,
    NewerRecord,
    VersionConflict,
)
from dgent.model import order
from dgent.store.backend import (
    KINDS,
    LIVE,
    NEW,
    Check,
    Commit,
    Committed,
    Declaration,
    Declared,
    Op,
    Put,
    View,
    Written,
)
from dgent.store.engine import expiry, fold, owner
from dgent.store.engine import row as rows
from dgent.store.engine.append import Appender, Template
from dgent.store.engine.batch import FEWEST, Batch, encode_batch
from dgent.store.engine.catalog import (
    AUTHOR,
    EMPTY,
    EXPIRES,
    PARENT,
    REF,
    SOURCE,
    Entry,
    FieldKeys,
    IndexName,
    SchemaState,
    add_seen,
    apply_declaration,
    derive_keys,
    derived_indexes,
    field_index,
    number_key,
    pack_keys,
    require_state,
    returns_to_texts,
    unpack_keys,
    waiting_entry,
)
from dgent.store.engine.check import check_commit, check_declaration, check_op
from dgent.store.engine.guard import check_guard
from dgent.store.engine.kernel import DELETE, PUT, QUIET, SAME, Logged, LoggedOp, Writing
from dgent.store.engine.row import EncodedDatum, Row
from dgent.system import collector

MAX_OPS = 1_000_000
_KEY = itemgetter(1)  # of an entry


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A commit ready to run: encoded, and checked as far as that is possible without the store."""

    commit: Commit
    drafts: Sequence[EncodedDatum | None]
    key: bytes | None
    digest: bytes | None
    size: int


def prepare(commit: Commit) -> Prepared:
    """Refuse a commit that is wrong in itself and encode the rest, before the store is asked."""
    check_commit(commit)
    if len(commit.ops) < collector.LARGE:
        return _prepare(commit)
    with collector.pause(len(commit.ops)):
        return _prepare(commit)


def _prepare(commit: Commit) -> Prepared:
    if len(commit.ops) >= FEWEST and commit.key is None:
        batch = encode_batch(commit.ops, commit.author)
        if batch is not None and len(batch) <= MAX_OPS:
            return Prepared(commit, batch, None, None, batch.size)
    drafts: list[EncodedDatum | None] = []
    size = 0
    for op in commit.ops:
        check_op(op)
        if type(op) is Put:
            made = rows.encode_datum(op.datum, commit.author, op.plain, op.raw)
            size += len(made.data) + len(made.content or b"")
            drafts.append(made)
        else:
            ids.check_id(op.id)
            drafts.append(None)
    if len(drafts) > 1:
        _check_together(commit.ops)
    if commit.key is None:
        return Prepared(commit, drafts, None, None, size)
    ids.check_id(commit.key, "key")
    return Prepared(commit, drafts, key_bytes(commit.key), _digest(commit.ops, drafts), size)


def _check_together(ops: Sequence[Op]) -> None:
    if len(ops) > MAX_OPS:
        raise InputError(f"a commit has at most {MAX_OPS} ops", hint="split it")
    seen: set[str] = set()
    for op in ops:
        if op.id in seen:
            raise InputError(f"the id {op.id!r} is in one commit twice", field="id")
        seen.add(op.id)


def key_bytes(key: str) -> bytes:
    """Return an idempotency key as stored: a hash, so it holds no content."""
    return codec.blake2b(key.encode(), size=20).digest()


def _digest(ops: Sequence[Op], drafts: Sequence[EncodedDatum | None]) -> bytes:
    """Return the digest of a keyed commit; without the creation time, which is another in a retry.

    It is the hash of one JSON list, which is never built as a whole: a commit may be large.
    """
    digest = codec.blake2b(b"[", size=16)
    for number, (op, made) in enumerate(zip(ops, drafts, strict=True)):
        if number:
            digest.update(b",")
        digest.update(codec.encode(_digest_op(op, made)))
    digest.update(b"]")
    return digest.digest()


def _digest_op(op: Op, made: EncodedDatum | None) -> list[object]:
    """Return the part of one op that the digest of its commit covers."""
    if made is None:
        return [type(op).__name__, op.id, op.expect]
    body = codec.canonical(made.plain).decode()
    content = codec.blake2b(made.content or b"").hexdigest()
    extra = None if made.extra is None else codec.canonical(codec.decode(made.extra)).decode()
    envelope = [made.id, made.schema, made.schema_version, made.author, made.source, made.parent, made.tags]
    return ["Put", op.expect, *envelope, extra, body, content]


class _OpOutcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one op: the stored head, and the encoded record to write, if any."""

    op: Op
    draft: EncodedDatum | None
    head: Row | None
    code: int


class Ledger:
    """Commits against one kernel; used only inside a write transaction."""

    def __init__(self, kernel: Writing) -> None:
        self.kernel = kernel
        self._templates: dict[tuple[str, str], Template] = {}
        self._generation = -1
        self._appender = Appender(self)

    # -- a commit -------------------------------------------------------------------------

    def commit(self, prepared: Prepared, view: View) -> Committed:
        """Do all ops or raise; nothing is written before every check has passed."""
        kernel, commit = self.kernel, prepared.commit
        self._notice_changes()
        if prepared.key is not None:
            earlier = kernel.find_by_key(prepared.key)
            if earlier is not None:
                return self._repeat(earlier, prepared)
        elif commit.guard is None or kernel.ends_at(commit.guard.since):
            done = self.put_together((prepared,))
            if done is not None:
                return done[0]
        ids_ = [op.id for op in commit.ops]
        heads = dict(zip(ids_, kernel.heads(ids_), strict=True))
        verdicts = [
            self._judge(op, made, commit, heads) for op, made in zip(commit.ops, prepared.drafts, strict=True)
        ]
        if commit.guard is not None:
            check_guard(kernel, commit.guard, view)
        return self._write(prepared, verdicts)

    def put_together(self, group: Sequence[Prepared]) -> list[Committed] | None:
        """Run commits of new records of schemas that are known as they are: the usual ones, in few steps.

        Returns None if one of them is of another kind, or is to be refused; nothing is written then.
        """
        self._notice_changes()
        return self._appender.put_together(group)

    def put_fresh(self, commit: Commit, batch: Batch, drawn: bool = False) -> tuple[range, int] | None:
        """Add new records, each by a commit like this one; return their seqs and their time.

        None if something has to be decided for one of them; nothing is written then. Ids that were drawn for
        them are not looked for: the write fails if one is known.
        """
        self._notice_changes()
        return self._appender.put_batch([commit] * len(batch), batch, drawn)

    def needs_closer_look(self, commit: Commit, like: EncodedDatum) -> bool:
        """Return whether `put_fresh` never takes records like this one."""
        return self._appender.needs_closer_look(commit.room, like)

    def _notice_changes(self) -> None:
        """Drop cached templates when declarations or indexes have changed."""
        if self._generation != self.kernel.generation:
            self._templates.clear()
            self._appender.forms.clear()
            self._generation = self.kernel.generation

    def _judge(
        self, op: Op, made: EncodedDatum | None, commit: Commit, heads: Mapping[str, Row | None]
    ) -> _OpOutcome:
        head = heads[op.id]
        live = head is not None and head.live == 1
        expect = op.expect
        if expect is not None:
            rev = head.rev if live and head is not None else 0
            if rev and head is not None and head.extra is not None and expect in (0, LIVE):
                rev = 0 if expiry.hides(self.kernel, head) else rev  # as every read says
            if not self._is_as_expected(op, rev, head) and not (
                expect == 0 and owner.is_foreign(self.kernel, op.id, head, commit.room, heads)
            ):
                raise _mismatch(op.id, expect, rev)
        if type(op) is Check:
            return _OpOutcome(op, None, head, SAME)
        owner.check_owner(self.kernel, op.id, head, made, commit.room, heads)
        if made is None:
            return _OpOutcome(op, None, head, DELETE if live else SAME)
        if head is None or not live:
            return _OpOutcome(op, made, head, PUT)
        self._check_newer(op.id, head, made, commit)
        return _OpOutcome(op, made, head, SAME if self._equal(head, made) else PUT)

    def _is_as_expected(self, op: Op, rev: int, head: Row | None) -> bool:
        if op.expect == LIVE:
            return rev > 0
        if op.expect == NEW:
            return head is None and not self.kernel.forgotten_rev(op.id)
        return rev == op.expect

    def _check_newer(self, id: str, head: Row, made: EncodedDatum, commit: Commit) -> None:
        if commit.kind == "undo" or commit.at_us is not None:
            return
        if made.schema_version < head.schema_version and self.kernel.name(head.schema) == made.schema:
            raise NewerRecord(
                f"{id!r} is stored as version {head.schema_version} of {made.schema!r}, newer than"
                f" {made.schema_version}",
                id=id,
            )

    def _equal(self, head: Row, made: EncodedDatum) -> bool:
        name = self.kernel.name
        try:
            return (
                head.schema_version == made.schema_version
                and head.tags == made.tags
                and head.parent == made.parent
                and head.content == made.content
                and codec.same(head.extra or b"", made.extra or b"")
                and name(head.schema) == made.schema
                and name(head.author) == made.author
                and (None if head.source is None else name(head.source)) == made.source
                and codec.same(head.data or b"{}", made.data)
            )
        except rows.DAMAGE:
            return False  # what is damaged may be replaced

    # -- writing --------------------------------------------------------------------------

    def _write(self, prepared: Prepared, verdicts: Sequence[_OpOutcome]) -> Committed:
        kernel, commit, tip = self.kernel, prepared.commit, self.kernel.tip
        traceless = prepared.key is None or not commit.keep_idle
        if traceless and all(verdict.code == SAME for verdict in verdicts):
            return Committed(tip.seq, tuple(_answer_unchanged(verdict) for verdict in verdicts))
        seq = tip.seq = tip.seq + 1
        # Commit times never go back, so a time can be turned into a seq by bisection.
        tip.at = commit_time(commit, clock.now_us(), tip.at)
        fresh: list[Row] = []
        entries: list[Entry] = []
        ops: list[LoggedOp] = []
        written: list[Written] = []
        for verdict in verdicts:
            if verdict.code == SAME:
                written.append(_answer_unchanged(verdict))
                if prepared.key is not None:
                    # One entry for each op, so that a repetition gets the same answer.
                    head = verdict.head
                    ops.append((SAME, 0, 0) if head is None else (SAME, head.record_key, head.rev))
                continue
            row, quiet = self._write_one(verdict, fresh, entries)
            ops.append((verdict.code | quiet, row.record_key, row.rev))
            written.append(Written(row.id, row.rev, seq, True, tip.at))
        if fresh:
            kernel.insert(fresh)
        if entries:
            kernel.add_entries(entries)
        kernel.append(
            Logged(
                seq,
                tip.at,
                kernel.make_number(commit.author),
                KINDS.index(commit.kind),
                commit.note,
                commit.of_seq,
                ops,
                prepared.key,
                prepared.digest,
            )
        )
        return Committed(seq, tuple(written))

    def _write_one(self, verdict: _OpOutcome, fresh: list[Row], entries: list[Entry]) -> tuple[Row, int]:
        op, made, head = verdict.op, verdict.draft, verdict.head
        if made is None:
            assert head is not None, "only a live record is deleted"
            return self._bury_and_delete(head)
        state = self._state_for(made)
        row, keys = self._row_for(op, made, head, state)
        quiet = 0 if state.feed else QUIET
        if head is None:
            entries.extend(self.entries(row, made.tag_list, state, keys))
            fresh.append(row)
        else:
            self._replace(head, row, state, keys, made.tag_list)
        if head is not None and head.schema != row.schema:
            entries += self.note_change(head, row)
        elif state.text or state.vector:
            entries += self.note_version(row, state)
        if row.field_keys == EMPTY and row.field_keys is not None:
            self.kernel.mark_unindexed(state.number, row.record_key, True)
        return row, quiet

    def _row_for(
        self, op: Op, made: EncodedDatum, head: Row | None, state: SchemaState
    ) -> tuple[Row, FieldKeys]:
        kernel, tip = self.kernel, self.kernel.tip
        field_keys: bytes | None = None
        keys: FieldKeys = {}
        if state.paths or state.refs:
            if made.schema_version == state.index_version:
                keys = derive_keys(state, made.plain)
            elif isinstance(op, Put) and op.indexed is not None and op.indexed.version == state.index_version:
                keys = derive_keys(state, op.indexed.data)
                field_keys = pack_keys(keys)
            else:
                # Nobody here can say where it stands: the writer is older than the index, or raw.
                field_keys = EMPTY
        if head is None:
            tip.record_key += 1
            record_key, rev, created_at = tip.record_key, kernel.forgotten_rev(made.id) + 1, made.created_at
        else:
            # The time of creation belongs to the record, not to the version.
            record_key, rev = head.record_key, head.rev + 1
            created_at = head.created_at if head.live else made.created_at
        return self._row(made, state, record_key, rev, created_at, field_keys), keys

    def _row(
        self,
        made: EncodedDatum,
        state: SchemaState,
        record_key: int,
        rev: int,
        created_at: int,
        field_keys: bytes | None,
    ) -> Row:
        kernel, tip = self.kernel, self.kernel.tip
        return Row(
            record_key,
            made.id,
            rev,
            tip.seq,
            1,
            created_at,
            tip.at,
            state.number,
            made.schema_version,
            kernel.make_number(made.author),
            None if made.source is None else kernel.make_number(made.source),
            made.parent,
            made.tags,
            0,
            field_keys,
            made.extra,
            made.data,
            made.content,
        )

    def _replace(
        self, head: Row, row: Row, state: SchemaState, keys: FieldKeys, tags: tuple[str, ...]
    ) -> None:
        kernel = self.kernel
        new = set(self.entries(row, tags, state, keys))
        self.change_entries(set(self.entries_of(head)) if head.live else set(), new)
        self._keep(head, row)
        if head.field_keys == EMPTY and head.live:
            kernel.mark_unindexed(head.schema, head.record_key, False)
        kernel.replace(row)

    def extend(self, id: str, rev: int, expires_us: int) -> bool:
        """Have a version expire later than it would; False if it does already, or is not the newest."""
        kernel, head = self.kernel, self.kernel.head(id)
        if head is None or not head.live or head.rev != rev or head.extra is None:
            return False
        before = expiry.expiry_of(head.extra)
        if before is None or before >= expires_us or expiry.hides(kernel, head):
            return False
        kernel.move_entries()
        row = head._replace(extra=expiry.set_expiry(head.extra, expires_us))
        self.change_entries(set(self.entries_of(head)), set(self.entries_of(row)))
        kernel.replace(row)
        return True

    def _bury_and_delete(self, head: Row) -> tuple[Row, int]:
        kernel, tip = self.kernel, self.kernel.tip
        state = kernel.state(kernel.name(head.schema))
        kernel.remove_entries(self.entries_of(head))
        if head.field_keys == EMPTY:
            kernel.mark_unindexed(head.schema, head.record_key, False)
        tombstone = head._replace(
            rev=head.rev + 1,
            seq=tip.seq,
            live=0,
            at=tip.at,
            enc=0,
            field_keys=None,
            extra=None,
            data=None,
            content=None,
        )
        self._keep(head, tombstone)
        kernel.replace(tombstone)
        if state is not None:
            kernel.add_entries(self.note_version(tombstone, state))
        return tombstone, 0 if state is None or state.feed else QUIET

    def _keep(self, head: Row, newer: Row) -> None:
        state = self.kernel.state(self.kernel.name(head.schema))
        history = "all" if state is None else state.history
        if state is not None and state.text and history != "all":
            fold.save_words(self.kernel, state, head)
        if history == "none":
            # Versions from before the policy may be differences from this one, so they go with it.
            self.kernel.drop_past(head.record_key, newer.rev)
            return
        self.kernel.archive(rows.pack_row(head, newer))
        if type(history) is int:
            self.kernel.drop_past(head.record_key, newer.rev - history)

    # -- index entries --------------------------------------------------------------------

    def change_entries(self, old: set[Entry], new: set[Entry]) -> None:
        """Add and remove the entries that differ between two versions of a record."""
        kernel, gone, came = self.kernel, old - new, new - old
        kernel.remove_entries(gone)
        kernel.add_entries(list(came))
        if not all(map(_KEY, gone)) or not all(map(_KEY, came)):  # only those by tag or schema have no key
            kernel.notice_tags(old & new)

    def note_change(self, head: Row | None, row: Row) -> list[Entry]:
        """Return entries for a version that waits for texts or vectors of its schema, or left another one."""
        numbers = {row.schema} if head is None else {head.schema, row.schema}
        states = [self.kernel.state(self.kernel.name(number)) for number in sorted(numbers)]
        return [entry for state in states if state is not None for entry in self.note_version(row, state)]

    def note_version(self, row: Row, state: SchemaState) -> list[Entry]:
        """Return the entries that say that a version waits for indexes of texts or vectors."""
        return [
            waiting_entry(self.kernel.make_index(name), row.rev, row.created_at, row.record_key)
            for name in derived_indexes(state)
        ]

    def _state_for(self, made: EncodedDatum) -> SchemaState:
        state = self.kernel.state(made.schema)
        if state is None:
            state = SchemaState(made.schema, self.kernel.make_number(made.schema))
        if made.schema_version not in state.seen:
            state = add_seen(state, made.schema_version, self.kernel.make_number(made.author))
            self.kernel.set_state(state)
        return self.note_expiry(state, made.extra)

    def note_expiry(self, state: SchemaState, extra: bytes | None) -> SchemaState:
        """Return the state of a schema with a record that has some `extra`; reads look for expired ones."""
        if extra is None or state.expires or expiry.expiry_of(extra) is None:
            return state
        state = msgspec.structs.replace(state, expires=True)
        self.kernel.set_state(state)
        return state

    def entries_of(self, row: Row) -> list[Entry]:
        """Return the entries a live stored row has now."""
        self._notice_changes()
        state = require_state(self.kernel.state(self.kernel.name(row.schema)))
        try:
            if row.field_keys is not None:
                keys = unpack_keys(row.field_keys)
            elif row.schema_version == state.index_version and (state.paths or state.refs):
                keys = derive_keys(state, rows.data_of(row))
            else:
                keys = {}
            tags = rows.tags_of(row)
        except rows.DAMAGE:
            # Its data no longer gives its index entries; scanning all entries does.
            return self.kernel.entries_at(row.record_key)
        return self.entries(row, tags, state, keys)

    def entries(self, row: Row, tags: tuple[str, ...], state: SchemaState, keys: FieldKeys) -> list[Entry]:
        """Return the entries of a row with some tags and index keys."""
        template = self.template(state, row.tags, tags)
        created_at, record_key = row.created_at, row.record_key
        entries = [(ix, b"", created_at, record_key) for ix in template.timed]
        if row.author != state.usual_author:
            entries.append((template.author, number_key(row.author), created_at, record_key))
        if keys:
            for path, ix in template.fields:
                for key in keys.get(path, ()):
                    entries.append((ix, key[: order.CUT], created_at, record_key))
        make_index = self.kernel.make_index
        if row.source is not None:
            entries.append(
                (
                    make_index(IndexName(state.number, 0, "", SOURCE)),
                    number_key(row.source),
                    created_at,
                    record_key,
                )
            )
        expires = None if row.extra is None else expiry.expiry_of(row.extra)
        if expires is not None:
            index = make_index(IndexName(state.number, 0, "", EXPIRES))
            entries.append(expiry.expiry_entry(index, expires, created_at, record_key))
        if row.parent is not None:
            key = order.index_key(row.parent)[0]
            entries.append((make_index(IndexName(0, 0, "", PARENT)), key, created_at, record_key))
        return entries

    def template(self, state: SchemaState, text: str, tags: tuple[str, ...]) -> Template:
        """Return the indexes of records with a schema and some tags."""
        template = self._templates.get((state.name, text))
        if template is not None:
            return template
        make_index, number, index_version = self.kernel.make_index, state.number, state.index_version
        timed = [make_index(IndexName(number, 0, "", ""))]
        timed += [make_index(IndexName(number, 0, tag, "")) for tag in tags]
        fields = [(path, make_index(field_index(state, path))) for path in state.paths]
        if state.refs:
            fields.append((REF, make_index(IndexName(number, index_version, "", REF))))
        author = make_index(IndexName(number, 0, "", AUTHOR))
        template = Template(tuple(timed), author, tuple(fields))
        if len(self._templates) > 4096:
            self._templates.clear()
        self._templates[(state.name, text)] = template
        return template

    # -- answers --------------------------------------------------------------------------

    def _repeat(self, earlier: Logged, prepared: Prepared) -> Committed:
        if earlier.digest != prepared.digest:
            raise KeyReused(
                f"the key was used before, by commit {earlier.seq}, for other work", seq=earlier.seq
            )
        written = [
            self._answer_op(op.id, logged_op, earlier)
            for op, logged_op in zip(prepared.commit.ops, earlier.ops, strict=True)
        ]
        return Committed(earlier.seq, tuple(written), repeated=True)

    def answer(self, logged: Logged) -> Committed:
        """Return the answer to a commit in the log, one entry for each op.

        The log names no ids: an op on a record that never was, or is forgotten, has None.
        """
        found = [(op, self.kernel.row(op[1])) for op in logged.ops]
        written = [self._answer_op(None if row is None else row.id, op, logged) for op, row in found]
        return Committed(logged.seq, tuple(written))

    def _answer_op(self, id: str | None, logged_op: LoggedOp, logged: Logged) -> Written:
        code, record_key, rev = logged_op
        if code != SAME:
            return Written(id, rev, logged.seq, True, logged.at)
        # It changed nothing, so the answer named the commit that had made the version.
        row = self.kernel.row(record_key)
        versions = [] if row is None else [row, *self.kernel.past(record_key)]
        made = next((version for version in versions if version.rev == rev), None)
        return Written(id, rev, 0, False) if made is None else Written(id, rev, made.seq, False, made.at)

    # -- declarations ---------------------------------------------------------------------

    def declare(self, wanted: Declaration) -> Declared:
        """Make a schema known to the store."""
        kernel, wanted = self.kernel, check_declaration(wanted)
        state = kernel.state(wanted.name)
        if state is None:
            state = SchemaState(wanted.name, kernel.make_number(wanted.name))
        new = apply_declaration(state, wanted, empty=not state.seen)
        if new != state or kernel.state(wanted.name) is None:
            kernel.set_state(new)
            self._templates.clear()
        for name in derived_indexes(new) if new.fill is not None else ():
            kernel.make_index(name)  # a search looks at old records before any of them is noted
        disputed = state.index_version == wanted.version and state.digest != wanted.digest
        return Declared(new.fill is not None or new.stale, disputed, returns_to_texts(state, wanted))


def commit_time(commit: Commit, now: int, last: int) -> int:
    """Return the time of a commit in microseconds: never before that of the commit before it."""
    return max(now if commit.at_us is None else commit.at_us, last)


def _mismatch(id: str, expect: object, rev: int) -> VersionConflict:
    if expect == NEW:
        message = f"{id!r} is or was the id of a record"
    elif rev == 0:
        message = f"{id!r} does not exist" + ("" if expect == LIVE else f" at rev {expect}")
    elif expect == 0:
        message = f"{id!r} exists already, at rev {rev}"
    else:
        message = f"{id!r} is at rev {rev}, not {expect}"
    return VersionConflict(message, id=id, expected=expect, actual=rev)


def _answer_unchanged(verdict: _OpOutcome) -> Written:
    head = verdict.head
    if head is None:
        return Written(verdict.op.id, 0, 0, False)
    return Written(verdict.op.id, head.rev, head.seq, False, head.at)
