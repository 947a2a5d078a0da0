"""Bring text indexes up to date: waiting versions become runs, runs are merged into the pages of words.

Each step is a short write of its own, and works out from the store what is next. So any process can go on
where another stopped, and several do the same work once. What takes long is done before, in a read: texts are
split into words, and the runs of a merge are read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import islice
from secrets import randbits
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

from dgent.errors import Corrupt
from dgent.search import postings
from dgent.search.postings import Postings
from dgent.search.record import RecordTexts, Words
from dgent.search.run import Run, RunSet, make_run
from dgent.search.score import encode_length
from dgent.store.backend import STORED, View
from dgent.store.engine.catalog import (
    T_MIN,
    TEXT,
    Entry,
    Position,
    SchemaState,
    find_waiting_entry,
    renew_texts,
    text_index,
)
from dgent.store.engine.history import version
from dgent.store.engine.kernel import Reading, TextDoc, Writing
from dgent.store.engine.row import Row
from dgent.store.engine.text import (
    COUNTS,
    FIRST_WORD,
    TextIndex,
    TextStats,
    WaitingRecord,
    find_places,
    find_waiting,
    open_index,
    read_waiting,
    run_name,
)
from dgent.system.collector import LARGE, pause

if TYPE_CHECKING:
    from dgent.search.bulk import Vocabulary
    from dgent.store.engine.commit import Ledger

RUN_RECORDS = 1_024  # so many records become a run in one write
RUN_CHARACTERS = 480_000  # or fewer whose texts have so many characters
RECORDS_AHEAD = 2 * RUN_RECORDS  # of so many the next runs are made in one read
RUN_LEAST = 32  # fewer may wait: a search looks at them itself
MERGE_RUNS = 16  # when there are so many runs, these are merged
MERGE_SOON = 2_000_000  # or those that have so many bytes: every search looks through them
MERGE_LATER = 128  # while much waits, only so many are; then most pages are changed once for many records
MERGE_BYTES = 24_000_000  # or those that have so many bytes
READ_RUNS = 8  # so many runs are read in one step of a merge
PLAN_RECORDS = 128  # of so many changed records it is worked out in one step which words they lose
MERGE_WORDS = 500  # the pages of so many words are changed in one write
MERGE_POSTINGS = 10_000  # or those that so many records are added to
DOCS = 1_000  # so many records are noted in one write as being in the pages
DROP_RUNS = 16  # so many runs that are merged are dropped in one write
ALL = 2**62

END = "\U0010ffff"  # after all words: what follows says of how many records the merge is noted

_words = msgspec.msgpack.Decoder(list[str])


class _MadeRun(NamedTuple):
    """A run before it is written: where its records waited, and their keys, revs and lengths."""

    of_index: int
    places: Sequence[Position]
    run: Run
    raw: bytes
    sizes: list[tuple[int, int, int]]
    entries: list[Entry]


_Moment = tuple[int, int, int]  # the newest commit, the last run, and how often some were erased
_NEVER: _Moment = -1, -1, -1


class Prepared:
    """The part of folding that is worked out before a write; the work of others may make it useless."""

    def __init__(self, records_ahead: int = RECORDS_AHEAD) -> None:
        self.records_ahead = records_ahead
        self.of: str | None = None  # the schema that this is for
        self.made: list[_MadeRun] = []  # the next runs, the last one first
        self.moment = _NEVER  # that these are made for
        self.runs: dict[
            bytes, Run
        ] = {}  # that are not merged yet, by their bytes, as far as they were made here
        self.merges: dict[
            tuple[int, int, int], _Merge
        ] = {}  # by index, last run, and how often some were erased
        self.is_merging = False
        self._vocabulary: Vocabulary | None = None

    def find_vocabulary(self) -> Vocabulary | None:
        """Return the words of former runs by which runs are made in columns; None without numpy."""
        if self._vocabulary is None:
            try:
                from dgent.search.bulk import Vocabulary
            except ModuleNotFoundError:
                return None
            self._vocabulary = Vocabulary()
        return self._vocabulary

    def drop_vocabulary(self) -> None:
        """Forget the words of former runs, since no more follow soon."""
        self._vocabulary = None

    def is_ready(self, schema: str) -> bool:
        """Check whether the next step for a schema is worked out, as far as can be told without a look."""
        return self.of == schema and (bool(self.made) or self.is_merging)


def prepare_step(reading: Reading, state: SchemaState, view: View, prepared: Prepared) -> None:
    """Work out before a write what the next step for a text index needs."""
    index = open_index(reading, state)
    if index is None:
        return
    stats = index.stats()
    if _name_merge(index, stats) not in prepared.merges:
        prepared.merges = {}  # not where one ends: to free it takes longer than a write may
    if stats.merging:
        prepared.runs = {}
    prepared.of, prepared.is_merging = state.name, False
    prepared.moment = _find_moment(reading, stats)
    places = [] if stats.merging else find_places(reading, index.index, prepared.records_ahead)
    if not stats.merging and len(places) < RECORDS_AHEAD:
        prepared.drop_vocabulary()
    waiting = _choose_waiting(reading, index, stats, view, prepared, places)
    with pause(LARGE):
        prepared.made = [] if not waiting else _make_runs(index, places, waiting, view, prepared)
        if waiting == {}:
            _prepare_merge(reading, index, stats, view, prepared)


def fold_step(ledger: Ledger, state: SchemaState, view: View, prepared: Prepared) -> bool:
    """Do one step for a text index; False when nothing is left that is worth one."""
    index = open_index(ledger.kernel, state)
    if index is None:
        return False
    stats = index.stats()
    with pause(LARGE):
        return _do_step(ledger.kernel, index, stats, view, prepared)


def _do_step(kernel: Writing, index: TextIndex, stats: TextStats, view: View, prepared: Prepared) -> bool:
    if prepared.of == index.state.name and prepared.made:
        # If others were quicker, what is next now is worked out before the next write. A version that was
        # replaced meanwhile may be written: the newer one waits, and counts.
        made = prepared.made.pop()
        if made.of_index == index.index and not stats.merging and _still_wait(kernel, stats, made, prepared):
            prepared.moment = _find_moment(kernel, write_run(kernel, index, stats, made, prepared))
        else:
            prepared.made = []
        return True
    places = [] if stats.merging else find_places(kernel, index.index, RUN_RECORDS)
    waiting = _choose_waiting(kernel, index, stats, view, prepared, places)
    if waiting:
        write_run(kernel, index, stats, _make_run(index, places, waiting, view), prepared)
    elif waiting is not None:
        _merge_step(kernel, index, stats, _prepare_merge(kernel, index, stats, view, prepared), prepared)
    return waiting is not None


def _still_wait(kernel: Writing, stats: TextStats, made: _MadeRun, prepared: Prepared) -> bool:
    """Check whether the records of a run are those that wait first.

    If there was neither a commit nor another run since, one look is enough: nobody else takes what waits.
    """
    count = 1 if prepared.moment == _find_moment(kernel, stats) else len(made.places)
    return find_places(kernel, made.of_index, count) == made.places[:count]


def _find_moment(reading: Reading, stats: TextStats) -> _Moment:
    return reading.newest()[0], stats.last_run, stats.erased


def _choose_waiting(
    reading: Reading,
    index: TextIndex,
    stats: TextStats,
    view: View,
    prepared: Prepared,
    places: Sequence[Position],
) -> dict[int, WaitingRecord] | None:
    """Return the records to write as a run next; none of them to merge runs, None to do nothing."""
    if stats.merging or _has_many_runs(prepared, stats):
        return {}
    waiting = read_waiting(reading, places)
    if not index.state.is_known_to(view):
        # What the texts of other versions are, a program says that knows the schema.
        own = index.state.index_version
        waiting = {key: each for key, each in waiting.items() if each.row.schema_version == own}
    most = min(RUN_RECORDS, prepared.records_ahead)
    mergeable = len(stats.runs) >= MERGE_RUNS or _count_bytes(prepared) >= MERGE_SOON
    if len(waiting) >= (most if mergeable else RUN_LEAST):
        return waiting
    return {} if mergeable else None


def _has_many_runs(prepared: Prepared, stats: TextStats) -> bool:
    """Check whether runs are to be merged even though more will follow."""
    return len(stats.runs) >= MERGE_LATER or _count_bytes(prepared) >= MERGE_BYTES


def _count_bytes(prepared: Prepared) -> int:
    """Return how many bytes of runs were written here and are not merged yet."""
    return sum(map(len, prepared.runs))


# -- runs ---------------------------------------------------------------------------------


def write_run(
    kernel: Writing, index: TextIndex, stats: TextStats, made: _MadeRun, prepared: Prepared
) -> TextStats:
    """Write the versions of some records as a run, so that they wait no longer; return the new counts."""
    known = kernel.text_docs(index.index, [record_key for record_key, _, _ in made.sizes])
    docs: list[tuple[int, int, TextDoc]] = []
    size = stats.size
    for record_key, rev, length in made.sizes:
        old = known.get(record_key, TextDoc(0, 0, 0, None))
        docs.append((index.index, record_key, old._replace(rev=rev, size=length)))
        size += length - old.size
    count = stats.records - _count_there(known.values()) + _count_there(doc for _, _, doc in docs)
    number = stats.last_run + 1
    kernel.put_text_pages([(index.index, run_name(number), 0, made.raw)])
    kernel.put_text_docs(docs)
    # Not that of an index that had the same number before.
    erased = stats.erased or randbits(48)
    stats = stats._replace(records=count, size=size, last_run=number, erased=erased)
    _write_stats(kernel, index, stats)
    kernel.remove_entries(made.entries)
    prepared.runs[made.raw] = made.run
    return stats


def _make_runs(
    index: TextIndex,
    places: Sequence[Position],
    waiting: Mapping[int, WaitingRecord],
    view: View,
    prepared: Prepared,
) -> list[_MadeRun]:
    """Make the next runs of records that wait, the last one first."""
    made: list[_MadeRun] = []
    vocabulary = prepared.find_vocabulary() if len(places) >= RECORDS_AHEAD else None
    for start in range(0, len(places), RUN_RECORDS):
        some = places[start : start + RUN_RECORDS]
        if made and len(some) < RUN_RECORDS:
            break
        here: dict[int, WaitingRecord] = {}
        for key, _, record_key in some:
            if record_key in waiting:
                here.setdefault(record_key, WaitingRecord(waiting[record_key].row, [])).keys.append(key)
        made.append(_make_run(index, some, here, view, vocabulary))
        if len(made[-1].sizes) < len(here):
            break  # the rest of these is next
    return made[::-1]


def _make_run(
    index: TextIndex,
    places: Sequence[Position],
    waiting: Mapping[int, WaitingRecord],
    view: View,
    vocabulary: Vocabulary | None = None,
) -> _MadeRun:
    """Make a run of records that wait, or of the first of them if their texts are long."""
    records: list[tuple[int, int, RecordTexts | None]] = []
    left = RUN_CHARACTERS
    for record_key, (row, _) in waiting.items():
        if left < 0:
            break
        texts = index.read_texts(row, view)
        left -= 0 if texts is None else sum(_weigh_text(text) for text, _ in texts.texts)
        records.append((record_key, 0 if texts is None else row.rev, texts))
    if vocabulary is None or left < -RUN_CHARACTERS:
        run, sizes = make_run(records)
    else:
        from dgent.search import bulk

        run, sizes = bulk.make_run(records, vocabulary)
    entries = [
        find_waiting_entry(index.index, key, record_key)
        for record_key, _, _ in records
        for key in waiting[record_key].keys
    ]
    noted = [*zip(run.keys, run.revs, sizes, strict=True)]
    return _MadeRun(index.index, places, run, run.pack(), noted, entries)


def _weigh_text(text: str) -> int:
    """Return how long a text is; scripts without spaces have more words than others."""
    return len(text) if text.isascii() else 3 * len(text)


def _count_there(docs: Iterable[TextDoc]) -> int:
    return sum(1 for doc in docs if doc.rev)


def _write_stats(kernel: Writing, index: TextIndex, stats: TextStats) -> None:
    kernel.put_text_pages([(index.index, COUNTS, 0, msgspec.msgpack.encode(tuple(stats)))])


# -- merging ------------------------------------------------------------------------------


class _Merge:
    """A merge of runs: their words, and those that records lose in the pages."""

    def __init__(self, numbers: range) -> None:
        self.unread = numbers  # runs that are still to be read
        self.runs = RunSet()
        self.lost: dict[str, list[int]] = {}
        self.unknown: set[int] = set()  # records of which nobody can tell what the pages have
        self._raws: defaultdict[str, list[bytes]] = defaultdict(list)
        self._words: list[str] = []  # all of them, in order

    def work_out(self, reading: Reading, index: TextIndex, view: View, known: Mapping[bytes, Run]) -> None:
        """Read all that it takes from the store."""
        while self.unread:
            self._read(index.runs(self.unread[:READ_RUNS], known))
            self.unread = self.unread[READ_RUNS:]
        while self.unplanned:
            self._plan(reading, index, view)
        self._words = sorted(self._raws.keys() | self.lost.keys())

    def _read(self, runs: Iterable[Run]) -> None:
        raws = self._raws
        for run in runs:
            self.runs.add(run)
            deque(map(list.append, map(raws.__getitem__, run.words), run.words.values()), maxlen=0)

    @cached_property
    def unplanned(self) -> list[int]:
        """Records of which it is not known yet what the pages have; of first versions there is nothing."""
        return [key for key, run in self.runs.newest.items() if run.revs[run.places[key]] != 1]

    def _plan(self, reading: Reading, index: TextIndex, view: View) -> None:
        """Find out what some more records lose."""
        docs = reading.text_docs(index.index, self.unplanned[:PLAN_RECORDS])
        del self.unplanned[:PLAN_RECORDS]
        for key, doc in docs.items():
            run = self.runs.newest[key]
            if doc.page_rev in (0, run.revs[run.places[key]]):  # not in the pages, or noted as merged already
                continue
            words = _page_words(reading, index, key, doc, view)
            if words is None:
                self.unknown.add(key)
                continue
            for word in set(words).difference(run.by_record[key]):
                self.lost.setdefault(word, []).append(key)

    def next_words(self, done: str) -> Iterator[str]:
        """Return the words to merge after the last one that was."""
        return islice(self._words, bisect_right(self._words, done), None)

    def find(self, word: str) -> Postings:
        """Return the records that have a word."""
        return self.runs.unpack(word, self._raws.get(word, ()))


def _name_merge(index: TextIndex, stats: TextStats) -> tuple[int, int, int]:
    """Return what tells a merge from all others: its index, its last run, and how often some were erased."""
    return index.index, stats.merging or stats.last_run, stats.erased


def _prepare_merge(
    reading: Reading, index: TextIndex, stats: TextStats, view: View, prepared: Prepared
) -> _Merge:
    """Return the merge that is next, worked out once for all its steps."""
    name = _name_merge(index, stats)
    merge = prepared.merges.get(name)
    if merge is None:
        merge = _Merge(range(stats.merged + 1, name[1] + 1))
        merge.work_out(reading, index, view, prepared.runs)
        prepared.merges = {name: merge}
    return merge


def _merge_step(
    kernel: Writing, index: TextIndex, stats: TextStats, merge: _Merge, prepared: Prepared
) -> None:
    """Merge the next words of some runs into their pages, or end it after the last one."""
    until = stats.merging or stats.last_run
    prepared.is_merging = not merge.unknown
    stats = stats._replace(merging=until)
    if merge.unknown:
        # Not kept before they are gone from the pages: this write may yet be undone.
        prepared.merges = {}
        _forget_pages(kernel, index, merge.unknown)
        _write_stats(kernel, index, stats._replace(done=""))
        return
    if stats.done < END:
        _write_stats(kernel, index, stats._replace(done=_merge_words(kernel, index.index, merge, stats.done)))
        return
    noted = int(stats.done[1:] or 0)
    if noted < len(merge.runs.newest):
        noted = _note_merged(kernel, index, merge, noted)
        _write_stats(kernel, index, stats._replace(done=f"{END}{noted}"))
        return
    # The oldest first: what a search finds of a record in a newer one counts.
    merged = min(stats.merged + DROP_RUNS, until)
    kernel.drop_text_pages([(index.index, run_name(n), 0) for n in range(stats.merged + 1, merged + 1)])
    if merged < until:
        _write_stats(kernel, index, stats._replace(merged=merged))
    else:
        _write_stats(kernel, index, stats._replace(merged=until, merging=0, done=""))
        prepared.runs, prepared.is_merging = {}, False


def _merge_words(kernel: Writing, index: int, merge: _Merge, done: str) -> str:
    """Merge some words into their pages, and return the last of them; END if there were no more."""
    added: dict[bytes, Postings] = {}
    changed: dict[bytes, postings.Changes] = {}
    count = 0
    last = END
    for word in islice(merge.next_words(done), MERGE_WORDS):
        found = merge.find(word)
        if word not in merge.lost and (merge.runs.is_ordered or found.is_ordered):
            added[word.encode()] = found
        else:
            changes: postings.Changes = dict.fromkeys(merge.lost.get(word, ()))
            changes |= found.to_changes()
            changed[word.encode()] = dict(sorted(changes.items()))
        last = word
        count += len(found.keys)
        if count >= MERGE_POSTINGS:
            break
    changed |= _append_to_pages(kernel, index, added)
    _change_pages(kernel, index, changed)
    return last


def _forget_pages(kernel: Writing, index: TextIndex, record_keys: Collection[int]) -> None:
    """Remove records from the pages whose words there nobody can tell; what was merged of them is again."""
    purge(kernel, index.index, record_keys)
    docs = kernel.text_docs(index.index, record_keys)
    kernel.put_text_docs(
        [(index.index, key, doc._replace(page_rev=0, words=None)) for key, doc in docs.items()]
    )


def _page_words(
    kernel: Reading, index: TextIndex, record_key: int, doc: TextDoc, view: View
) -> Collection[str] | None:
    """Return the words under which a record is in the pages; None if that version is no longer there."""
    if doc.words is not None:
        return _words.decode(doc.words)
    row = kernel.row(record_key)
    before = row if row is None or doc.page_rev == row.rev else version(kernel, row, doc.page_rev)
    found = None if before is None else index.words(before, view)
    return None if found is None else found.codes.keys()


def _note_merged(kernel: Writing, index: TextIndex, merge: _Merge, done: int) -> int:
    """Note of some more records which versions the pages have now; return of how many that is known."""
    some = list(islice(merge.runs.newest.items(), done, done + DOCS))
    docs = kernel.text_docs(index.index, [key for key, _ in some])
    kept: list[tuple[int, int, TextDoc]] = []
    gone: list[tuple[int, int]] = []
    for key, run in some:
        rev = run.revs[run.places[key]]
        doc = docs.get(key, TextDoc(0, 0, 0, None))
        if rev or doc.rev:
            # A version that was replaced meanwhile may not be there when its words are to be removed.
            words = None if doc.rev == rev else msgspec.msgpack.encode(run.by_record[key])
            kept.append((index.index, key, doc._replace(page_rev=rev, words=words)))
        else:
            gone.append((index.index, key))
    kernel.put_text_docs(kept)
    kernel.drop_text_docs(gone)
    return done + len(some)


def _append_to_pages(
    kernel: Writing, index: int, added: Mapping[bytes, Postings]
) -> dict[bytes, postings.Changes]:
    """Add newer records to the last pages of words; return the words whose records are not all newer."""
    asked = [(word, found.keys[0]) for word, found in added.items() if found.keys]
    last = kernel.find_text_pages(index, asked)
    made: list[tuple[int, bytes, int, bytes]] = []
    others: dict[bytes, postings.Changes] = {}
    for word, key in asked:
        at, found = last.get(word), added[word]
        page = None if at is None else postings.unpack_all(((at.first, at.body),))
        if page is None or (at is not None and at.until is None and page.keys[-1] < key):
            made += [(index, word, *postings.pack(each)) for each in postings.extend(page, found)]
        else:
            others[word] = found.to_changes()
    kernel.put_text_pages(made)
    return others


def _change_pages(kernel: Writing, index: int, changes: Mapping[bytes, postings.Changes]) -> None:
    """Change records in the pages of words; those of each word are in order."""
    made: list[tuple[int, bytes, int, bytes]] = []
    gone: list[tuple[int, bytes, int]] = []
    left = {word: some for word, some in changes.items() if some}
    while left:
        found = kernel.find_text_pages(index, [(word, next(iter(some))) for word, some in left.items()])
        later: dict[bytes, postings.Changes] = {}
        for word, some in left.items():
            at = found.get(word)
            here, beyond = _split_changes(some, None if at is None else at.until)
            page = None if at is None else postings.unpack(at.first, at.body)
            pages = [(index, word, *postings.pack(each)) for each in postings.change(page, here)]
            if at is not None and at.first not in [first for _, _, first, _ in pages]:
                gone.append((index, word, at.first))
            made += pages
            if beyond:
                later[word] = beyond
        left = later
    kernel.drop_text_pages(gone)
    kernel.put_text_pages(made)


def _split_changes(changes: postings.Changes, until: int | None) -> tuple[postings.Changes, postings.Changes]:
    """Return the changes of records before a key, and the others; all of them if there is no next page."""
    if until is None:
        return changes, {}
    here = {key: posting for key, posting in changes.items() if key < until}
    return here, {key: posting for key, posting in changes.items() if key >= until}


# -- versions and records that go ---------------------------------------------------------


def save_words(kernel: Writing, state: SchemaState, head: Row) -> None:
    """Keep the words under which a version is in the pages, before the version itself is dropped."""
    index = open_index(kernel, state)
    if index is None or not state.has_shape(head.schema_version):
        return
    doc = kernel.text_docs(index.index, (head.record_key,)).get(head.record_key)
    if doc is None or doc.words is not None or head.rev != doc.page_rev:
        return
    found = index.words(head, STORED)
    if found is not None:
        raw = msgspec.msgpack.encode(list(found.codes))
        kernel.put_text_docs([(index.index, head.record_key, doc._replace(words=raw))])


def erase_texts(kernel: Writing, state: SchemaState, record_keys: Set[int]) -> None:
    """Remove every trace of some records from the text index of their schema."""
    index = open_index(kernel, state)
    if index is None:
        return
    if renew_texts(state) is not state:
        drop_index(kernel, state)  # its pages may have another form
        return
    waiting = find_waiting(kernel, index.index, None)
    kernel.remove_entries(
        [
            find_waiting_entry(index.index, key, each)
            for each in waiting.keys() & record_keys
            for key in waiting[each].keys
        ]
    )
    stats = index.stats()
    for number, run in zip(stats.runs, index.runs(stats.runs), strict=True):
        if not record_keys.isdisjoint(run.keys):
            kernel.put_text_pages([(index.index, run_name(number), 0, run.without(record_keys).pack())])
    purge(kernel, index.index, record_keys)
    known = kernel.text_docs(index.index, record_keys)
    count = stats.records - _count_there(known.values())
    size = stats.size - sum(doc.size for doc in known.values())
    done = stats.done[:1] if stats.done >= END else stats.done  # the runs are shorter now
    # Counted even if nothing was there: searches keep what an index is behind on until its counts change.
    stats = stats._replace(records=count, size=size, erased=stats.erased + 1, done=done)
    _write_stats(kernel, index, stats)
    kernel.drop_text_docs([(index.index, record_key) for record_key in known])


def purge(kernel: Writing, index: int, record_keys: Collection[int]) -> None:
    """Remove records from all pages of an index, whatever words these have of them."""
    made: list[tuple[int, bytes, int, bytes]] = []
    gone: list[tuple[int, bytes, int]] = []
    for word, first, raw in kernel.text_pages(index, FIRST_WORD, b"\xff"):
        here = [key for key in record_keys if postings.may_have(first, raw, key)]
        if here:
            pages = postings.change(postings.unpack(first, raw), dict.fromkeys(here))
            made += [(index, word, *postings.pack(each)) for each in pages]
            gone.append((index, word, first))
    kernel.drop_text_pages(gone)
    kernel.put_text_pages(made)


# -- checking -----------------------------------------------------------------------------


def find_damage(reading: Reading, state: SchemaState) -> set[int] | None:
    """Return the records that are not in the text index as their texts say; None if it must be built anew."""
    index = open_index(reading, state)
    if index is None:
        return set()
    try:
        stats = index.stats()
        indexed = _sum_up_index(reading, index, index.runs(stats.runs))
    except Corrupt:
        return None
    docs = {key: doc for key, doc in reading.text_docs(index.index, None).items() if doc.rev}
    if (stats.records, stats.size) != (len(docs), sum(doc.size for doc in docs.values())):
        return None
    waiting = find_waiting(reading, index.index, None)
    there = {key for key, found in indexed.items() if found}
    return (there - docs.keys() - waiting.keys()) | {
        key
        for key, doc in docs.items()
        if key not in waiting and not _is_indexed(index, key, doc.rev, indexed[key])
    }


def _is_indexed(index: TextIndex, record_key: int, rev: int, indexed: int) -> bool:
    """Check whether an index has a record as its texts say, as far as that can be told here."""
    row = index.reading.row(record_key)
    if row is None or row.rev != rev:
        return False
    if not index.state.has_shape(row.schema_version):
        return True  # in a shape that only a program knows
    words = index.words(row, STORED)
    return words is not None and _sum_up_words(words) == indexed


def _sum_up_index(reading: Reading, index: TextIndex, runs: Sequence[Run]) -> Counter[int]:
    """Return for each record the sum of what its postings say, the newest ones."""
    newest = {key: run for run in runs for key in run.keys}
    sums: Counter[int] = Counter()
    for word, first, raw in reading.text_pages(index.index, FIRST_WORD, b"\xff"):
        page = postings.unpack(first, raw)
        for key, *posting in zip(*page, strict=True):
            if key not in newest:
                sums[key] += _fingerprint(word, *posting)
    for run in runs:
        for text, key, *posting in run:
            if newest[key] is run:
                sums[key] += _fingerprint(text.encode(), *posting)
    return sums


def _sum_up_words(words: Words) -> int:
    size = encode_length(words.size)
    return sum(
        _fingerprint(word.encode(), words.count(word), size, code & 255) for word, code in words.codes.items()
    )


def _fingerprint(word: bytes, count: int, size: int, near: int) -> int:
    return (crc32(word) << 24) + (near << 16) + (count << 8) + size + 1


def mend(ledger: Ledger, schema: str, wrong: set[int] | None) -> None:
    """Have records indexed again, or all of a schema."""
    kernel = ledger.kernel
    kernel.move_entries()
    state = kernel.state(schema)
    if state is None or open_index(kernel, state) is None:
        return
    if wrong is None or renew_texts(state) is not state:
        drop_index(kernel, state)
        return
    erase_texts(kernel, state, wrong)
    rows = [row for row in map(kernel.row, sorted(wrong)) if row is not None]
    kernel.add_entries([entry for row in rows for entry in ledger.note_change(None, row)])


def drop_index(kernel: Writing, state: SchemaState) -> None:
    """Drop a text index, and have all records indexed again."""
    kernel.drop_indexes(state.number, lambda name: name != text_index(state), ALL)
    left = state.ready - {TEXT}
    kernel.set_state(msgspec.structs.replace(renew_texts(state), ready=left, fill=(T_MIN, 0)))
