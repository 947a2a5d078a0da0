"""Files that were cut off, edited or mixed up: what is whole is read, what is not is reported and kept."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from dgent.errors import Corrupt, FormatTooNew
from dgent.model.datum import Datum
from dgent.store.backend import Declaration, Delete, Put
from dgent.testing.contract import commit, delete, find_ids, put, record, typed_record
from tests.jsonl.stores import data_of, lines, odd, opened, without_cache
from tests.soak import some


async def _three(folder: Path) -> None:
    async with opened(folder) as store:
        for n, id in enumerate("abc"):
            await put(store, typed_record(id, n))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


# -- how it is written --------------------------------------------------------------------


async def test_a_folder_has_one_file_for_each_schema(folder: Path) -> None:
    async with opened(folder) as store:
        await put(store, typed_record("a", 1, schema="witness.mark"))
        await put(store, record("b"))
        await store.declare(Declaration("witness.mark", 1, indexes=("n",)))
        await put(store, typed_record("a", 2, schema="witness.mark"), record("c"))
        await delete(store, "b")
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        ".cache", ".gitignore", ".lock", "_commits.jsonl", "_none.jsonl", "_schemas.jsonl", "dgent.json",
        "witness.mark.jsonl",
    ]  # fmt: skip
    first, second = lines(folder, "witness.mark.jsonl")
    assert list(first) == ["id", "rev", "seq", "c", "at", "created_at", "schema", "schema_version",
                           "author", "data", "sum"]  # fmt: skip
    assert second["prev"] == first["sum"]
    assert (second["rev"], second["n"]) == (2, 0)
    (mark,) = lines(folder, "_commits.jsonl")
    assert (mark["c"], mark["n"]) == (second["c"], 2)
    assert [line.get("op") for line in lines(folder, "_none.jsonl")] == [None, None, "delete"]


async def test_a_write_only_appends(folder: Path) -> None:
    await _three(folder)
    before, inode = (folder / "note.jsonl").read_bytes(), os.stat(folder / "note.jsonl").st_ino
    async with opened(folder) as store:
        await put(store, typed_record("a", 9))
        await delete(store, "b")
    assert (folder / "note.jsonl").read_bytes().startswith(before)
    assert os.stat(folder / "note.jsonl").st_ino == inode


async def test_names_of_schemas_that_no_file_could_have(folder: Path) -> None:
    names = ["Note", "note", "NOTE", "a/b", "..", ".hidden", "_commits", "con", "ü", "u" * 250, "a b", "x~y",
             "_none", "note.jsonl", "a.", "-", "\n"]  # fmt: skip
    async with opened(folder) as store:
        for name in names:
            await put(store, typed_record(f"of {name[:20]}", 1, schema=name))
    without_cache(folder)
    files = [path.name for path in folder.glob("*.jsonl")]
    assert len({name.lower() for name in files}) == len(names)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["store"]
    async with opened(folder) as store:
        for name in names:
            assert await find_ids(store, schema=name) == [f"of {name[:20]}"]


# -- cut off ------------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [True, False], ids=["cached", "anew"])
async def test_a_last_line_cut_at_every_byte(tmp_path: Path, cached: bool) -> None:
    await _three(tmp_path / "whole")
    raw = (tmp_path / "whole" / "note.jsonl").read_bytes()
    start = raw.rstrip(b"\n").rfind(b"\n") + 1
    for cut in some(range(start, len(raw) + 1), 30):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / "dgent.json").write_bytes((tmp_path / "whole" / "dgent.json").read_bytes())
        (folder / "note.jsonl").write_bytes(raw[: start if cached else cut])
        async with opened(folder) as store:
            if cached:
                (folder / "note.jsonl").write_bytes(raw[:cut])
            whole = cut >= len(raw) - 1
            assert await data_of(store, *"abc") == [{"n": 0}, {"n": 1}, {"n": 2} if whole else None]
            torn = [] if whole or cut == start else [("note.jsonl", 3, "cut off")]
            assert await odd(store) == torn
            await put(store, typed_record("d", 3))
            await put(store, typed_record("e", 4))
        assert (folder / "note.jsonl").read_bytes().startswith(raw[:cut])
        without_cache(folder)
        async with opened(folder) as store:
            assert await data_of(store, *"abcde") == [{"n": 0}, {"n": 1}, {"n": 2} if whole else None,
                                                     {"n": 3}, {"n": 4}]  # fmt: skip
            assert [each[:2] for each in await odd(store)] == [each[:2] for each in torn]


async def test_a_line_that_is_completed_later_counts(folder: Path) -> None:
    await _three(folder)
    raw = (folder / "note.jsonl").read_bytes()
    (folder / "note.jsonl").write_bytes(raw[:-30])
    without_cache(folder)
    async with opened(folder) as store:
        assert await data_of(store, "c") == [None]
        with open(folder / "note.jsonl", "ab") as file:
            file.write(raw[-30:])
        assert await data_of(store, "c") == [{"n": 2}]
        assert await odd(store) == []


@pytest.mark.parametrize("files", [1, 2], ids=["one file", "two files"])
async def test_a_commit_of_several_records_cut_anywhere_is_whole_or_absent(
    tmp_path: Path, files: int
) -> None:
    origin = tmp_path / "origin"
    async with opened(origin) as store:
        await put(store, typed_record("first"))
        await commit(
            store,
            Put(typed_record("a", 1)),
            Put(typed_record("b", 1, schema="note" if files == 1 else "tick")),
            Put(typed_record("c", 1)),
            Delete("first"),
            author="ann",
        )
    contents = {path.name: path.read_bytes() for path in origin.glob("*.json*")}
    order = ["note.jsonl"] if files == 1 else ["note.jsonl", "tick.jsonl", "_commits.jsonl"]
    first = contents["note.jsonl"].index(b"\n") + 1
    total = sum(len(contents[name]) for name in order) - first
    for cut in some(range(0, total, 11), 25):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        left = first + cut
        for name in ["dgent.json", *order]:
            keep = len(contents[name]) if name == "dgent.json" else max(0, min(left, len(contents[name])))
            left -= 0 if name == "dgent.json" else keep
            (folder / name).write_bytes(contents[name][:keep])
        async with opened(folder) as store:
            there = await find_ids(store)
            assert there in (["first"], []) or set(there) == {"a", "b", "c"}, cut
            assert there == ["first"] or cut >= total - 1
            assert await odd(store) or cut == 0 or there != ["first"]
            await put(store, typed_record("next"))
            assert "next" in await find_ids(store)


# -- odd files ----------------------------------------------------------------------------


async def test_line_ends_of_other_systems_and_blank_lines(folder: Path) -> None:
    await _three(folder)
    raw = (folder / "note.jsonl").read_bytes()
    (folder / "note.jsonl").write_bytes(b"\r\n" + raw.replace(b"\n", b"\r\n\n  \r\n") + b"\n\n")
    for anew in (False, True):
        if anew:
            without_cache(folder)
        async with opened(folder) as store:
            assert await data_of(store, *"abc") == [{"n": 0}, {"n": 1}, {"n": 2}]
            assert [(await store.get(id)).rev for id in "abc"] == [1, 1, 1]
            assert await odd(store) == []


async def test_bad_lines_are_named_and_kept(folder: Path) -> None:
    await _three(folder)
    good = (folder / "note.jsonl").read_bytes().splitlines(keepends=True)
    bad = [b"not json\n", b'{"id": 5}\n', b"[1]\n", b'{"id":"a"', b"\xff\xfe\n", b"null\n", b'{"rev":1}\n']
    mixed = good[0] + b"".join(each.rstrip(b"\n") + b"\n" for each in bad) + b"".join(good[1:])
    (folder / "note.jsonl").write_bytes(mixed)
    async with opened(folder) as store:
        assert await data_of(store, *"abc") == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert await odd(store) == [("note.jsonl", n, "bad line") for n in range(2, 9)]
        findings = await store.upkeep().inspect()
        named = [each.message for each in findings if each.subject == "lines"]
        assert named[0].startswith("note.jsonl:2: bad line: ")
        assert (await store.stats()).details["odd_lines"] == 7
        await put(store, typed_record("a", 7))
        assert (folder / "note.jsonl").read_bytes().startswith(mixed)
        for history in (True, False):
            await store.rewrite(history=history)
            left = (folder / "note.jsonl").read_bytes()
            assert all(each.strip() in left for each in bad)
            assert len(await odd(store)) == 7
        assert await data_of(store, *"abc") == [{"n": 7}, {"n": 1}, {"n": 2}]


async def test_an_edit_by_hand_is_a_version_by_hand(folder: Path) -> None:
    await _three(folder)
    path = folder / "note.jsonl"
    path.write_text(path.read_text().replace('"data":{"n":1}', '"data": {"n": 100}'))
    for anew in (False, True):
        if anew:
            without_cache(folder)
        async with opened(folder) as store:
            stored = await store.get("b")
            assert stored is not None
            assert (stored.rev, stored.data) == (2, {"n": 100})
            newest = (await store.history("b", 1))[0]
            assert newest.author == "hand"
            assert await odd(store) == [("note.jsonl", 2, "edited by hand")]
            assert await find_ids(store, where={"n": 100}) == ["b"]
            assert (await store.changes(0, 10))[-1].items[0].id == "b"
    async with opened(folder) as store:
        await store.rewrite(history=True)
        assert await odd(store) == []
        again = await put(store, typed_record("b", 101))
        assert again.written[0].rev == 3
    without_cache(folder)
    async with opened(folder) as store:
        assert [(v.rev, v.datum.data["n"]) for v in await store.history("b", None)] == [(3, 101), (2, 100)]
        assert await odd(store) == []
        assert (await store.check_lines())[1] == []


async def test_a_line_written_by_hand(folder: Path) -> None:
    await _three(folder)
    async with opened(folder) as store:
        with open(folder / "note.jsonl", "a", encoding="utf-8") as file:
            file.write('{"id": "new", "schema": "note", "schema_version": 1, "data": {"n": 5}}\n')
            file.write('{"id": "a", "schema": "note", "schema_version": 1, "data": {"n": 6}}\n')
            file.write('{"id": "worse", "schema": "note", "schema_version": 1, "data": [1]}\n')
        assert await data_of(store, "new", "a") == [{"n": 5}, {"n": 6}]
        assert (await store.get("a")).rev == 2
        assert [each[1:] for each in await odd(store) if each[2] == "bad line"] == [(6, "bad line")]
    without_cache(folder)
    async with opened(folder) as store:
        assert await data_of(store, "new", "a") == [{"n": 5}, {"n": 6}]


async def test_an_edit_of_an_old_version_changes_nothing_that_counts(folder: Path) -> None:
    async with opened(folder) as store:
        await put(store, typed_record("a", 1))
        await put(store, typed_record("a", 2))
        path = folder / "note.jsonl"
        path.write_text(path.read_text().replace('{"n":1}', '{"n":100}'))
        assert await data_of(store, "a") == [{"n": 2}]
        assert await odd(store) == [("note.jsonl", 1, "edited by hand")]
    without_cache(folder)
    async with opened(folder) as store:
        assert await data_of(store, "a") == [{"n": 2}]
        assert [v.rev for v in await store.history("a", None)] == [2, 1]


async def test_markers_of_a_merge_are_no_lines(folder: Path) -> None:
    await _three(folder)
    path = folder / "note.jsonl"
    one, two, three = path.read_bytes().splitlines(keepends=True)
    mine, theirs = b"<<<<<<< HEAD\n", b">>>>>>> other\n"
    path.write_bytes(one + mine + two + b"=======\n" + three + theirs)
    without_cache(folder)
    async with opened(folder) as store:
        assert await data_of(store, *"abc") == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert await odd(store) == [("note.jsonl", n, "conflict marker") for n in (2, 4, 6)]
        await store.rewrite(history=True)
        assert await odd(store) == []
        assert path.read_bytes() == one + two + three


async def test_fields_of_a_newer_dgent_are_kept(folder: Path) -> None:
    await _three(folder)
    path = folder / "note.jsonl"
    with open(path, "ab") as file:
        file.write(b'{"id":"x","rev":1,"mood":"glad","data":{"n":1},"author":"ann"}\n')
    async with opened(folder) as store:
        stored = await store.get("x")
        assert stored is not None
        assert stored.extra == {"mood": "glad"}


async def test_a_line_of_ten_megabytes(folder: Path) -> None:
    large = Datum(id="large", data={"text": "x" * 10_000_000})
    async with opened(folder) as store:
        await put(store, record("before"))
        await put(store, large)
        await put(store, record("after"))
    without_cache(folder)
    async with opened(folder) as store:
        assert await data_of(store, "before", "after") == [{"n": 0}, {"n": 0}]
        assert await data_of(store, "large") == [large.data]


async def test_lines_that_are_gone_are_gone(folder: Path) -> None:
    """The files are the truth, also when someone goes back to an older state of them."""
    async with opened(folder) as store:
        await put(store, typed_record("a", 1))
        older = (folder / "note.jsonl").read_bytes()
        await put(store, typed_record("a", 2), typed_record("b", 1))
        epoch = store.epoch
        (folder / "note.jsonl").write_bytes(older)
        assert await data_of(store, "a", "b") == [{"n": 1}, None]
        await asyncio.sleep(0)
        assert await data_of(store, "a") == [{"n": 1}]
        assert store.epoch != epoch


async def test_a_file_that_is_removed_takes_its_records(folder: Path) -> None:
    async with opened(folder) as store:
        await put(store, typed_record("a", 1), typed_record("b", 1, schema="tick"))
        await put(store, typed_record("c", 1))
        (folder / "note.jsonl").unlink()
        assert await data_of(store, *"abc") == [None, {"n": 1}, None]
        assert await odd(store) == [("tick.jsonl", 1, "damaged commit")]


async def test_the_format_file_decides(folder: Path) -> None:
    await _three(folder)
    path = folder / "dgent.json"
    told = json.loads(path.read_text())
    for raw, error in (
        (json.dumps({**told, "format": 9}), FormatTooNew),
        ("{", Corrupt),
        ("[]", Corrupt),
        (None, Corrupt),
    ):
        path.unlink()
        if raw is not None:
            path.write_text(raw)
        before = (folder / "note.jsonl").read_bytes()
        with pytest.raises(error):
            async with opened(folder):
                pass
        if raw is None:
            break
        assert (folder / "note.jsonl").read_bytes() == before
