"""Damaged bytes and missing lines: the store opens, keeps what is whole, and names what is not."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dgent
from dgent.errors import Conflict, DgentError
from dgent.model.query import Query
from dgent.store.backend import Declaration, Delete, Keep, Put
from dgent.store.jsonl.backend import JSONLBackend
from dgent.store.jsonl.cache import Report
from dgent.store.jsonl.folder import COMMITS, SCHEMAS
from dgent.store.jsonl.line import CommitMark, RecordLine, SchemaLine, parse_line, seal_line
from dgent.store.jsonl.scan import DAMAGED
from dgent.testing.contract import STORED, commit, delete, put, record, typed_record
from dgent.verbs.context import Context
from dgent.verbs.store.jsonl import CheckFolder, check
from dgent.verbs.store.store import Doctor, doctor
from tests.jsonl.stores import opened
from tests.soak import times

SAMPLE = int(os.environ.get("DGENT_DAMAGE", "60"))  # damaged bytes for each way of damaging
NAMES = ["alder", "birch-tree", "cherry", "dogwood.x", "elm/elm", "fir-fir-fir"]  # no byte makes one another


async def _make(folder: Path) -> None:
    """A small store with every kind of line."""
    async with opened(folder, sync="on_close") as store:
        await store.declare(Declaration("note", 1, indexes=("n",), refs=("to",), history=3))
        await put(
            store, record("long", data={"text": "a long text, so that much of the damage hits data " * 9})
        )
        await put(store, typed_record(NAMES[0], 1, tags=frozenset({"red", "blue"})))
        await put(store, typed_record(NAMES[1], 2), record(NAMES[2], 3), key="a key", note="why")
        content = record(NAMES[3], content=b"\x00\x01")
        await commit(store, Put(record(NAMES[2], 4)), Put(content), author="ann")
        await put(store, record("gone for good", 7), typed_record(NAMES[4], 5, extra={"mood": "glad"}))
        await delete(store, NAMES[3])
        await store.forget(["gone for good"], "tester", None)
        await put(store, record(NAMES[2], 4), record(NAMES[5], 6))
        await store.compact(Keep(versions=5))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "whole"
    asyncio.run(_make(folder))
    shutil.rmtree(folder / ".cache")
    return folder


async def _records(store: JSONLBackend) -> dict[str, Any]:
    page = await store.query(Query(limit=None), STORED)
    for each in page.items:
        await store.history(each.id, None)
    await store.changes(0, 1000)
    await store.stats()
    return {each.id: each.data for each in page.items}


def _copy(whole: Path, folder: Path) -> Path:
    shutil.copytree(whole, folder)
    return folder


def _spots(whole: Path) -> Iterator[tuple[str, int, bytes]]:
    """Where to damage which file, and with what: any byte, and those that mean something in JSON."""
    files = [path for path in sorted(whole.glob("*.jsonl")) if path.stat().st_size]
    every = [(path.name, at) for path in files for at in range(path.stat().st_size)]
    for name, at in random.sample(every, min(SAMPLE, len(every))):
        yield name, at, bytes((random.randrange(256),))
        yield name, at, random.choice([b"9", b"-", b"e", b'"', b"\\", b"\n", b"\x00", b"\xff", b"{", b"}"])


async def test_a_damaged_byte_costs_at_most_its_line(whole: Path, tmp_path: Path) -> None:
    folder = _copy(whole, tmp_path / "s")
    async with opened(folder) as store:
        before = await _records(store)
    assert len(before) == len(NAMES)
    shutil.rmtree(folder / ".cache")
    for name, at, byte in _spots(whole):
        raw = (whole / name).read_bytes()
        if raw[at : at + 1] == byte:
            continue
        (folder / name).write_bytes(raw[:at] + byte + raw[at + 1 :])
        hit = {raw[:at].count(b"\n") + 1, raw[: at + 1].count(b"\n") + 1}
        if byte == b"\n":
            hit.add(max(hit) + 1)  # its rest is a line of its own now
        ids = {json.loads(line).get("id") for n, line in enumerate(raw.splitlines(), 1) if n in hit}
        where = f"{name}:{sorted(hit)} byte {at} {raw[at : at + 1]!r} -> {byte!r}"
        try:
            async with opened(folder, cache=str(tmp_path / "cache"), sync="on_close") as store:
                now = await _records(store)
                told = (await store.check_lines())[0]
                findings = await store.upkeep().inspect()
                await put(store, record("after", 1))
        except Exception as error:
            raise AssertionError(f"{where}: {error!r}") from error
        lost = {id for id in before if id not in ids and now.get(id) != before[id]}
        assert not lost, f"{where}: {lost} are lost or changed"
        assert any(each.name == name and each.line in hit for each in told), f"{where}: named {told}"
        assert any(f"{name}:{min(hit)}" in each.message or f"{name}:{max(hit)}" in each.message
                   for each in findings), where  # fmt: skip
        shutil.rmtree(tmp_path / "cache")
        shutil.rmtree(folder)
        _copy(whole, folder)


_BAD = {
    RecordLine: [
        {"rev": 2**63}, {"rev": 2**64}, {"rev": -1}, {"seq": 2**63}, {"seq": -5}, {"i": 2**70}, {"i": -1},
        {"n": -1},
        {"schema_version": 2**40}, {"schema_version": -1}, {"keep": 2**63}, {"keep": -1}, {"after": 2**63},
        {"after": -1}, {"id": ""}, {"id": "x" * 600}, {"id": "a\0b"}, {"schema": "x" * 300}, {"schema": "\0"},
        {"author": ""}, {"author": "x" * 300}, {"source": ""}, {"parent_id": ""}, {"tags": [""]},
        {"tags": ["x"] * 3 + ["y" * 300]}, {"key": "zz"}, {"key": "abc"}, {"digest": "no hex"}, {"c": ""},
        {"c": "hand x"}, {"at": "0001-01-01T00:00:00+14:00"}, {"at": "2026-01-01T00:00:00"},
        {"created_at": "9999-12-31T23:59:59-14:00"}, {"created_at": "2026-01-01T00:00:00"}, {"data": [1]},
        {"data": "text"}, {"data": None}, {"data": msgspec.Raw(b'{"n":1e999}')},
        {"data": msgspec.Raw(b'{"n":"a\xffb"}')}, {"data": msgspec.Raw(b'{"n\xff":1}')},
        {"note": "a\0b"}, {"by": ""}, {"by": "y" * 999}, {"of": "x" * 9999},
        {"tags": [f"t{n}" for n in range(100)]}, {"seq": 2**63 - 1}, {"rev": 2**63 - 1}, {"kind": "x"},
    ],
    CommitMark: [
        {"seq": 2**63}, {"seq": -1}, {"n": -1}, {"n": 2**63}, {"key": "xyz"}, {"digest": "q"},
        {"floor": 2**63},
        {"floor": -1}, {"forget": [["zz", 1]]}, {"forget": [["00", 2**63]]}, {"forget": [["00" * 20, -1]]},
        {"drops": {"": 1}}, {"drops": {"a": 2**63}}, {"same": [[2**63, "a", 1]]}, {"same": [[0, "", 1]]},
        {"past": [[0, "a", "put", 2**63]]}, {"past": [[0, "", "put", 1]]}, {"gone": [[0, "put", 2**64]]},
        {"at": "2026-01-01T00:00:00"}, {"expired": "2026-01-01T00:00:00"}, {"by": ""}, {"c": ""},
        {"removed": [""]},
        {"expired": "0001-01-01T00:00:00+14:00"}, {"note": "\0"}, {"of": "x" * 9999}, {"seq": 2**63 - 1},
    ],
    SchemaLine: [
        {"schema": ""}, {"schema": "x" * 300}, {"version": 2**31}, {"version": -1}, {"indexes": ["a..b"]},
        {"indexes": [""]}, {"refs": ["..", "x"]}, {"indexes": ["x" * 600]}, {"history": "some"},
        {"history": -1},
        {"history": 2**63}, {"owner": ""}, {"at": "2026-01-01T00:00:00"}, {"at": "9999-12-31T23:59:59-14:00"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name"),
    [(RecordLine, "note.jsonl"), (CommitMark, "_commits.jsonl"), (SchemaLine, "_schemas.jsonl")],
)
async def test_a_sealed_line_that_no_store_writes_is_set_aside(
    whole: Path, tmp_path: Path, kind: Any, name: str
) -> None:
    """The checksum fits, so nobody edited it; what it says still cannot be stored."""
    told = json.loads((whole / name).read_text().splitlines()[0])
    told.pop("sum")
    for n, change in enumerate(_BAD[kind]):
        folder = _copy(whole, tmp_path / f"s{n}")
        fields = {**told, **({"id": "new"} if kind is RecordLine else {}), "c": f"c{n}", **change}
        if kind is SchemaLine:
            fields.pop("c")
        fields.pop("prev", None)
        line, _ = seal_line(fields)
        with open(folder / name, "ab") as file:
            file.write(line)
        number = len((folder / name).read_bytes().splitlines())
        refused = True
        try:
            parse_line(line, kind)
            refused = False
        except ValueError:
            pass
        async with opened(folder, sync="on_close") as store:
            try:
                there = await _records(store)
                await put(store, typed_record("after", 1), record("after too", 1))
            except DgentError as error:
                raise AssertionError(f"{change}: {error}") from error
            assert set(NAMES) - {NAMES[3]} <= there.keys(), change
            named = [each[:2] for each in (await store.check_lines())[0]]
            assert ((name, number) in named) == refused, f"{change}: {named}"
        shutil.rmtree(folder / ".cache")
        async with opened(folder, sync="on_close") as store:
            assert "after" in await _records(store), change


async def test_a_byte_order_mark_costs_nothing(whole: Path, tmp_path: Path) -> None:
    folder = _copy(whole, tmp_path / "s")
    async with opened(folder) as store:
        before = await _records(store)
    shutil.rmtree(folder / ".cache")
    for path in folder.glob("*.jsonl"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    async with opened(folder) as store:
        assert await _records(store) == before
        assert (await store.check_lines())[0] == []
        await store.rewrite(history=True)
        assert await _records(store) == before
    assert not any(path.read_bytes().startswith(b"\xef\xbb\xbf") for path in folder.glob("*.jsonl"))


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\\ud800"], ids=repr)
async def test_data_that_is_not_unicode_costs_its_line(whole: Path, tmp_path: Path, text: bytes) -> None:
    folder = _copy(whole, tmp_path / "s")
    raw = (folder / "_none.jsonl").read_bytes()
    (folder / "_none.jsonl").write_bytes(raw.replace(b"long text", b"long " + text))
    async with opened(folder) as store:
        assert set(NAMES) - {NAMES[3]} == (await _records(store)).keys()
        assert {(each.line, each.kind) for each in (await store.check_lines())[0]} == {(1, "bad line")}
        await put(store, record("after", 1))


# -- commits that lost a line -------------------------------------------------------------


async def _many(folder: Path, files: int) -> None:
    async with opened(folder) as store:
        await put(store, typed_record("before", 0))
        schemas = ["note", "tick"][:files]
        await put(store, *(typed_record(f"r{n}", n, schema=schemas[n % files]) for n in range(20)))


async def _damaged(store: JSONLBackend) -> list[Report]:
    """The reports of lines of damaged commits."""
    return [each for each in (await store.check_lines())[0] if each.kind == DAMAGED]


def _without(path: Path, number: int, instead: bytes = b"") -> None:
    """Take a line out of a file, or put something else in its place."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = instead
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("cached", [True, False], ids=["cached", "anew"])
@pytest.mark.parametrize("last", [True, False], ids=["last commit", "older commit"])
@pytest.mark.parametrize("instead", [b"", b'{"id":"torn\n'], ids=["deleted", "bad"])
@pytest.mark.parametrize("files", [1, 2])
async def test_a_commit_that_lost_a_line_shows_the_others(
    tmp_path: Path, files: int, instead: bytes, last: bool, cached: bool
) -> None:
    folder = tmp_path / "s"
    await _many(folder, files)
    if not last:
        async with opened(folder) as store:
            await put(store, typed_record("later", 1))
    number = 9
    lost = json.loads((folder / "note.jsonl").read_bytes().splitlines()[number - 1])["id"]
    _without(folder / "note.jsonl", number, instead)
    if not cached:
        shutil.rmtree(folder / ".cache")
    async with opened(folder) as store:
        there = await _records(store)
        assert lost not in there
        assert {f"r{n}" for n in range(20)} - {lost} <= there.keys()
        told = [each for each in (await store.check_lines())[0] if each.kind == DAMAGED]
        assert len(told) == 19
        assert "only 19 of 20 lines" in told[0].text
        notes = [entry.note for entry in await store.changes(0, 100) if entry.note]
        assert len(notes) == 1
        assert notes[0].startswith("damaged commit: only 19 of 20")
        assert any(each.level == "problem" and "doctor --damaged" in each.hint
                   for each in await store.upkeep().inspect())  # fmt: skip
        with pytest.raises(Conflict, match="damaged"):
            await store.rewrite(history=True)
        assert (await put(store, typed_record("r1", 100), typed_record("after", 1))).written[0].rev == 2


async def test_the_doctor_and_the_check_name_the_lines_and_settle_them(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    await _many(folder, 1)
    _without(folder / "note.jsonl", 4, b'{"id":"x","rev":99999999999999999999}\n')
    async with dgent.open(f"jsonl:{folder}") as u:

        async def universe() -> dgent.Universe:
            return u

        context = Context(universe)
        checked = await check(context, CheckFolder())
        assert not checked.healthy
        assert {(each.line, each.kind) for each in checked.odd} >= {
            (3, DAMAGED),
            (4, "bad line"),
            (5, DAMAGED),
        }
        examined = await doctor(context, Doctor())
        assert not examined.healthy
        assert any("note.jsonl:4: bad line: rev must be" in each.message for each in examined.findings)
        settled = await doctor(context, Doctor(damaged="accept"))
        assert [each.message[:13] for each in settled.findings if each.level == "problem"] == [
            "note.jsonl:4:"
        ]
        _without(folder / "note.jsonl", 4)
        assert (await check(context, CheckFolder())).healthy
        assert (await doctor(context, Doctor(deep=True))).healthy


@pytest.mark.parametrize("accept", [True, False], ids=["accept", "drop"])
@pytest.mark.parametrize("files", [1, 2])
async def test_a_damaged_commit_is_accepted_or_dropped(tmp_path: Path, files: int, accept: bool) -> None:
    folder = tmp_path / "s"
    await _many(folder, files)
    _without(folder / "note.jsonl", 4)
    async with opened(folder) as store:
        before = await _records(store)
        assert await store.settle_damaged(accept=accept) == 1
        assert await store.settle_damaged(accept=accept) == 0
        left = before if accept else {"before": {"n": 0}}
        assert await _records(store) == left
        assert (await store.check_lines())[0] == []
        await put(store, typed_record("after", 1))
        await store.rewrite(history=True)
    shutil.rmtree(folder / ".cache")
    async with opened(folder) as store:
        assert await _records(store) == {**left, "after": {"n": 1}}
        assert (await store.check_lines())[0] == []


@pytest.mark.parametrize("cached", [True, False], ids=["cached", "anew"])
@pytest.mark.parametrize("files", [1, 2])
async def test_forgetting_a_record_of_a_damaged_commit_does_not_accept_it(
    tmp_path: Path, files: int, cached: bool
) -> None:
    folder = tmp_path / "s"
    await _many(folder, files)
    raw = (folder / "note.jsonl").read_bytes().splitlines(keepends=True)
    _without(folder / "note.jsonl", 4)
    lost = json.loads(raw[3])["id"]
    names = [f"r{n}" for n in range(20) if f"r{n}" != lost]
    async with opened(folder) as store:
        assert len(await _damaged(store)) == 19
        await store.forget(names[:3], "tester", None)
        await store.forget(names[3:4], "tester", None)
        assert len(await _damaged(store)) == 15
    if not cached:
        shutil.rmtree(folder / ".cache")
    async with opened(folder) as store:
        told = await _damaged(store)
        assert len(told) == 15
        assert cached or "only 15 of 16 lines" in told[0].text
        assert (await _records(store)).keys() == {"before", *names[4:]}
        with pytest.raises(Conflict, match="damaged"):
            await store.rewrite(history=True)
    twin = tmp_path / "twin"
    shutil.copytree(folder, twin)
    with open(twin / "note.jsonl", "ab") as file:
        file.write(raw[3])
    async with opened(twin) as store:
        assert (await _records(store)).keys() == {"before", lost, *names[4:]}
        assert (await store.check_lines())[0] == []
    async with opened(folder) as store:
        assert await store.settle_damaged(accept=True) == 1
        assert (await store.check_lines())[0] == []
    shutil.rmtree(folder / ".cache")
    async with opened(folder) as store:
        assert (await _records(store)).keys() == {"before", *names[4:]}
        assert (await store.check_lines())[0] == []


@pytest.mark.parametrize("rest", [0, 1, 18])
async def test_forgetting_a_record_of_a_commit_with_a_damaged_mark_does_not_accept_it(
    tmp_path: Path, rest: int
) -> None:
    folder = tmp_path / "s"
    await _many(folder, 2)
    marks = (folder / COMMITS).read_bytes().splitlines(keepends=True)
    _without(folder / COMMITS, len(marks), marks[-1][:-9] + b"\n")
    shutil.rmtree(folder / ".cache")
    gone, left = ([f"r{n}" for n in numbers] for numbers in (range(20 - rest), range(20 - rest, 20)))
    for _ in range(2):
        async with opened(folder) as store:
            if gone:
                await store.forget(gone, "tester", None)
            assert (await _records(store)).keys() == {"before", *left}
            assert len(await _damaged(store)) == rest
        shutil.rmtree(folder / ".cache")
        gone = []


@pytest.mark.parametrize("way", ["forget", "compact"])
async def test_a_line_that_cannot_be_applied_stays_reported_when_files_are_rewritten(
    tmp_path: Path, way: str
) -> None:
    folder = tmp_path / "s"
    async with opened(folder) as store:
        await put(store, typed_record("a", 1))
        await put(store, typed_record("b", 1))
    raw = (folder / "note.jsonl").read_bytes().splitlines(keepends=True)
    _without(folder / "note.jsonl", 2, raw[1].replace(b'"schema_version":1', b'"schema_version":0'))
    shutil.rmtree(folder / ".cache")
    async with opened(folder) as store:
        if way == "forget":
            await store.forget(["a"], "tester", None)
        else:
            await store.rewrite(history=True)
        assert {each.kind for each in (await store.check_lines())[0]} == {"bad line", "edited by hand"}
        assert (await _records(store)).keys() == ({"a"} if way == "compact" else set())


async def test_a_replaced_line_that_was_edited_stays_reported_with_its_damaged_commit(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "s"
    await _many(folder, 1)
    async with opened(folder) as store:
        await put(store, typed_record("r5", 100))
    raw = (folder / "note.jsonl").read_bytes().splitlines(keepends=True)
    edited = next(number for number, line in enumerate(raw, 1) if line.startswith(b'{"id":"r5"'))
    _without(folder / "note.jsonl", edited, raw[edited - 1].replace(b'"n":5}', b'"n":6}'))
    _without(folder / "note.jsonl", 2 if edited != 2 else 3)
    shutil.rmtree(folder / ".cache")
    async with opened(folder) as store:
        await store.forget(["before"], "tester", None)
        told = sorted(each[:3] for each in (await store.check_lines())[0])
    shutil.rmtree(folder / ".cache")
    async with opened(folder) as store:
        assert sorted(each[:3] for each in (await store.check_lines())[0]) == told


async def test_a_damaged_commit_proves_that_those_before_it_were_acknowledged(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    async with opened(folder) as store:
        await put(store, typed_record("a", 1))
        await put(store, typed_record("b", 1), typed_record("c", 1, schema="tick"))
        await put(store, typed_record("d", 1), typed_record("a", 2))
    (folder / COMMITS).write_bytes(b"")
    _without(folder / "note.jsonl", 3)
    shutil.rmtree(folder / ".cache")
    async with opened(folder) as store:
        assert await _records(store) == {"a": {"n": 2}, "b": {"n": 1}, "c": {"n": 1}}
        assert len(await _damaged(store)) == 3


def _rename_commit(folder: Path, name: str, number: int) -> None:
    """Damage one letter of the name of a line's commit, which is then in no commit."""
    raw = (folder / name).read_bytes().splitlines(keepends=True)[number - 1]
    place = raw.index(b'"c":"') + 10
    letter = b"0" if raw[place : place + 1] != b"0" else b"1"
    _without(folder / name, number, raw[:place] + letter + raw[place + 1 :])


async def test_forgetting_a_line_with_a_damaged_commit_name_makes_no_commit_of_that_name(
    tmp_path: Path,
) -> None:
    """It looked like a commit of another copy: a record that lacks a line was merged with itself."""
    folder = tmp_path / "s"
    async with opened(folder) as store:
        await put(store, typed_record("b", 1))
        await put(store, typed_record("b", 2))
        await put(store, typed_record("b", 3))
        await commit(store, Put(typed_record("c", 1, schema="tick")), Delete("b"))
        assert (await _records(store)).keys() == {"c"}
    _without(folder / "note.jsonl", 2)
    _rename_commit(folder, "tick.jsonl", 1)
    for _ in range(2):
        shutil.rmtree(folder / ".cache")
        async with opened(folder) as store:
            await store.forget(["c"], "tester", None)
            assert await _records(store) == {}
    assert (folder / COMMITS).read_bytes().count(b'"seq":4') == 1


async def test_a_replaced_line_with_a_damaged_commit_name_stays_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    async with opened(folder) as store:
        await put(store, typed_record("before", 1))
        await put(store, typed_record("b", 1), typed_record("a", 1, schema="tick"))
        await put(store, typed_record("a", 2, schema="tick"))
    _rename_commit(folder, "tick.jsonl", 1)
    for gone in ([], ["b"], []):
        shutil.rmtree(folder / ".cache")
        async with opened(folder) as store:
            if gone:
                await store.forget(gone, "tester", None)
            assert ("tick.jsonl", 1) in [each[:2] for each in await _damaged(store)]


async def test_a_line_that_comes_back_makes_its_commit_whole(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    await _many(folder, 2)
    whole = (folder / "note.jsonl").read_bytes()
    _without(folder / "note.jsonl", 4)
    async with opened(folder) as store:
        assert len(await _records(store)) == 20
        (folder / "note.jsonl").write_bytes(whole)
        assert len(await _records(store)) == 21
        assert (await store.check_lines())[0] == []
        assert [entry.note for entry in await store.changes(0, 100)] == [None, None]


async def test_a_copy_that_has_the_same_seq_hides_no_damage(tmp_path: Path) -> None:
    """Two copies count on from the same commit; what is damaged in one of them is still known."""
    folder, other = tmp_path / "s", tmp_path / "other"
    async with opened(folder) as store:
        await put(store, typed_record("before", 0))
    shutil.copytree(folder, other)
    async with opened(folder) as store:
        await put(store, *(typed_record(f"r{n}", n) for n in range(5)))
    async with opened(other) as store:
        await put(store, typed_record("theirs", 1))
    theirs = (other / "note.jsonl").read_bytes().splitlines(keepends=True)[-1]
    with open(folder / "note.jsonl", "ab") as file:
        file.write(theirs)
    _without(folder / "note.jsonl", 3)
    shutil.rmtree(folder / ".cache")
    async with opened(folder) as store:
        assert (await _records(store)).keys() == {"before", "theirs", "r0", "r2", "r3", "r4"}


async def test_what_was_cut_off_never_counts_however_often_it_is_read(tmp_path: Path) -> None:
    """The writer died, so nobody was told; others wrote after it."""
    folder = tmp_path / "s"
    await _many(folder, 1)
    raw = (folder / "note.jsonl").read_bytes()
    (folder / "note.jsonl").write_bytes(raw[: len(raw) - 700])
    shutil.rmtree(folder / ".cache")
    for n in range(3):
        async with opened(folder) as store:
            assert {"before", *(f"next{k}" for k in range(n))} == (await _records(store)).keys()
            await put(store, typed_record(f"next{n}", n))
        shutil.rmtree(folder / ".cache")
    async with opened(folder) as store:
        await store.rewrite(history=True)
    shutil.rmtree(folder / ".cache")
    async with opened(folder) as store:
        assert (await _records(store)).keys() == {"before", "next0", "next1", "next2"}
        assert DAMAGED not in {each.kind for each in (await store.check_lines())[0]}


def _damage(rng: random.Random, folder: Path) -> None:
    """Damage a line of a file as disks, editors and merges do."""
    names = [path for path in sorted(folder.glob("*.jsonl")) if path.name != SCHEMAS and path.stat().st_size]
    path = rng.choice(names)
    raw = path.read_bytes().splitlines()
    number = rng.randrange(len(raw))
    line, place = raw[number], rng.randrange(1, len(raw[number]))
    damaged = {
        "deleted": b"",
        "cut": line[:place] + b"\n",
        "flipped": line[:place] + bytes([line[place] ^ 1 << rng.randrange(7)]) + line[place + 1 :] + b"\n",
        "joined": line,
        "zeros": bytes(place) + line[place:] + b"\n",
    }
    _without(path, number + 1, damaged[rng.choice(list(damaged))])


async def _see(folder: Path) -> tuple[dict[str, Any], list[Any]]:
    async with opened(folder) as store:
        return await _records(store), sorted(each[:3] for each in (await store.check_lines())[0])


@pytest.mark.parametrize("seed", range(times(10)))
async def test_forgetting_in_a_damaged_folder_touches_nothing_else(tmp_path: Path, seed: int) -> None:
    rng, folder = random.Random(seed), tmp_path / "s"
    ids = ["a", "b", "aa", "e/1", "e/2"]
    async with opened(folder, sync="on_close") as store:
        for _ in range(rng.randint(3, 8)):
            some = [
                typed_record(
                    id, data={"n": rng.randint(0, 9), "of": "a"}, schema=rng.choice(["note", "tick"])
                )
                for id in rng.sample(ids, rng.choice([1, 1, 2, 3]))
            ]
            await commit(store, *map(Put, some), note=rng.choice([None, "a note"]))
    for _ in range(rng.choice([1, 1, 2])):
        _damage(rng, folder)
    shutil.rmtree(folder / ".cache")
    before, _ = await _see(folder)
    gone = rng.sample(ids, rng.choice([1, 2]))
    async with opened(folder) as store:
        await store.forget(gone, "tester", None)
    after = await _see(folder)
    assert after[0] == {id: data for id, data in before.items() if id not in gone}
    shutil.rmtree(folder / ".cache")
    assert await _see(folder) == after
