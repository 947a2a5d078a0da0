"""Bring text indexes up to date: waiting versions become runs, runs are merged into the pages of words.

Each step is a short write of its own, and works out from the store what is next. So any process can go on
where another stopped, and several do the same work once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

from dgent.errors import Corrupt
from dgent.search import postings
from dgent.search.run import MAX_COUNT, Run, make_run
from dgent.search.score import encode_length
from dgent.store.backend import STORED, View
from dgent.store.engine.catalog import T_MIN, TEXT, Entry, SchemaState, find_waiting_entry, text_index
from dgent.store.engine.kernel import Reading, TextDoc, Writing
from dgent.store.engine.read import version
from dgent.store.engine.row import Row
from dgent.store.engine.text import (
    COUNTS,
    FIRST_WORD,
    TextIndex,
    TextStats,
    WaitingRecord,
    Words,
    find_waiting,
    open_index,
    run_name,
)

if TYPE_CHECKING:
    from dgent.store.engine.commit import Ledger

RUN_RECORDS = 64  # so many records become a run in one write
RUN_LEAST = 32  # fewer may wait: a search looks at them itself
MERGE_RUNS = 32  # when there are so many runs, these are merged
MERGE_WORDS = 200  # the pages of so many words are changed in one write
STALE_BATCH = 20_000

_words = msgspec.msgpack.Decoder(list[str])


def fold_step(ledger: Ledger, state: SchemaState, view: View) -> bool:
    """Do one step for a text index; False when nothing is left that is worth one."""
    index = open_index(ledger.kernel, state)
    if index is None:
        return False
    stats = index.stats()
    if stats.merging or len(stats.runs) >= MERGE_RUNS:
        _merge_step(ledger, index, stats, view)
        return True
    waiting = find_waiting(ledger.kernel, index.index, RUN_RECORDS)
    if view.version(state.name) != state.index_version:
        # What the texts of other versions are, a program says that knows the schema.
        own = state.index_version
        waiting = {key: each for key, each in waiting.items() if each.row.schema_version == own}
    if len(waiting) < RUN_LEAST:
        return False
    ledger.runs |= [write_run(ledger.kernel, index, stats, waiting, view)]
    return True


# -- runs ---------------------------------------------------------------------------------


def write_run(
    kernel: Writing, index: TextIndex, stats: TextStats, waiting: Mapping[int, WaitingRecord], view: View
) -> tuple[bytes, Run]:
    """Write the versions of some records as a run, so that they wait no longer; return the run."""
    known = kernel.text_docs(index.index, waiting)
    records: list[tuple[int, int, Mapping[str, int], int]] = []
    docs: list[tuple[int, int, TextDoc]] = []
    entries: list[Entry] = []
    size = stats.size
    for record_key, (row, keys) in waiting.items():
        words = index.words(row, view)
        old = known.get(record_key, TextDoc(0, 0, 0, None))
        rev, length = (0, 0) if words is None else (row.rev, words.size)
        records.append((record_key, rev, {} if words is None else words.counts, length))
        docs.append((index.index, record_key, old._replace(rev=rev, size=length)))
        size += length - old.size
        entries += [find_waiting_entry(index.index, key, record_key) for key in keys]
    count = stats.records - _count_there(known.values()) + _count_there(doc for _, _, doc in docs)
    number = stats.last_run + 1
    run = make_run(records)
    raw = run.pack()
    kernel.put_text_pages([(index.index, run_name(number), 0, raw)])
    kernel.put_text_docs(docs)
    _write_stats(kernel, index, stats._replace(records=count, size=size, last_run=number))
    kernel.remove_entries(entries)
    return raw, run


def _count_there(docs: Iterable[TextDoc]) -> int:
    return sum(1 for doc in docs if doc.rev)


def _write_stats(kernel: Writing, index: TextIndex, stats: TextStats) -> None:
    kernel.put_text_pages([(index.index, COUNTS, 0, msgspec.msgpack.encode(tuple(stats)))])


# -- merging ------------------------------------------------------------------------------


class _Merge(NamedTuple):
    """A merge of runs: the newest run of each record, and the words that records lose in the pages."""

    runs: Sequence[Run]
    newest: dict[int, Run]
    lost: dict[str, list[int]]
    unknown: frozenset[int]  # records whose words in the pages nobody can tell

    def next_words(self, done: str) -> list[str]:
        """Return the next words to merge, after the last one that was."""
        some: set[str] = set()
        for run in self.runs:
            at = bisect_right(run.names, done)
            some.update(run.names[at : at + MERGE_WORDS])
        some.update(word for word in self.lost if word > done)
        return nsmallest(MERGE_WORDS, some)

    def changes(self, word: str) -> postings.Changes:
        """Return the changes of the records of a word."""
        found: postings.Changes = dict.fromkeys(self.lost.get(word, ()))
        for run in self.runs:
            if word in run.words:
                for key, count, size in run.find(word):
                    if self.newest[key] is run:
                        found[key] = count, size
        return found


def _merge_step(ledger: Ledger, index: TextIndex, stats: TextStats, view: View) -> None:
    """Merge the next words of some runs into their pages, or end the merge after the last one."""
    kernel = ledger.kernel
    until = stats.merging or stats.last_run
    name = index.index, until, stats.erased
    merge = ledger.merges.get(name)
    if merge is None:
        runs = index.runs(range(stats.merged + 1, until + 1), ledger.runs)
        merge = _plan_merge(kernel, index, runs, view)
        # Not kept before they are gone from the pages: this write may yet be undone.
        ledger.merges, ledger.runs = {} if merge.unknown else {name: merge}, {}
        if merge.unknown:
            _forget_pages(kernel, index, merge.unknown)
            stats = stats._replace(done="")
    some = merge.next_words(stats.done)
    if some:
        _write_pages(kernel, index.index, {word: merge.changes(word) for word in some})
        _write_stats(kernel, index, stats._replace(merging=until, done=some[-1]))
        return
    _end_merge(kernel, index, merge)
    kernel.drop_text_pages([(index.index, run_name(n), 0) for n in range(stats.merged + 1, until + 1)])
    _write_stats(kernel, index, stats._replace(merged=until, merging=0, done=""))
    ledger.merges = {}


def _forget_pages(kernel: Writing, index: TextIndex, record_keys: Collection[int]) -> None:
    """Remove records from the pages whose words there nobody can tell; what was merged of them is again."""
    purge(kernel, index.index, record_keys)
    docs = kernel.text_docs(index.index, record_keys)
    kernel.put_text_docs(
        [(index.index, key, doc._replace(page_rev=0, words=None)) for key, doc in docs.items()]
    )


def _plan_merge(kernel: Writing, index: TextIndex, runs: Sequence[Run], view: View) -> _Merge:
    newest = {key: run for run in runs for key in run.keys}
    docs = kernel.text_docs(index.index, newest)
    lost: dict[str, list[int]] = {}
    unknown: set[int] = set()
    for key, doc in docs.items():
        words = _page_words(kernel, index, key, doc, view) if doc.page_rev else ()
        if words is None:
            unknown.add(key)
        elif words:
            for word in set(words).difference(newest[key].by_record[key]):
                lost.setdefault(word, []).append(key)
    return _Merge(runs, newest, lost, frozenset(unknown))


def _page_words(
    kernel: Reading, index: TextIndex, record_key: int, doc: TextDoc, view: View
) -> Collection[str] | None:
    """Return the words under which a record is in the pages; None if that version is no longer there."""
    if doc.words is not None:
        return _words.decode(doc.words)
    row = kernel.row(record_key)
    before = row if row is None or doc.page_rev == row.rev else version(kernel, row, doc.page_rev)
    found = None if before is None else index.words(before, view)
    return None if found is None else found.counts.keys()


def _end_merge(kernel: Writing, index: TextIndex, merge: _Merge) -> None:
    """Note which versions the pages have now."""
    docs = kernel.text_docs(index.index, merge.newest)
    kept: list[tuple[int, int, TextDoc]] = []
    gone: list[tuple[int, int]] = []
    for key, run in merge.newest.items():
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


def _write_pages(kernel: Writing, index: int, changes: Mapping[str, postings.Changes]) -> None:
    made: list[tuple[int, bytes, int, bytes]] = []
    gone: list[tuple[int, bytes, int]] = []
    left = {word.encode(): dict(sorted(some.items())) for word, some in changes.items() if some}
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
    if index is None or head.schema_version != state.index_version:
        return
    doc = kernel.text_docs(index.index, (head.record_key,)).get(head.record_key)
    if doc is None or doc.words is not None or head.rev != doc.page_rev:
        return
    found = index.words(head, STORED)
    if found is not None:
        raw = msgspec.msgpack.encode(list(found.counts))
        kernel.put_text_docs([(index.index, head.record_key, doc._replace(words=raw))])


def erase_texts(kernel: Writing, state: SchemaState, record_keys: Set[int]) -> None:
    """Remove every trace of some records from the text index of their schema."""
    index = open_index(kernel, state)
    if index is None:
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
    if known:
        count = stats.records - _count_there(known.values())
        size = stats.size - sum(doc.size for doc in known.values())
        _write_stats(kernel, index, stats._replace(records=count, size=size, erased=stats.erased + 1))
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
    if row.schema_version != index.state.index_version:
        return True  # in a shape that only a program knows
    words = index.words(row, STORED)
    return words is not None and _sum_up_words(words) == indexed


def _sum_up_index(reading: Reading, index: TextIndex, runs: Sequence[Run]) -> Counter[int]:
    """Return for each record the sum of what its postings say, the newest ones."""
    newest = {key: run for run in runs for key in run.keys}
    sums: Counter[int] = Counter()
    for word, first, raw in reading.text_pages(index.index, FIRST_WORD, b"\xff"):
        page = postings.unpack(first, raw)
        for key, count, size in zip(page.keys, page.counts, page.sizes, strict=True):
            if key not in newest:
                sums[key] += _fingerprint(word, count, size)
    for run in runs:
        for text, key, count, size in run:
            if newest[key] is run:
                sums[key] += _fingerprint(text.encode(), count, size)
    return sums


def _sum_up_words(words: Words) -> int:
    size = encode_length(words.size)
    return sum(_fingerprint(word.encode(), min(n, MAX_COUNT), size) for word, n in words.counts.items())


def _fingerprint(word: bytes, count: int, size: int) -> int:
    return crc32(word) * 65_536 + count * 256 + size + 1


def mend(ledger: Ledger, schema: str, wrong: set[int] | None) -> None:
    """Have records indexed again, or all of a schema."""
    kernel = ledger.kernel
    kernel.move_entries()
    state = kernel.state(schema)
    if state is None or open_index(kernel, state) is None:
        return
    if wrong is None:
        while kernel.drop_indexes(state.number, lambda name: name != text_index(state), STALE_BATCH):
            pass
        left = state.ready - {TEXT}
        kernel.set_state(msgspec.structs.replace(state, ready=left, fill=(T_MIN, 0)))
        return
    erase_texts(kernel, state, wrong)
    rows = [row for row in map(kernel.row, sorted(wrong)) if row is not None]
    kernel.add_entries([entry for row in rows for entry in ledger.note_texts(None, row)])
