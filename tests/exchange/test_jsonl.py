"""What is exported imports again, anywhere; a file that is damaged in any way imports nothing."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import json
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent.errors import (
    Conflict,
    Corrupt,
    Denied,
    FormatTooNew,
    InputError,
    NotFound,
    VersionConflict,
)
from dgent.exchange import export as jsonl
from dgent.exchange import lines
from dgent.exchange.export import export, import_
from dgent.universe.gate import Principal

Datum = dgent.Datum


@pytest.fixture(params=["sqlite", "memory"])
async def u(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'a.db'}") as u:
        yield u


@pytest.fixture
async def other() -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:") as other:
        yield other


async def fill(u: dgent.Universe) -> None:
    await u.put_many(
        [
            Datum(id=f"n{i}", data={"n": i, "f": i / 3, "t": "a\n\u2028\0é", "deep": [{"x": [None, True]}]})
            for i in range(40)
        ]
    )
    await u.put(
        Datum(
            "all",
            datetime(1, 1, 1, tzinfo=UTC),
            {"big": 2**63 - 1, "small": -(2**63), "": {"a.b": []}},
            bytes(range(256)),
            frozenset({"a", "ü"}),
            "author",
            "source",
            "n1",
            "some.schema",
            3,
            extra={"new": [1]},
        )
    )
    await u.put(Datum(id="n1", data={"changed": True}))
    await u.delete("n2")


async def exported(u: dgent.Universe, path: Path, **more: Any) -> jsonl.Exported:
    with open(path, "wb") as file:
        return await export(u, file.write, **more)


async def records(u: dgent.Universe) -> dict[str, Datum]:
    return {d.id: d.replace(rev=None, seq=None, updated_at=None) for d in await u.list(limit=None)}


async def test_there_and_back(u: dgent.Universe, other: dgent.Universe, tmp_path: Path) -> None:
    await fill(u)
    told: list[tuple[int, int | None]] = []
    done = await exported(u, tmp_path / "x.jsonl", progress=lambda *at: told.append(at))
    raw = (tmp_path / "x.jsonl").read_bytes()
    assert (done.records, done.seq, done.size_bytes, told[-1]) == (40, await u.seq(), len(raw), (40, 40))
    first, *middle, last = raw.splitlines()
    header = json.loads(first)
    assert (header["dgent"], header["format"], header["seq"]) == ("export", 1, done.seq)
    assert (header["universe"] is None) == (u.backend.name == "memory")
    assert json.loads(last) == {"end": True, "records": 40, "sha256": done.sha256}
    assert hashlib.sha256(raw[: -len(last) - 1]).hexdigest() == done.sha256
    whole = next(json.loads(line) for line in middle if b'"all"' in line)
    assert base64.b64decode(whole["content"]) == bytes(range(256)) and whole["rev"] == 1
    assert all("content" not in json.loads(line) for line in middle if b'"all"' not in line)

    dry = await import_(other, tmp_path / "x.jsonl", dry_run=True)
    assert dry == jsonl.Imported(40, 0, 0, 0, None, True) and await other.seq() == 0
    done_in = await import_(other, tmp_path / "x.jsonl", progress=lambda *at: told.append(at))
    assert done_in == jsonl.Imported(40, 0, 0, 0, 1, False)
    assert await records(other) == await records(u)
    assert told[-1] == (2 * len(raw), 2 * len(raw))
    assert await import_(other, tmp_path / "x.jsonl") == jsonl.Imported(0, 0, 40, 0, None, False)
    assert await other.seq() == 1


async def test_an_export_is_of_one_moment(u: dgent.Universe, other: dgent.Universe, tmp_path: Path) -> None:
    await u.put_many([Datum(id=f"n{i:04}", data={"x": "y" * 500}) for i in range(1500)])
    before = await records(u)
    pieces: list[bytes] = []
    tasks = []

    def write(piece: bytes) -> None:
        pieces.append(piece)
        tasks.append(asyncio.ensure_future(u.put(Datum(id=f"late{len(pieces)}"))))
        tasks.append(asyncio.ensure_future(u.put(Datum(id="n1499", data={"n": len(pieces)}))))
        tasks.append(asyncio.ensure_future(u.delete(f"n{1400 + len(pieces)}")))

    await export(u, write)
    await asyncio.gather(*tasks)
    (tmp_path / "x").write_bytes(b"".join(pieces))
    await import_(other, tmp_path / "x")
    assert len(pieces) > 3 and await records(other) == before


async def test_a_query_picks(u: dgent.Universe, other: dgent.Universe, tmp_path: Path) -> None:
    await fill(u)
    query = dgent.Query(schema="some.schema", content=False)
    assert (await exported(u, tmp_path / "x", query=query)).records == 1
    await import_(other, tmp_path / "x")
    assert await records(other) == {"all": (await records(u))["all"]}
    told: list[Any] = []
    few = await exported(u, tmp_path / "x", query=dgent.Query(limit=7), progress=lambda *at: told.append(at))
    assert few.records == 7 and told[-1] == (7, 7)


async def test_existing(u: dgent.Universe, other: dgent.Universe, tmp_path: Path) -> None:
    await fill(u)
    await exported(u, tmp_path / "x")
    await other.put(Datum(id="n3", data={"mine": 1}))
    await other.put(Datum(id="n2", data={"mine": 1}))
    before = await records(other)
    with pytest.raises(Conflict, match="'n3'") as caught:
        await import_(other, tmp_path / "x")
    assert caught.value.details["ids"] == ["n3"] and await records(other) == before
    assert await import_(other, tmp_path / "x", existing="skip", dry_run=True) == jsonl.Imported(
        39, 0, 0, 1, None, True
    )
    done = await import_(other, tmp_path / "x", existing="skip")
    assert (done.added, done.skipped, done.unchanged) == (39, 1, 0)
    done = await import_(other, tmp_path / "x", existing="replace")
    assert (done.added, done.replaced, done.unchanged) == (0, 1, 39)
    there = await records(other)
    assert there.pop("n2").data == {"mine": 1}
    made = there["n3"].created_at
    assert {**there, "n3": there["n3"].replace(created_at=made)} == {
        **await records(u),
        "n3": (await records(u))["n3"].replace(created_at=made),
    }
    # Changed since, and imported again: the file's content comes back.
    await other.put(Datum(id="n5", data={"mine": 2}))
    assert (await import_(other, tmp_path / "x", existing="replace")).replaced == 1
    with pytest.raises(InputError):
        await import_(other, tmp_path / "x", existing="merge")  # type: ignore[arg-type]


async def test_forgotten_ids_stay_forgotten(u: dgent.Universe, tmp_path: Path) -> None:
    await fill(u)
    await exported(u, tmp_path / "x")
    await u.forget("n3", "n4")
    await u.put(Datum(id="n4", data={"anew": 1}))
    done = await import_(u, tmp_path / "x", existing="skip")
    assert (done.added, done.skipped, done.unchanged) == (0, 2, 38)
    assert not await u.exists("n3") and (await u.get("n4", raw=True)).data == {"anew": 1}


@dataclass(frozen=True)
class Thing:
    x: int


async def test_schemas_of_rooms(u: dgent.Universe, other: dgent.Universe, tmp_path: Path) -> None:
    schema = dgent.Schema("room.thing", contract=Thing, owner="room")
    for universe in (u, other):
        universe.register(schema)
    await u.for_room("room").remember(Thing(1), id="t")
    await u.put(Datum(id="free"))
    await exported(u, tmp_path / "x")
    await other.seq()
    with pytest.raises(Denied, match=r"room\.thing.*line"):
        await import_(other, tmp_path / "x")
    assert await other.count() == 0
    assert (await import_(other.for_room("room"), tmp_path / "x")).added == 2
    await u.put(Datum(id="was-free"))
    await other.for_room("room").put(
        Datum(id="was-free", data={"x": 1}, schema="room.thing", schema_version=1)
    )
    await exported(u, tmp_path / "x", query=dgent.Query(prefix="was-free"))
    with pytest.raises(Denied, match="was-free"):
        await import_(other, tmp_path / "x", existing="replace")


async def test_older_versions_are_indexed_in_the_shape_of_the_newest(
    u: dgent.Universe, other: dgent.Universe, tmp_path: Path
) -> None:
    await u.put(Datum(id="old", data={"y": 7}, schema="thing", schema_version=1))
    await exported(u, tmp_path / "x")
    other.register(
        dgent.Schema(
            "thing", contract=Thing, version=2, migrations={1: lambda d: {"x": d["y"]}}, indexes=("x",)
        )
    )
    await import_(other, tmp_path / "x")
    assert [c.value for c in await other.query(schema="thing", where={"x": 7})] == [Thing(7)]


# -- many ---------------------------------------------------------------------------------


async def test_large_files_go_in_parts(
    u: dgent.Universe, other: dgent.Universe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "ONE_COMMIT", 100)
    monkeypatch.setattr(lines, "PART", 30)
    await u.put_many([Datum(id=f"n{i:03}", data={"n": i}) for i in range(101)])
    await exported(u, tmp_path / "x")
    await other.put(Datum(id="n095", data={"mine": 1}))
    with pytest.raises(Conflict):
        await import_(other, tmp_path / "x")
    assert await other.count() == 1, "refused before the first part"

    # Ended between two parts, as by a crash: the same call goes on.
    real = dgent.Universe.commit
    count = 0

    async def ends(self: dgent.Universe, *args: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            raise RuntimeError("gone")
        return await real(self, *args, **more)

    monkeypatch.setattr(dgent.Universe, "commit", ends)
    with pytest.raises(RuntimeError):
        await import_(other, tmp_path / "x", existing="replace")
    assert await other.count() == 61
    done = await import_(other, tmp_path / "x", existing="replace")
    assert (done.added, done.replaced, done.unchanged) == (40, 1, 60)
    assert {d.id: d.data for d in await other.list(limit=None)} == {
        d.id: d.data for d in await u.list(limit=None)
    }
    assert all(d.rev == (2 if d.id == "n095" else 1) for d in await other.list(limit=None)), "nothing twice"


async def test_others_who_were_faster(
    u: dgent.Universe, other: dgent.Universe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(u)
    await exported(u, tmp_path / "x")
    real = dgent.Universe.commit

    async def late(self: dgent.Universe, *args: Any, **more: Any) -> Any:
        monkeypatch.setattr(dgent.Universe, "commit", real)
        await other.put(Datum(id="n7", data={"faster": 1}))
        return await real(self, *args, **more)

    monkeypatch.setattr(dgent.Universe, "commit", late)
    with pytest.raises(VersionConflict):
        await import_(other, tmp_path / "x")
    assert await other.count() == 1


# -- damage -------------------------------------------------------------------------------


async def test_cut_anywhere(u: dgent.Universe, other: dgent.Universe, tmp_path: Path) -> None:
    await fill(u)
    await exported(u, tmp_path / "x")
    raw = (tmp_path / "x").read_bytes()
    rows = raw.splitlines(keepends=True)
    cuts = [raw[: len(raw) * tenth // 10] for tenth in range(10)]
    cuts += [raw[:-1], b"".join(rows[:-1]), b"".join(rows[1:]), b"".join([*rows[:5], *rows[6:]])]
    cuts += [
        raw + raw,
        raw + b"\n",
        b"".join([rows[0], *rows[2:0:-1], *rows[3:]]),
        b"".join(rows[:2] + rows[1:]),
    ]
    for cut in cuts:
        (tmp_path / "x").write_bytes(cut)
        with pytest.raises((Corrupt, InputError)):
            await import_(other, tmp_path / "x")
    assert await other.count() == 0 and await other.seq() == 0


async def test_one_flipped_byte(u: dgent.Universe, other: dgent.Universe, tmp_path: Path) -> None:
    await fill(u)
    await exported(u, tmp_path / "x")
    raw = (tmp_path / "x").read_bytes()
    places = {*range(0, 200, 7), *range(len(raw) - 110, len(raw)), *random.sample(range(len(raw)), 60)}
    for at in places:
        (tmp_path / "x").write_bytes(raw[:at] + bytes([raw[at] ^ (1 << at % 8)]) + raw[at + 1 :])
        with pytest.raises((Corrupt, InputError, FormatTooNew)):
            await import_(other, tmp_path / "x")
    assert await other.count() == 0


def forged(*middle: bytes, count: int | None = None) -> bytes:
    """An export with these lines and a fitting last one: hostile, not damaged."""
    head = b'{"dgent":"export","format":1,"universe":null,"seq":1,"created_at":"2026-01-01T00:00:00Z"}\n'
    body = head + b"".join(line + b"\n" for line in middle)
    records = len(middle) if count is None else count
    last = {"end": True, "records": records, "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(last, separators=(",", ":")).encode() + b"\n"


GOOD = b'{"id":"good","created_at":"2026-01-01T00:00:00Z","data":{}}'


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b'{"id":"x"}',
        b'{"id":"x","created_at":"2026-01-01T00:00:00","data":{}}',
        b'{"id":"x","created_at":"99999-01-01T00:00:00Z","data":{}}',
        b'{"id":"x","created_at":"0001-01-01T00:00:00+14:00","data":{}}',
        b'{"id":"","created_at":"2026-01-01T00:00:00Z"}',
        b'{"id":"a\\u0000b","created_at":"2026-01-01T00:00:00Z"}',
        b'{"id":"\\ud800","created_at":"2026-01-01T00:00:00Z"}',
        b'{"id":"\xff","created_at":"2026-01-01T00:00:00Z"}',
        b'{"id":"a\0b","created_at":"2026-01-01T00:00:00Z"}',
        b'{"id":"' + b"x" * 600 + b'","created_at":"2026-01-01T00:00:00Z"}',
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","data":{"n":1e999}}',
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","data":{"n":' + b"9" * 400 + b"}}",
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","data":{"n":NaN}}',
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","data":' + b'{"a":' * 70 + b"1" + b"}" * 71,
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","data":' + b"[" * 200_000,
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","data":{"a":'
        + b"[" * 100_000
        + b"]" * 100_000
        + b"}}",
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","data":[]}',
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","content":"***"}',
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","tags":"abc"}',
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","tags":[""]}',
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","schema":"s"}',
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","schema":"s","schema_version":0}',
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","extra":{"n":1e999}}',
        b'{"id":"x","created_at":"2026-01-01T00:00:00Z","unknown":1}',
        b'{"id":"good","created_at":"2026-01-01T00:00:00Z"}',
        b'{"end":true}',
        b'{"end":true,"records":1,"sha256":""}',
    ],
    ids=lambda line: line[:60].decode(errors="replace").replace("\0", "NUL"),
)
async def test_hostile_lines(other: dgent.Universe, tmp_path: Path, line: bytes) -> None:
    (tmp_path / "x").write_bytes(forged(GOOD, line))
    with pytest.raises((InputError, Corrupt), match=r"line 3|line 4"):
        await import_(other, tmp_path / "x")
    assert await other.count() == 0
    (tmp_path / "x").write_bytes(forged(GOOD))
    assert (await import_(other, tmp_path / "x")).added == 1


async def test_every_wrong_line_is_named(other: dgent.Universe, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(forged(*([b"{}", GOOD] * 30)))
    with pytest.raises(InputError) as caught:
        await import_(other, tmp_path / "x")
    named = caught.value.details["lines"]
    assert len(named) == 20 and [n.split(":")[0] for n in named[:3]] == ["line 2", "line 4", "line 5"]
    assert "59 lines" in str(caught.value) and "39 more" in str(caught.value)


async def test_lines_are_bounded(
    other: dgent.Universe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    (tmp_path / "x").write_bytes(forged(GOOD, b'{"id":"' + b"x" * 5_000_000))
    with pytest.raises(InputError, match="line 3 is longer"):
        await import_(other, tmp_path / "x")
    await other.put(Datum(id="large", content=b"x" * 2000))
    with pytest.raises(InputError, match="large"):
        await export(other, lambda piece: None)


async def test_a_record_of_the_greatest_size(
    u: dgent.Universe, other: dgent.Universe, tmp_path: Path
) -> None:
    largest = os.urandom(1 << 20) * 64
    await u.put(Datum(id="largest", content=largest[:-2]))
    await exported(u, tmp_path / "x")
    assert (await import_(other, tmp_path / "x")).added == 1
    assert (await other.get("largest", raw=True)).content == largest[:-2]


async def test_files_that_are_something_else(other: dgent.Universe, tmp_path: Path) -> None:
    for raw in (b"", b"\n", b"PK\x03\x04", b'{"dgent":"backup"}\n', b"[" * 5000 + b"\n", b"[1]\n", b"\0\n"):
        (tmp_path / "x").write_bytes(raw)
        with pytest.raises((InputError, Corrupt)):
            await import_(other, tmp_path / "x")
    (tmp_path / "x").write_bytes(b'{"dgent":"export","format":2,"whatever":0}\n')
    with pytest.raises(FormatTooNew):
        await import_(other, tmp_path / "x")
    with pytest.raises(NotFound):
        await import_(other, tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    for path in (
        tmp_path,
        Path(""),
        tmp_path / "x" / "y",
        tmp_path / "pipe",
        Path(os.fsdecode(b"\xff")),
        Path("a\0"),
    ):
        with pytest.raises(InputError) as caught:
            await import_(other, path)
        assert caught.value.details["field"] == "path"


async def test_a_file_that_may_not_be_read(
    other: dgent.Universe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").touch()

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        await import_(other, tmp_path / "x")


async def test_a_damaged_record_is_not_left_out_silently(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path / 'a.db'}") as u:
        await u.put(Datum(id="good"))
        await u.put(Datum(id="bad"))
    with apsw.Connection(str(tmp_path / "a.db")) as raw:
        raw.execute("UPDATE datum SET data = x'ff' WHERE id = 'bad'")
    async with dgent.open(f"sqlite:///{tmp_path / 'a.db'}") as u:
        with pytest.raises(Corrupt, match="bad"):
            await export(u, lambda piece: None)
        done = await export(u, lambda piece: None, query=dgent.Query(prefix="good"))
        assert done.records == 1


def write_lines(path: Path, *made: Datum) -> None:
    raw = b"".join(line + b"\n" for line in (lines.encode_header(None, 1), *map(lines.encode_record, made)))
    path.write_bytes(raw + lines.encode_footer(len(made), hashlib.sha256(raw).hexdigest()) + b"\n")


@pytest.mark.parametrize("existing", ["refuse", "skip", "replace"])
async def test_what_gives_access_is_never_imported(u: dgent.Universe, tmp_path: Path, existing: Any) -> None:
    token = Datum("dgent.token/abc", data={"trust": "partner"}, schema="dgent.token", schema_version=1)
    text = Datum("b/text", data={"text": "a"}, schema="block.text", schema_version=1)
    for made, said in (
        (token, "'dgent.token' in line 3"),
        (token.replace(id="other"), "'dgent.token' in line 3"),
        (text, "'block.text' in line 3"),
        (Datum("dgent.token/abc"), "line 3: the id 'dgent.token/abc'"),
        (Datum("dgent.copy", schema="my.schema", schema_version=1), "line 3: the id 'dgent.copy'"),
    ):
        write_lines(tmp_path / "x", Datum("fine"), made)
        with pytest.raises((Denied, InputError), match=said):
            await import_(u, tmp_path / "x", existing=existing)
    assert await u.count() == 0


async def test_marks_and_links_are_imported_as_before(
    u: dgent.Universe, other: dgent.Universe, tmp_path: Path
) -> None:
    await u.put_many([Datum("a"), Datum("b")])
    await u.associate("a", "b")
    await u.put(Datum("dgent.copy/x", schema="dgent.copy", schema_version=1))
    await exported(u, tmp_path / "x")
    assert (await import_(other, tmp_path / "x")).added == 4


async def test_only_a_partner_imports_records_of_others(u: dgent.Universe, tmp_path: Path) -> None:
    def acting(trust: Any) -> dgent.Universe:
        return u.acting(Principal("eve", trust))

    write_lines(tmp_path / "x", Datum("mine", author="eve"), Datum("none"), Datum("ann's", author="ann"))
    for trust in ("conversant", "friend"):
        with pytest.raises(Denied, match=f"eve is {trust} and may not write as 'ann' in line 4"):
            await import_(acting(trust), tmp_path / "x")
    assert await u.count() == 0
    write_lines(tmp_path / "y", Datum("mine", author="eve"), Datum("none"))
    assert (await import_(acting("friend"), tmp_path / "y")).added == 2
    assert {datum.author for datum in await u.list()} == {"eve"}
    assert (await import_(acting("partner"), tmp_path / "x")).added == 1
    assert (await u.get("ann's")).author == "ann"


async def test_only_a_partner_imports_who_may_see_what(u: dgent.Universe, tmp_path: Path) -> None:
    own = Datum("dgent.copy/x", schema="dgent.copy", schema_version=1)
    agent = Datum("block.agent/zed", data={"name": "zed"}, schema="block.agent", schema_version=1)
    write_lines(tmp_path / "x", agent, own)
    for trust in ("conversant", "friend"):
        with pytest.raises(Denied, match=r"'block.agent' in line 2, records of 'dgent.copy' in line 3"):
            await import_(u.acting(Principal("eve", trust)), tmp_path / "x")
    assert await u.count() == 0
    assert (await import_(u, tmp_path / "x")).added == 2
