"""Commits that only add records of known schemas: most of all commits, written in few steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent import clock
from dgent.model import path as paths
from dgent.model import reserved
from dgent.model.contract.scalar import Kind
from dgent.store.backend import KINDS, Commit, Committed, Written
from dgent.store.engine.batch import FEWEST, Batch, join
from dgent.store.engine.catalog import (
    IndexName,
    SchemaState,
    TailRecord,
    derive_keys,
    derived_indexes,
    index_key,
    number_key,
    waiting_key,
)
from dgent.store.engine.kernel import PUT, QUIET, Logged, LoggedOp
from dgent.store.engine.owner import owner_of_id
from dgent.store.engine.row import EncodedDatum, Row

if TYPE_CHECKING:
    from dgent.store.engine.commit import Ledger, Prepared

_MAX_FORMS, _MAX_SETS = 1024, 4096
_SHORT = 40  # texts up to so many letters have their keys kept
_NO_NUMBERS: list[int] = []
_NO_KEYS: list[bytes] = []
_make_row: partial[Row] = partial(tuple.__new__, Row)
_make_logged: partial[Logged] = partial(tuple.__new__, Logged)


class Template(NamedTuple):
    """The indexes of records with one schema and one set of tags."""

    timed: tuple[int, ...]
    author: int
    fields: tuple[tuple[str, int], ...]


class _Form(NamedTuple):
    """The parts that new records of one schema, version and author have in common."""

    state: SchemaState
    author: int
    code: int  # of their ops in the log
    keys: list[bytes]  # besides those of tags and fields
    fields: tuple[tuple[paths.Path, Kind | None], ...] | None  # None: their entries need a closer look
    first: int  # the number of the schema's index
    last: list[int]  # those of the author's and of the fields' indexes, and of those that versions wait for
    waits: int  # for so many indexes of texts or vectors
    by_tag: dict[str, int]
    numbers: dict[str, list[int]]  # of all their indexes, by the text of their tags
    texts: dict[str, bytes]  # keys of texts in indexes of fields


class Appender:
    """The part of a ledger that adds records of known schemas."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.forms: dict[tuple[Any, ...], _Form] = {}

    def put_together(self, group: Sequence[Prepared]) -> list[Committed] | None:
        """Run commits if all of them only add records of known schemas; else do nothing and return None."""
        batch = _find_batch(group) if len(group) >= FEWEST or type(group[0].drafts) is Batch else None
        if batch is not None:
            commits = [prepared.commit for prepared in group]
            placed = self.put_batch(commits, batch)
            if placed is not None:
                seqs, at = placed
                by_record = seqs if len(seqs) > 1 else repeat(seqs[0])
                written = [*map(_make_written, batch.ids, by_record, repeat(at))]
                if len(group) == 1:
                    return [Committed(seqs[0], tuple(written))]
                return [*map(Committed, seqs, zip(written))]
        forms = (len(group) == 1 and self._find_form(group[0])) or self._find_forms(group)
        if forms is None:
            return None
        now = clock.now_us()
        records: list[TailRecord] = []
        done: list[Committed] = []
        first = 0
        for prepared in group:
            after = first + len(prepared.drafts)
            done.append(self._append(prepared, forms[first:after], now, records))
            first = after
        self._ledger.kernel.add_records(records)
        return done

    def _find_form(self, prepared: Prepared) -> list[_Form | None] | None:
        """Return the form of a commit of one record that needs no decision; None to look closer."""
        commit, drafts, kernel = prepared.commit, prepared.drafts, self._ledger.kernel
        made = drafts[0] if len(drafts) == 1 else None
        if made is None or prepared.key is not None:
            return None
        if commit.guard is not None and not kernel.ends_at(commit.guard.since):
            return None
        id, expect = made.id, commit.ops[0].expect
        if (expect is not None and expect != 0) or self._is_owned(id):
            return None
        form = self.forms.get((commit.room, made.schema, made.schema_version, made.author))
        if made.extra is not None and (form is None or not form.state.expires):
            return None
        known = form is not None and form.state is kernel.state(made.schema) and kernel.are_new((id,))
        return [form] if known else None

    def _find_forms(self, group: Sequence[Prepared]) -> list[_Form | None] | None:
        """Return the form of each record as far as it is known, if nothing about them has to be decided."""
        kernel, known = self._ledger.kernel, self.forms.get
        state_of, ends_at = kernel.state, kernel.ends_at
        states: dict[str, SchemaState | None] = {}
        forms: list[_Form | None] = []
        ids: list[str] = []
        for prepared in group:
            commit = prepared.commit
            if prepared.key is not None or not commit.ops:
                return None
            if commit.guard is not None and (len(group) > 1 or not ends_at(commit.guard.since)):
                return None
            room = commit.room
            for op, made in zip(commit.ops, prepared.drafts, strict=True):
                if made is None or op.expect not in (None, 0):
                    return None
                id, schema = made.id, made.schema
                # Of several commits, one may make the record that owns the ids of another.
                if reserved.may_be_of_room(id) and (len(group) > 1 or self._is_owned(id)):
                    return None
                state = states[schema] if schema in states else states.setdefault(schema, state_of(schema))
                if made.extra is not None and (state is None or not state.expires):
                    return None
                form = known((room, schema, made.schema_version, made.author))
                if form is None or form.state is not state:
                    form = None
                    if not _is_usual(state, room, made):
                        return None
                forms.append(form)
                ids.append(id)
        is_new = len(set(ids)) == len(ids) and self._ledger.kernel.are_new(ids)
        return forms if is_new else None

    def _is_owned(self, id: str) -> bool:
        """Check whether an id is among those of a room, which may refuse it."""
        return reserved.may_be_of_room(id) and owner_of_id(self._ledger.kernel, id) is not None

    def _append(
        self, prepared: Prepared, forms: Sequence[_Form | None], now: int, records: list[TailRecord]
    ) -> Committed:
        """Write a commit of new records, and add their entries to a list."""
        commit, kernel = prepared.commit, self._ledger.kernel
        tip, forgotten_rev = kernel.tip, kernel.forgotten_rev
        seq = tip.seq = tip.seq + 1
        at = tip.at = max(now if commit.at_us is None else commit.at_us, tip.at)
        new: list[Row] = []
        ops: list[LoggedOp] = []
        for made, known in zip(prepared.drafts, forms, strict=True):
            assert made is not None, "a put"
            form = known or self._make_form(commit.room, made)
            record_key = tip.record_key = tip.record_key + 1
            rev = forgotten_rev(made.id) + 1
            created_at, source = made.created_at, made.source
            row = _make_row(
                (
                    record_key,
                    made.id,
                    rev,
                    seq,
                    1,
                    created_at,
                    at,
                    form.state.number,
                    made.schema_version,
                    form.author,
                    None if source is None else kernel.make_number(source),
                    made.parent,
                    made.tags,
                    0,
                    None,
                    made.extra,
                    made.data,
                    made.content,
                )
            )
            closer = source is not None or made.parent is not None or made.extra is not None
            if form.fields is None or closer:
                records.append(self._look_closer(row, made, form.state))
            else:
                plain = made.plain
                tags = made.tags
                numbers = form.numbers.get(tags) or self._find_indexes(form, tags, made.tag_list)
                keys = [b""] * len(made.tag_list) + form.keys
                for path, value_kind in form.fields:
                    keys.append(_field_key(form, plain, path, value_kind))
                if form.waits:
                    keys += [waiting_key(rev, created_at)] * form.waits
                records.append((created_at, record_key, numbers, keys, _NO_NUMBERS, _NO_KEYS))
            ops.append((form.code, record_key, rev))
            new.append(row)
        kernel.insert(new)
        self._log(commit, seq, at, ops)
        return Committed(seq, tuple([Written(row.id, row.rev, seq, True, at) for row in new]))

    def put_batch(
        self, commits: Sequence[Commit], batch: Batch, drawn: bool = False
    ) -> tuple[range, int] | None:
        """Add records that differ only in id, time, tags and data; None where each needs a closer look.

        They are those of one commit, or each has a commit of its own. Returns the seqs and the time of these.
        Ids that were drawn for them are not looked for: the write fails if one is known.
        """
        commit, kernel, names = commits[0], self._ledger.kernel, batch.ids
        if not _is_usual(kernel.state(batch.like.schema), commit.room, batch.like):
            return None
        if not drawn and not self._are_free(names):
            return None
        form = self._make_form(commit.room, batch.like)
        if form.fields is None:
            return None
        tip = kernel.tip
        seqs = range(tip.seq + 1, tip.seq + len(commits) + 1)
        at = tip.at = max(clock.now_us() if commit.at_us is None else commit.at_us, tip.at)
        record_keys = range(tip.record_key + 1, tip.record_key + len(names) + 1)
        tip.seq += len(commits)
        tip.record_key += len(names)
        state, none = form.state, repeat(None)
        by_record = seqs if len(seqs) > 1 else repeat(seqs[0])
        columns = (record_keys, names, repeat(1), by_record, repeat(1), batch.times, repeat(at))
        known = (repeat(state.number), repeat(batch.like.schema_version), repeat(form.author), none, none)
        kernel.insert(
            [*map(_make_row, zip(*columns, *known, batch.tags, repeat(0), none, none, batch.data, none))]
        )
        sets = {*zip(batch.tags, batch.tag_lists, strict=True)}
        numbers = {text: self._find_indexes(form, text, tags) for text, tags in sets}
        keys = _list_keys(form, batch)
        entries = (batch.times, record_keys, map(numbers.__getitem__, batch.tags), keys)
        kernel.add_records([*zip(*entries, repeat(_NO_NUMBERS), repeat(_NO_KEYS))])
        ops = [*zip(repeat(form.code), record_keys, repeat(1))]
        if len(commits) == 1:
            self._log(commit, seqs[0], at, ops)
        else:
            self._log_each(commits, seqs, at, ops)
        return seqs, at

    def _are_free(self, names: Sequence[str]) -> bool:
        """Return whether nothing has to be decided about any of some ids."""
        joined, kernel = "".join(names), self._ledger.kernel
        if "/" in joined or reserved.BUILTIN in joined or not kernel.are_new(names):
            return False
        return not any(map(kernel.forgotten_rev, names))

    def needs_closer_look(self, room: str | None, like: EncodedDatum) -> bool:
        """Return whether records like this one have other entries than one for each tag and field."""
        form = self.forms.get((room, like.schema, like.schema_version, like.author))
        return form is not None and form.fields is None

    def _log_each(
        self, commits: Sequence[Commit], seqs: Sequence[int], at: int, ops: Sequence[LoggedOp]
    ) -> None:
        """Add a commit of one op for each; most have the same author and kind."""
        kernel, first = self._ledger.kernel, commits[0]
        if all(commit is first for commit in commits):
            author, kind = kernel.make_number(first.author), KINDS.index(first.kind)
            same = (repeat(at), repeat(author), repeat(kind), repeat(first.note), repeat(first.of_seq))
            for logged in map(_make_logged, zip(seqs, *same, zip(ops), repeat(None), repeat(None))):
                kernel.append(logged)
            return
        for commit, seq, op in zip(commits, seqs, ops, strict=True):
            self._log(commit, seq, at, [op])

    def _log(self, commit: Commit, seq: int, at: int, ops: list[LoggedOp]) -> None:
        kernel = self._ledger.kernel
        author, kind = kernel.make_number(commit.author), KINDS.index(commit.kind)
        kernel.append(Logged(seq, at, author, kind, commit.note, commit.of_seq, ops, None, None))

    def _look_closer(self, row: Row, made: EncodedDatum, state: SchemaState) -> TailRecord:
        """Return the entries of a record that has other ones than most."""
        keys = derive_keys(state, made.plain) if state.paths or state.refs else {}
        entries = self._ledger.entries(row, made.tag_list, state, keys)
        entries += self._ledger.note_version(row, state)
        numbers, keys_of = [entry[0] for entry in entries], [entry[1] for entry in entries]
        return row.created_at, row.record_key, numbers, keys_of, [], []

    def _make_form(self, room: str | None, made: EncodedDatum) -> _Form:
        """Return the form of a record, and keep it for others like it."""
        kernel = self._ledger.kernel
        name = room, made.schema, made.schema_version, made.author
        state = kernel.state(made.schema)
        known = self.forms.get(name)
        if known is not None and known.state is state:
            return known
        assert state is not None, "its schema is known"
        author = kernel.make_number(made.author)
        template = self._ledger.template(state, made.tags, made.tag_list)
        last, keys = [index for _, index in template.fields], [b""]
        if author != state.usual_author:
            last.insert(0, template.author)
            keys.append(number_key(author))
        waited_for = [kernel.make_index(name) for name in derived_indexes(state)]
        last += waited_for
        single = not state.refs and not any(map(paths.list_path, state.paths))
        fields = tuple([(paths.parse(path), state.kinds.get(path)) for path in state.paths])
        code = PUT if state.feed else PUT | QUIET
        form = _Form(
            state,
            author,
            code,
            keys,
            fields if single else None,
            template.timed[0],
            last,
            len(waited_for),
            {},
            {},
            {},
        )
        if len(self.forms) >= _MAX_FORMS:
            self.forms.clear()
        self.forms[name] = form
        return form

    def _find_indexes(self, form: _Form, text: str, tags: Sequence[str]) -> list[int]:
        """Return the numbers of the indexes of a record with tags, and keep them for others with the same."""
        found = form.numbers.get(text)
        if found is not None:
            return found
        for tag in tags:
            if tag not in form.by_tag:
                name = IndexName(form.state.number, 0, tag, "")
                form.by_tag[tag] = self._ledger.kernel.make_index(name)
        numbers = [form.first, *[form.by_tag[tag] for tag in tags], *form.last]
        if len(form.numbers) >= _MAX_SETS:
            form.numbers.clear()
            form.by_tag.clear()
        form.numbers[text] = numbers
        return numbers


def _find_batch(group: Sequence[Prepared]) -> Batch | None:
    """Return the records of commits as one batch; None if something about one has to be decided by itself."""
    if len(group) == 1:
        (prepared,) = group
        usual = prepared.key is None and prepared.commit.guard is None
        return prepared.drafts if usual and type(prepared.drafts) is Batch else None
    drafts: list[EncodedDatum] = []
    room = group[0].commit.room
    for prepared in group:
        commit, made = prepared.commit, prepared.drafts[0] if len(prepared.drafts) == 1 else None
        if made is None or prepared.key is not None or commit.ops[0].expect not in (None, 0):
            return None
        if commit.guard is not None or commit.at_us is not None or commit.room != room:
            return None
        drafts.append(made)
    return join(drafts)


def _make_written(id: str, seq: int, at: int) -> Written:
    return Written(id, 1, seq, True, at)


def _list_keys(form: _Form, batch: Batch) -> list[list[bytes]]:
    """Return the keys of each record of a batch in its indexes; records with the same keys share a list."""
    assert form.fields is not None, "one key for each field"
    columns = [[_field_key(form, body, *field) for body in batch.plain] for field in form.fields]
    columns += [[waiting_key(1, created_at) for created_at in batch.times]] * form.waits
    shared: dict[tuple[Any, ...], list[bytes]] = {}
    keys = []
    for place in zip(map(len, batch.tag_lists), *columns, strict=True):
        found = shared.get(place)
        if found is None:
            found = shared[place] = [b""] * place[0] + form.keys + [*place[1:]]
        keys.append(found)
    return keys


def _field_key(form: _Form, body: dict[str, Any], path: paths.Path, kind: Kind | None) -> bytes:
    """Return the key of a record in the index of a field; that of a short text that comes again is kept."""
    value = paths.read(body, path)
    if kind is not None or type(value) is not str or len(value) > _SHORT:
        return index_key(body, path, kind)
    found = form.texts.get(value)
    if found is None:
        if len(form.texts) >= _MAX_SETS:
            form.texts.clear()
        found = form.texts[value] = index_key(body, path, None)
    return found


def _is_usual(state: SchemaState | None, room: str | None, made: EncodedDatum) -> bool:
    """Return whether a schema has records of this version that the room may write, with keys to derive."""
    version = made.schema_version
    if state is None or version not in state.seen or (state.owner or room) != room:
        return False
    if state.owner is None and made.schema in reserved.OWNERS:
        return False
    return version == state.index_version or not (state.paths or state.refs)
