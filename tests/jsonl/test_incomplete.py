"""Commits that were cut off before they were whole: what is erased elsewhere is not left in their lines."""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import patch

import pytest

import dgent
from dgent import clock
from dgent.blocks import Block, Library
from dgent.doors.cli.render import draw
from dgent.doors.cli.style import Paint
from dgent.store.backend import Put
from dgent.store.jsonl.folder import COMMITS
from dgent.store.jsonl.git import merge_files
from dgent.store.jsonl.line import CommitMark, parse_line, seal
from dgent.store.jsonl.scan import INCOMPLETE
from dgent.store.jsonl.validate import HASH_BYTES
from dgent.testing.contract import commit, put, typed_record
from dgent.verbs.context import Context
from dgent.verbs.store.jsonl import CheckFolder, check
from tests.jsonl.stores import data_of, odd, opened, texts_of_blocks, without_cache

SECRET = "hunter2-very-secret"
Tails = dict[str, bytes]
Work = Callable[[Path], Awaitable[None]]

cached = pytest.mark.parametrize("cached", [True, False], ids=["cached", "anew"])


async def _interrupt(folder: Path, work: Work, cached: bool = True) -> Tails:
    """Do work in a copy, and append its lines without the marks, as if the writer had died.

    Returns what the work appended to each file.
    """
    twin = folder.with_name("twin")
    shutil.copytree(folder, twin)
    await work(twin)
    names = [path.name for path in twin.glob("*.jsonl")]
    before = {name: (folder / name).read_bytes() if (folder / name).exists() else b"" for name in names}
    tails = {name: (twin / name).read_bytes()[len(before[name]) :] for name in names}
    assert all((twin / name).read_bytes().startswith(before[name]) for name in names)
    shutil.rmtree(twin)
    assert tails[COMMITS]
    for name in names:
        if name != COMMITS:
            _append(folder, name, tails[name])
    if not cached:
        without_cache(folder)
    return tails


def _append(folder: Path, name: str, tail: bytes) -> None:
    with open(folder / name, "ab") as file:
        file.write(tail)


async def _in_block(folder: Path, work: Callable[[Block], Awaitable[object]]) -> None:
    async with dgent.open(f"jsonl:{folder}", author="scout") as u:
        await work(await Library(u, agent="scout").get("notes"))


async def _make(folder: Path) -> None:
    async with dgent.open(f"jsonl:{folder}", author="scout") as u:
        block = await Library(u, agent="scout").create("notes", text="before. ")
        await block.append(f"the key is {SECRET}. ")
        await block.append("after. ")
        await block.append("and on.")


async def _pack(folder: Path) -> None:
    async def work(block: Block) -> None:
        await block.history()
        assert await block._version_log.pack_versions(keep=1)

    await _in_block(folder, work)


async def _redact_another(folder: Path) -> None:
    with patch("dgent.blocks.history.rewrite.erase", lambda *_: asyncio.sleep(0, False)):
        await _in_block(folder, lambda block: block.redact(3))


async def _redact(folder: Path) -> str:
    """Redact the secret and compact; the text of the block."""
    async with dgent.open(f"jsonl:{folder}", author="scout") as u:
        block = await Library(u, agent="scout").get("notes")
        done = await block.redact(2)
        assert done.erased
        await u.backend.rewrite(history=True)
        return await block.text()


async def _text(folder: Path) -> str:
    async with dgent.open(f"jsonl:{folder}", author="scout") as u:
        return await (await Library(u, agent="scout").get("notes")).text()


def _is_left(folder: Path) -> bool:
    """Whether any byte of the folder holds the secret, also in lines that are no JSON."""
    for path in (path for path in folder.rglob("*") if path.is_file()):
        raw = path.read_bytes()
        parts = [raw, *(_decode(each) for each in re.findall(rb'"content":"([\w+/]+)', raw))]
        if any(SECRET.encode() in part for part in parts):
            return True
    return SECRET in texts_of_blocks(folder)


def _decode(text: bytes) -> bytes:
    return base64.b64decode(text[: len(text) // 4 * 4])


# -- blocks -------------------------------------------------------------------------------


@cached
@pytest.mark.parametrize("work", [_pack, _redact_another], ids=["pack", "redact"])
async def test_redacting_erases_what_an_interrupted_commit_left(
    tmp_path: Path, work: Work, cached: bool
) -> None:
    folder = tmp_path / "s"
    await _make(folder)
    await _interrupt(folder, work, cached)
    async with opened(folder) as store:
        assert INCOMPLETE in {kind for _, _, kind in await odd(store)}
    text = await _redact(folder)
    assert not _is_left(folder)
    async with opened(folder) as store:
        assert await odd(store) == []
    without_cache(folder)
    async with opened(folder) as store:
        assert await odd(store) == []
    assert await _text(folder) == text


@cached
async def test_redacting_erases_a_line_that_was_cut_off(tmp_path: Path, cached: bool) -> None:
    """The writer died in the middle of a line; the edit was made again, and got the same number."""
    folder = tmp_path / "s"
    async with dgent.open(f"jsonl:{folder}", author="scout") as u:
        await Library(u, agent="scout").create("notes", text="before. ")
    twin = tmp_path / "twin"
    shutil.copytree(folder, twin)
    await _in_block(twin, lambda block: block.append(f"the key is {SECRET}. {'and more ' * 99}"))
    name = "block.version.jsonl"
    tail = (twin / name).read_bytes()[len((folder / name).read_bytes()) :]
    shutil.rmtree(twin)
    _append(folder, name, tail[:-300])
    assert _is_left(folder)
    if not cached:
        without_cache(folder)
    await _in_block(folder, lambda block: block.append(f"the key is {SECRET}. "))
    await _redact(folder)
    assert not _is_left(folder)


@cached
@pytest.mark.parametrize("name", ["block.page.jsonl", "block.snapshot.jsonl"])
async def test_redacting_erases_a_pack_that_was_cut_off(tmp_path: Path, name: str, cached: bool) -> None:
    """Its id is not among those that are erased: the pack never was."""
    folder, twin = tmp_path / "s", tmp_path / "twin"
    await _make(folder)
    shutil.copytree(folder, twin)
    await _pack(twin)
    _append(folder, name, (twin / name).read_bytes()[:-60])
    if not cached:
        without_cache(folder)
    await _redact(folder)
    assert (folder / name).read_bytes().count(b"\n") == 1
    async with opened(folder) as store:
        assert await odd(store) == []


async def test_a_redaction_that_was_killed_erases_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "s"
    await _make(folder)
    await _interrupt(folder, _pack)
    with monkeypatch.context() as patched:
        patched.setattr("dgent.store.jsonl.kernel.JSONLKernel._purge", lambda self, ids: None)
        async with dgent.open(f"jsonl:{folder}", author="scout") as u:
            assert not (await (await Library(u, agent="scout").get("notes")).redact(2)).erased
    assert _is_left(folder)
    async with opened(folder) as store:
        assert await odd(store) == []
    assert not _is_left(folder)


@cached
async def test_a_redaction_of_another_copy_erases_it_here(tmp_path: Path, cached: bool) -> None:
    folder, other = tmp_path / "s", tmp_path / "other"
    await _make(folder)
    shutil.copytree(folder, other)
    text = await _redact(other)
    await _interrupt(folder, _pack, cached)
    orphans = {
        path.name: [line for line in path.read_bytes().splitlines(keepends=True) if b'"n":0' in line]
        for path in folder.glob("*.jsonl")
    }
    for path in other.glob("*.jsonl"):  # as a pull does: what is only here stays
        here = [line for line in orphans.get(path.name, ()) if line not in path.read_bytes()]
        (folder / path.name).write_bytes(path.read_bytes() + b"".join(here[-3:]))
    assert _is_left(folder)
    assert await _text(folder) == text
    assert not _is_left(folder)


async def test_marks_and_lines_that_arrive_after_a_redaction_do_no_harm(tmp_path: Path) -> None:
    """The commit was not cut off: another copy made it, and its files came one by one."""
    folder = tmp_path / "s"
    await _make(folder)
    tails = await _interrupt(folder, _pack)
    text = await _redact(folder)
    _append(folder, COMMITS, tails[COMMITS])
    assert await _text(folder) == text
    # The deletions of versions without the pack that they are in would damage the block.
    _append(folder, "block.version.jsonl", tails["block.version.jsonl"])
    for anew in (False, True):
        if anew:
            without_cache(folder)
        assert await _text(folder) == text
        async with opened(folder) as store:
            assert {kind for _, _, kind in await odd(store)} == {INCOMPLETE}
    for name in tails.keys() - {COMMITS, "block.version.jsonl"}:
        _append(folder, name, tails[name])
    for anew in (False, True):
        if anew:
            without_cache(folder)
        assert SECRET not in await _text(folder)
        async with opened(folder) as store:
            assert await odd(store) == []
            assert (await store.check_lines())[1] == []
        assert not _is_left(folder)
    await _in_block(folder, lambda block: block.append("more."))
    assert (await _text(folder)).endswith("and on.more.")


async def test_lines_that_come_back_without_their_mark_go_again(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    await _make(folder)
    tails = await _interrupt(folder, _pack)
    text = await _redact(folder)
    for anew in (False, True):
        for name in tails.keys() - {COMMITS}:
            _append(folder, name, tails[name])
        assert _is_left(folder)
        if anew:
            without_cache(folder)
        assert await _text(folder) == text
        assert not _is_left(folder)
    for name, tail in tails.items():
        _append(folder, name, tail)
    assert SECRET not in await _text(folder)
    assert not _is_left(folder)


# -- records ------------------------------------------------------------------------------


async def _put_both(folder: Path) -> None:
    async with opened(folder) as store:
        told = {"n": 2, "text": SECRET}
        await put(store, typed_record("a", data=told), typed_record("b", data=told, schema="tick"))


async def _put_first(folder: Path) -> None:
    async with opened(folder) as store:
        await put(store, typed_record("a", 1), typed_record("b", 1, schema="tick"))
        await put(store, typed_record("c", 1))


@cached
async def test_forgetting_a_record_does_not_make_its_interrupted_commit_count(
    tmp_path: Path, cached: bool
) -> None:
    folder = tmp_path / "s"
    await _put_first(folder)
    await _interrupt(folder, _put_both, cached)
    async with opened(folder) as store:
        assert (await store.forget(["a"], "tester", None)).erased
        assert await data_of(store, "a", "b", "c") == [None, {"n": 1}, {"n": 1}]
        assert await odd(store) == []
    assert not _is_left(folder)
    without_cache(folder)
    async with opened(folder) as store:
        assert await data_of(store, "a", "b", "c") == [None, {"n": 1}, {"n": 1}]
        assert await odd(store) == []
        await store.rewrite(history=True)
        assert await data_of(store, "a", "b", "c") == [None, {"n": 1}, {"n": 1}]


@cached
async def test_forgetting_another_record_leaves_an_incomplete_commit_alone(
    tmp_path: Path, cached: bool
) -> None:
    folder = tmp_path / "s"
    await _put_first(folder)
    tails = await _interrupt(folder, _put_both, cached)
    async with opened(folder) as store:
        before = await odd(store)
        assert [kind for _, _, kind in before] == [INCOMPLETE, INCOMPLETE]
        await store.forget(["c"], "tester", None)
        await store.rewrite(history=True)
        assert [kind for _, _, kind in await odd(store)] == [INCOMPLETE, INCOMPLETE]
    _append(folder, COMMITS, tails[COMMITS])
    async with opened(folder) as store:
        told = {"n": 2, "text": SECRET}
        assert await data_of(store, "a", "b", "c") == [told, told, None]
        assert await odd(store) == []


@cached
async def test_an_incomplete_commit_is_dropped_when_asked(tmp_path: Path, cached: bool) -> None:
    folder = tmp_path / "s"
    await _put_first(folder)
    await _interrupt(folder, _put_both, cached)
    async with opened(folder) as store:
        assert any("doctor --damaged drop" in each.hint for each in await store.upkeep().inspect())
        assert await store.settle_damaged(accept=True) == 0
        assert len(await odd(store)) == 2
        assert await store.settle_damaged(accept=False) == 1
        assert await odd(store) == []
        assert await data_of(store, "a", "b") == [{"n": 1}, {"n": 1}]
    assert not _is_left(folder)


@cached
async def test_a_check_reports_an_incomplete_commit_and_how_to_remove_it(
    tmp_path: Path, cached: bool
) -> None:
    folder = tmp_path / "s"
    await _put_first(folder)
    await _interrupt(folder, _put_both, cached)
    found = await check(Context(), CheckFolder(folder=str(folder)))
    assert found.healthy  # nothing that was acknowledged is missing
    assert [(each.file, each.level, each.kind) for each in found.odd] == [
        ("note.jsonl", "warning", INCOMPLETE),
        ("tick.jsonl", "warning", INCOMPLETE),
    ]
    assert all("doctor --damaged drop" in each.hint for each in found.odd)
    shown = "\n".join(draw(found, Paint(False)))
    assert "warning note.jsonl:3: incomplete commit" in shown
    assert shown.endswith("healthy; 2 warnings") and shown.count("doctor --damaged drop") == 1


async def test_a_check_reports_nothing_while_another_one_is_writing(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    await _put_first(folder)
    async with opened(folder) as writer, opened(folder) as checker:

        async def write() -> None:
            for number in range(40):
                await put(writer, typed_record("a", number), typed_record("b", number, schema="tick"))

        writing = asyncio.create_task(write())
        while not writing.done():
            assert await odd(checker) == []
        await writing


@cached
async def test_a_mark_that_was_cut_off_goes_with_its_commit(tmp_path: Path, cached: bool) -> None:
    """It holds the note of the commit."""
    folder = tmp_path / "s"
    await _put_first(folder)

    async def work(folder: Path) -> None:
        async with opened(folder) as store:
            first, second = typed_record("a", 2), typed_record("b", 2, schema="tick")
            await commit(store, Put(first), Put(second), note=f"because of {SECRET}")

    tails = await _interrupt(folder, work, cached)
    _append(folder, COMMITS, tails[COMMITS][:-8])
    assert _is_left(folder)
    async with opened(folder) as store:
        await put(store, typed_record("d", 1), typed_record("e", 1, schema="tick"))
        assert await data_of(store, "a", "b") == [{"n": 1}, {"n": 1}]
        await store.forget(["a"], "tester", None)
    assert not _is_left(folder)


async def _create(folder: Path) -> None:
    async with dgent.open(f"jsonl:{folder}", author="scout") as u:
        await Library(u, agent="scout").create("more", text=f"the key is {SECRET}. ")


@cached
async def test_what_may_be_in_an_interrupted_creation_is_not_called_erased(
    tmp_path: Path, cached: bool
) -> None:
    """It was tried again, and the block has another id now."""
    folder = tmp_path / "s"
    await _make(folder)
    await _interrupt(folder, _create, cached)
    await _create(folder)
    async with dgent.open(f"jsonl:{folder}", author="scout") as u:
        block = await Library(u, agent="scout").get("more")
        assert not (await block.redact(1)).erased
        assert not (await (await Library(u, agent="scout").get("notes")).redact(2)).erased
        assert await u.backend.settle_damaged(accept=False) == 1
        assert (await block.redact(1)).erased
    assert not _is_left(folder)


@cached
@pytest.mark.parametrize("ended", [False, True], ids=["last", "followed"])
async def test_what_may_be_in_an_unreadable_line_is_not_called_erased(
    tmp_path: Path, cached: bool, ended: bool
) -> None:
    folder = tmp_path / "s"
    told = {"n": 2, "text": SECRET}
    await _put_first(folder)
    _append(folder, "note.jsonl", b'{"id":"unknown","rev":1,"data":{"n":2,"text":"%s"' % SECRET.encode())
    if ended:
        _append(folder, "note.jsonl", b"\n\0\0\0\0\n")
    if not cached:
        without_cache(folder)
    async with opened(folder) as store:
        await put(store, typed_record("again", data=told, schema="tick"))
        assert not (await store.forget(["again"], "tester", None)).erased
    raw = (folder / "note.jsonl").read_bytes()
    (folder / "note.jsonl").write_bytes(raw.replace(b'"unknown"', b'"known"'))
    async with opened(folder) as store:
        await put(store, typed_record("known", 1), typed_record("other", 1))
        assert (await store.forget(["other"], "tester", None)).erased
        assert SECRET.encode() in (folder / "note.jsonl").read_bytes()
        assert (await store.forget(["known"], "tester", None)).erased
    assert not _is_left(folder)


async def test_what_may_be_in_a_line_behind_another_one_is_not_called_erased(tmp_path: Path) -> None:
    """A newline was lost: what follows may be of a record that nobody knows."""
    folder = tmp_path / "s"
    await _put_first(folder)
    _append(folder, "note.jsonl", b'{"id":"a","rev":2,"data":{"id":"z"}{"id":"unknown","rev":1,"data":{}}\n')
    async with opened(folder) as store:
        assert not (await store.forget(["c"], "tester", None)).erased
    raw = (folder / "note.jsonl").read_bytes()
    (folder / "note.jsonl").write_bytes(raw.replace(b'"unknown"', b'"b"'))
    async with opened(folder) as store:
        await put(store, typed_record("d", 1))
        assert (await store.forget(["d"], "tester", None)).erased


@pytest.mark.parametrize("killed", [False, True], ids=["done", "killed"])
async def test_forgetting_erases_a_line_written_by_hand(
    tmp_path: Path, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "s"
    await _put_first(folder)
    line = b'{"id":"%s","schema":"note","schema_version":1,"data":{"text":"%s"}}\n'
    _append(folder, "note.jsonl", line % (b"x", SECRET.encode()) + line % (b"y", b"stays"))
    with monkeypatch.context() as patched:
        async with opened(folder) as store:
            assert await data_of(store, "x") == [{"text": SECRET}]
            if killed:
                patched.setattr("dgent.store.jsonl.kernel.JSONLKernel._purge", lambda self, ids: None)
            assert (await store.forget(["x"], "tester", None)).erased != killed
    for _ in range(2):
        async with opened(folder) as store:
            assert await data_of(store, "x", "y", "a") == [None, {"text": "stays"}, {"n": 1}]
        assert not _is_left(folder)
        without_cache(folder)
    _append(folder, "note.jsonl", line % (b"x", b"again"))
    async with opened(folder) as store:
        await store.forget(["a"], "tester", None)
        assert await data_of(store, "x", "y") == [{"text": "again"}, {"text": "stays"}]


def _lose_ends(folder: Path, name: str, *ids: str) -> None:
    """Cut the last letters from the lines of some records, which cannot be read any more."""
    starts = tuple(b'{"id":"%s"' % id.encode() for id in ids)
    lines = (folder / name).read_bytes().splitlines()
    cut = (line[:-9] if line.startswith(starts) else line for line in lines)
    (folder / name).write_bytes(b"".join(line + b"\n" for line in cut))


@cached
async def test_unreadable_lines_of_other_records_stay(tmp_path: Path, cached: bool) -> None:
    """A short id is in almost every text, and in data of others."""
    folder = tmp_path / "s"
    async with opened(folder) as store:
        await put(store, typed_record("a", data={"n": 1, "text": SECRET}))
        for id in ("b", "aa", "a/x", "x/a"):
            await put(store, typed_record(id, data={"n": 1, "text": "a banana", "of": "a", "more": ["a"]}))
        await put(store, *(typed_record(id, 2) for id in ("a", "b", "aa", "a/x", "x/a")))
    _lose_ends(folder, "note.jsonl", "b", "aa", "a/x", "x/a")
    _append(folder, "note.jsonl", b"<<<<<<< a\n>>>>>>> a\n\0\0\0\n")
    if not cached:
        without_cache(folder)
    before = (folder / "note.jsonl").read_bytes().splitlines()
    async with opened(folder) as store:
        await store.forget(["a"], "tester", None)
    after = (folder / "note.jsonl").read_bytes().splitlines()
    assert [line for line in before if not line.startswith(b'{"id":"a",')] == after


@cached
@pytest.mark.parametrize(
    "line",
    [
        b'{"id":"a","rev":2,"data":{"text":"%s"',
        b'{ "id" : "a", "rev": 2, "data": {"text": "%s"} "n": 1}',
        b'{"id":"\\u0061","rev":2,"data":{"text":"%s"',
        b'{"id":"b","rev":2,"data":{"n"{"id":"a","rev":2,"data":{"text":"%s"}}',
        b'{"ie":"a","rev":2,"data":{"text":"%s"}}',
        b'\0\0\0:"a","rev":2,"data":{"text":"%s"}}',
        b'"a","rev":2,"data":{"text":"%s"}}',
    ],
    ids=["cut", "by hand", "escaped", "joined", "key", "zeros", "start lost"],
)
async def test_an_unreadable_line_of_a_forgotten_record_goes(
    tmp_path: Path, line: bytes, cached: bool
) -> None:
    folder = tmp_path / "s"
    await _put_first(folder)
    _append(folder, "note.jsonl", line % SECRET.encode() + b"\n")
    if not cached:
        without_cache(folder)
    async with opened(folder) as store:
        assert (await store.forget(["a"], "tester", None)).erased
        assert await odd(store) == []
    assert not _is_left(folder)


@cached
@pytest.mark.parametrize("mark", ["named", "touched", "other"])
async def test_an_unreadable_mark_goes_if_it_may_be_about_a_forgotten_record(
    tmp_path: Path, mark: str, cached: bool
) -> None:
    folder = tmp_path / "s"
    async with opened(folder) as store:
        await put(store, typed_record("aa", 1), typed_record("b", 1, schema="tick"))
        put_both = Put(typed_record("aa", 2)), Put(typed_record("b", 2, schema="tick"))
        await commit(store, *put_both, note=f"a note about {SECRET}")
        await put(store, typed_record("c", 1))
    marks = (folder / COMMITS).read_bytes().splitlines()
    broken = marks[-1][:-9] + (b',"past":[[0,"aa","put",1]]' if mark == "named" else b"")
    (folder / COMMITS).write_bytes(b"".join(line + b"\n" for line in [*marks[:-1], broken]))
    if not cached:
        without_cache(folder)
    async with opened(folder) as store:
        assert await data_of(store, "aa", "b") == [{"n": 2}, {"n": 2}]
        if mark == "other":
            await put(store, typed_record("a", 1))
        await store.forget(["a" if mark == "other" else "aa"], "tester", None)
    assert _is_left(folder) == (mark == "other")


async def test_a_line_of_an_incomplete_commit_that_was_edited_by_hand_stays(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    await _put_first(folder)
    await _interrupt(folder, _put_both)
    raw = (folder / "tick.jsonl").read_bytes()
    (folder / "tick.jsonl").write_bytes(raw.replace(SECRET.encode(), b"by hand"))
    async with opened(folder) as store:
        assert await data_of(store, "a", "b") == [{"n": 1}, {"n": 2, "text": "by hand"}]
        twin = tmp_path / "dropped"
        shutil.copytree(folder, twin)
        await store.forget(["a"], "tester", None)
        assert await data_of(store, "a", "b") == [None, {"n": 2, "text": "by hand"}]
    async with opened(twin) as store:
        assert await store.settle_damaged(accept=False) == 1
        assert await data_of(store, "a", "b") == [{"n": 1}, {"n": 2, "text": "by hand"}]
    assert not _is_left(folder)
    assert not _is_left(twin)


def test_two_copies_that_removed_different_commits_join_what_they_know(tmp_path: Path) -> None:
    mark = CommitMark(c="forget", at=clock.EPOCH, kind="forget", forget=[("00" * HASH_BYTES, 1)])
    files = [tmp_path / name for name in ("base", "ours", "theirs")]
    for file, removed in zip(files, ([], ["b"], ["a"]), strict=True):
        mark.removed = removed
        file.write_bytes(seal(mark))
    base, ours, theirs = map(str, files)
    merge_files(base, ours, theirs, COMMITS)
    assert parse_line(files[1].read_bytes(), CommitMark).line.removed == ["a", "b"]
