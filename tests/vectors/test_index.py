"""The vector index: nothing is lost, nothing forgotten is kept, and what is damaged is mended."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path

import apsw
import numpy as np
import pytest

import dgent
from dgent import Datum, Query
from dgent.errors import Corrupt, HistoryGone, InputError, SchemaError
from dgent.model.vector import VectorSpec
from dgent.search.vectors import pack_rows
from dgent.store.backend import STORED, Declaration
from dgent.store.search import GivenVector
from dgent.store.upkeep import upkeep_of
from tests.fault.nursery import Nursery
from tests.soak import times
from tests.universe.conftest import Another, another, engine, u, url
from tests.vectors.jobs import DIM, vector_of
from tests.vectors.test_vectors import shrink

__all__ = ["another", "engine", "u", "url"]


async def fold_all(u: dgent.Universe, schema: str = "vector.faces") -> None:
    while await u.backend.fill(schema, u.contracts):
        pass


async def problems(u: dgent.Universe, fix: bool = False) -> list[str]:
    found = await upkeep_of(u.backend).inspect(deep=True, fix=fix)
    return [each.message for each in found if each.level == "problem"]


# -- several processes --------------------------------------------------------------------


async def test_the_next_search_sees_what_another_handle_did(u: dgent.Universe, another: Another) -> None:
    other = await another()
    mine, theirs = u.vectors("faces", dim=2), other.vectors("faces", dim=2)
    await mine.add([1, 0], "one")
    for n in range(70):
        await theirs.add([1, 0.001 * n], f"t{n}")
        if n % 20 == 0:
            await theirs.add([0, 1], "moved")
            assert (await mine.search([0, 1], 1))[0].id == "moved"
            await theirs.add([-1, -1], "moved")
        if n == 60:
            await fold_all(other)
        assert (await mine.search([1, 0.001 * n], 1))[0].id == f"t{n}"
    await theirs.delete("t69")
    assert "t69" not in [hit.id for hit in await mine.search([1, 0.069], 5)]
    await other.forget("t68")
    assert [hit.id for hit in await mine.search([1, 0.069], 2)] == ["t67", "t66"]


async def test_killed_writers_lose_nothing(tmp_path: Path) -> None:
    path, told = str(tmp_path / "killed.db"), list[str]()
    with Nursery("tests.vectors.jobs") as nursery:
        for n in range(times(8)):
            child = nursery.start("add_for_ever", path=path, name=f"w{n}")
            nursery.hear(child, random.randrange(1, 25))
            child.kill()
            nursery.wait(child)
            told += child.said
    async with dgent.open(f"sqlite:///{path}") as u:
        await assert_all_there(u, told)
        await fold_all(u)
        await assert_all_there(u, told)
        assert await problems(u) == []


async def assert_all_there(u: dgent.Universe, told: list[str]) -> None:
    faces = u.vectors("faces", dim=DIM)
    for id in told:
        hits = await faces.search(vector_of(id), 3)
        assert hits[0].id == id and hits[0].score == pytest.approx(1)
    everything = [hit.id for hit in await faces.search(vector_of("x"), 1000)]
    assert len(everything) == len(set(everything)) and set(told) <= set(everything)


async def test_eight_processes_write_and_search(tmp_path: Path) -> None:
    path = str(tmp_path / "many.db")
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.vectors("faces", dim=DIM).count()
    with Nursery("tests.vectors.jobs") as nursery:
        children = [nursery.start("add_some", path=path, name=f"w{n}", count=12) for n in range(8)]
        nursery.finish(*children, timeout_s=120)
    async with dgent.open(f"sqlite:///{path}") as u:
        assert await u.vectors("faces", dim=DIM).count() == 96
        await assert_all_there(u, [id for child in children for id in child.said])
        assert await problems(u) == []


async def test_searches_of_many_tasks_while_others_write(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    faces = u.vectors("faces", dim=DIM)
    fixed = [f"fixed-{n}" for n in range(30)]
    await faces.add_many([vector_of(id) for id in fixed], fixed)

    async def write(name: str) -> None:
        for n in range(15):
            await faces.add(vector_of(f"{name}{n}"), f"{name}{n}")
            await u.backend.fill("vector.faces", u.contracts)

    async def look() -> None:
        for id in fixed[:15]:
            found = await faces.search(vector_of(id), 5)
            assert found[0].id == id and len({hit.id for hit in found}) == 5

    await asyncio.gather(*(write(name) for name in "ab"), *(look() for _ in range(4)))
    assert await faces.count() == 60


def test_a_search_does_not_block_the_loop(tmp_path: Path) -> None:
    async def work(url: str) -> None:
        async with dgent.open(url) as u:
            faces = u.vectors("faces", dim=4)
            await faces.add([1, 2, 3, 4], "one")
            seen: list[str] = []
            reading = type(u.backend)._read_apart

            async def apart(self: object, work: object) -> object:
                def noted(reading: object) -> object:
                    seen.append(threading.current_thread().name)
                    return work(reading)  # type: ignore[operator]

                return await reading(self, noted)  # type: ignore[arg-type]

            type(u.backend)._read_apart = apart  # type: ignore[method-assign, assignment]
            try:
                await faces.search([1, 2, 3, 4])
            finally:
                type(u.backend)._read_apart = reading  # type: ignore[method-assign]
            assert seen and threading.current_thread().name not in seen

    for place in ("memory:", f"sqlite:///{tmp_path}/a.db"):
        asyncio.run(work(place))


# -- forgetting ---------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["sqlite", "jsonl"])
@pytest.mark.parametrize("folded", [False, True])
async def test_forgotten_vectors_are_in_no_file(
    tmp_path: Path, way: str, folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    url = f"sqlite:///{tmp_path}/store.db" if way == "sqlite" else f"jsonl:{tmp_path}/store"
    secret, second = (np.random.RandomState(n).standard_normal(64).astype("f4") for n in (1, 2))
    async with dgent.open(url) as u:
        faces = u.vectors("faces", dim=64)
        for n in range(30):
            await faces.add(np.random.RandomState(n + 10).standard_normal(64), f"f{n}")
        await faces.add(secret, "secret", {"who": "nobody-knows"})
        if folded:
            await fold_all(u)
        await faces.search(secret)
        if folded:
            await faces.add(second, "secret")
            await fold_all(u)
        needles = traces(u, secret) + (traces(u, second) if folded else [])
        if way == "sqlite" and folded:
            assert len([each for each in needles if any(each in raw for raw in contents(tmp_path))]) >= 4
        assert (await u.forget("secret")).erased
        assert await faces.count() == 30 and "secret" not in [
            hit.id for hit in await faces.search(secret, 40)
        ]
        assert await problems(u) == []
    found = [each for each in needles if any(each in raw for raw in contents(tmp_path))]
    assert found == []


def traces(u: dgent.Universe, vector: np.ndarray) -> list[bytes]:
    """The bytes that would give a vector away: the numbers, their direction in half precision, the bits."""
    row = pack_rows(vector[None, :], "cosine")[0]
    known = next(iter(u.backend._vectors.known.values()), None)  # type: ignore[attr-defined]
    bits = [] if known is None else [known.coder.encode_rows([row]).bits.tobytes()]
    return [vector.tobytes()[:40], vector.tobytes()[-40:], row[8:48], *bits, b"nobody-knows"]


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def test_a_store_is_forgotten_from_and_checked_without_numpy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with dgent.open(url) as u:
        faces = u.vectors("faces", dim=3)
        await faces.add_many([[n, 1, 2] for n in range(100)], [f"f{n}" for n in range(100)])
        await fold_all(u)
    script = f"""
import sys; sys.modules["numpy"] = None
import asyncio, dgent
from dgent.store.upkeep import upkeep_of
async def main():
    async with dgent.open({url!r}) as u:
        try:
            u.vectors("faces", dim=3)
        except dgent.Unsupported as error:
            assert "numpy" in str(error) and "pip install 'dgent[vectors]'" in error.hint
        else:
            raise AssertionError("numpy is not needed?")
        await u.forget("f7", "f8")
        await u.delete("f9")
        late = dgent.Datum("late", schema="vector.faces", schema_version=1, data={{}}, content=bytes(12))
        await u.put(late)
        assert not await u.backend.fill("vector.faces", u.contracts)
        found = await upkeep_of(u.backend).inspect(deep=True)
        assert not [each for each in found if each.level == "problem"], found
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    async with dgent.open(url) as u:
        faces = u.vectors("faces", dim=3)
        everything = {hit.id for hit in await faces.search([1, 1, 1], 200)}
        assert everything == {f"f{n}" for n in range(100)} - {"f7", "f8", "f9"}
        assert await problems(u) == []


def test_numpy_is_loaded_only_for_vectors(tmp_path: Path) -> None:
    script = f"""
import asyncio, sys, dgent
from dgent import Schema
async def main():
    async with dgent.open("sqlite:///{tmp_path}/a.db") as u:
        u.register(Schema("note", text={{"t": 1}}))
        await u.put(dgent.Datum("n", schema="note", schema_version=1, data={{"t": "words"}}))
        assert await u.search("words")
        await u.forget("n")
asyncio.run(main())
assert "numpy" not in sys.modules
from dgent.doors.cli.main import main
try:
    main(["--help"])
except SystemExit:
    pass
assert "numpy" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- damage -------------------------------------------------------------------------------

DAMAGES = {
    "a row is missing": "DELETE FROM vector WHERE dk = 5",
    "a row is another": "UPDATE vector SET body = (SELECT body FROM vector WHERE dk = 6) WHERE dk = 5",
    "a row is cut off": "UPDATE vector SET body = substr(body, 1, 9) WHERE dk = 5",
    "a page of bits is missing": "DELETE FROM page WHERE word = (SELECT max(word) FROM page)",
    "a page of bits is damaged": "UPDATE page SET body = CAST(body || x'00' AS BLOB)"
    " WHERE word = (SELECT max(word) FROM page)",
    "bits are others": "UPDATE page SET body ="
    " CAST(substr(body, 1, 60) || randomblob(length(body) - 60) AS BLOB)"
    " WHERE word = (SELECT max(word) FROM page)",
    "the counts are damaged": "UPDATE page SET body = x'c1' WHERE word = x''",
    "the counts are wrong": "DELETE FROM page WHERE word = x''",
    "the centre is missing": "DELETE FROM page WHERE word = x'01'",
    "all rows are gone": "DELETE FROM vector",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_damage_is_found_and_mended(
    store_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    ids = [f"f{n}" for n in range(80)]
    url = f"sqlite:///{store_path}/store.db"
    async with dgent.open(url) as u:
        await u.vectors("faces", dim=DIM).add_many([vector_of(id) for id in ids], ids)
        await fold_all(u)
        assert await problems(u) == []
    with closing(apsw.Connection(str(store_path / "store.db"))) as connection:
        connection.execute(damage)
    async with dgent.open(url) as u:
        faces = u.vectors("faces", dim=DIM)
        with suppress(Corrupt):  # at worst: other errors are none
            await faces.search(vector_of("x"), 100)
        assert any("vectors of vector.faces" in each for each in await problems(u))
        await problems(u, fix=True)
        await fold_all(u)
        assert await problems(u) == []
        assert {hit.id for hit in await faces.search(vector_of("x"), 100)} == set(ids)
        for id in ids[:10]:
            assert (await faces.search(vector_of(id), 1))[0].id == id


# -- earlier moments, undo, copies --------------------------------------------------------


async def test_looking_back(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    faces = u.vectors("faces", dim=2, indexes=("group",))
    await faces.add_many(
        [[1, 0.01 * n] for n in range(9)], [f"f{n}" for n in range(9)], [{"group": n % 2} for n in range(9)]
    )
    then = await u.seq()
    await faces.add([1, 5], "f0", {"group": 1})
    await faces.delete("f1")
    await faces.add([1, 0], "late", {"group": 0})
    for folded in (False, True):
        if folded:
            await fold_all(u)
        assert [hit.id for hit in await faces.search([1, 0], 3)] == ["late", "f2", "f3"]
        assert [hit.id for hit in await faces.search([1, 0], 3, as_of=then)] == ["f0", "f1", "f2"]
        assert [hit.id for hit in await faces.search([1, 0], 2, as_of=then, where={"group": 0})] == [
            "f0",
            "f2",
        ]
    assert await faces.search([1, 0], as_of=0) == []
    await u.forget("f2")
    assert [hit.id for hit in await faces.search([1, 0], 3, as_of=then)] == ["f0", "f1", "f3"]
    await u.compact(0)
    with pytest.raises(HistoryGone):
        await faces.search([1, 0], as_of=then)


async def test_a_copy_has_the_vectors(u: dgent.Universe, tmp_path: Path) -> None:
    faces = u.vectors("faces", dim=2)
    await faces.add_many([[1, n] for n in range(100)], [f"f{n}" for n in range(100)])
    await u.indexed()
    async with dgent.open(f"sqlite:///{tmp_path}/copy.db") as other:
        await dgent.copy(u, other)
        assert [hit.id for hit in await other.vectors("faces", dim=2).search([1, 0], 2)] == ["f0", "f1"]
        with pytest.raises(SchemaError):
            await other.vectors("faces", dim=3).count()


async def test_a_gate_narrows_the_answer(u: dgent.Universe) -> None:
    from dgent.errors import Denied
    from dgent.universe.gate import Principal

    await u.vectors("faces", dim=2).add([1, 0], "one")
    friend = u.acting(Principal("ann", "friend"))
    assert [hit.id for hit in await friend.vectors("faces", dim=2).search([1, 0])] == ["one"]
    nobody = u.acting(Principal("bob", "untrusted"))
    with pytest.raises(Denied):
        await nobody.vectors("faces", dim=2).search([1, 0])


# -- vectors that a model makes -----------------------------------------------------------

NOTE = VectorSpec(2, "cosine", "model-1", ("text",))


def given(waiting: list, vectors: dict[str, list[float]], digest: bytes = b"d") -> list[GivenVector]:
    return [
        GivenVector(
            each.key,
            each.record_key,
            each.datum.rev,
            digest,
            None if each.datum.id not in vectors else np.array(vectors[each.datum.id], "<f4").tobytes(),
        )
        for each in waiting
    ]


async def find(u: dgent.Universe, *numbers: float, k: int = 10) -> list[str]:
    raw = np.array(numbers, "<f4").tobytes()
    page = await u.backend.search_vectors(raw, Query(schema="note"), u.contracts, k)
    return [each.datum.id for each in page.items]


async def test_vectors_that_somebody_makes_of_texts(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    backend = u.backend
    await backend.declare(Declaration("note", 1, vector=NOTE))
    for n in range(6):
        await u.put(Datum(f"n{n}", schema="note", schema_version=1, data={"text": str(n)}))
    assert await find(u, 1, 0) == []
    first = await backend.waiting_vectors("note", 4)
    rest = await backend.waiting_vectors("note", 4, first[-1].key)
    assert [each.datum.id for each in first + rest] == [f"n{n}" for n in range(6)]
    assert {each.digest for each in first + rest} == {b""}
    assert await backend.waiting_vectors("note", 4, rest[-1].key) == []
    # One is replaced before its vector comes, one is deleted.
    await u.put(Datum("n1", schema="note", schema_version=1, data={"text": "other"}))
    await u.delete("n2")
    vectors = {f"n{n}": [1, n * 0.1] for n in range(6)}
    assert await backend.store_vectors("note", NOTE, given(first, vectors)) == 2
    assert await find(u, 1, 0) == ["n0", "n3"]
    left = await backend.waiting_vectors("note", 10)
    assert {each.datum.id for each in left} == {"n1", "n4", "n5"}
    assert await backend.store_vectors("note", NOTE, given(left, vectors)) == 3
    assert await backend.waiting_vectors("note", 10) == []
    assert await find(u, 1, 0) == ["n0", "n1", "n3", "n4", "n5"]
    # Another version: until it has its vector, the one before counts; None says that it still holds.
    await u.put(Datum("n5", schema="note", schema_version=1, data={"text": "5", "more": True}))
    (again,) = await backend.waiting_vectors("note", 10)
    assert (again.datum.id, again.digest) == ("n5", b"d") and (await find(u, 1, 0.5))[0] == "n5"
    assert await backend.store_vectors("note", NOTE, given([again], {})) == 1
    assert await backend.waiting_vectors("note", 10) == [] and (await find(u, 1, 0.5))[0] == "n5"
    assert (
        await backend.store_vectors("note", NOTE, given([again], vectors)) == 1
    )  # once more changes nothing
    await u.forget("n5")
    await fold_all(u, "note")
    assert await find(u, 1, 0) == ["n0", "n1", "n3", "n4"]
    with pytest.raises(InputError, match="3 numbers"):
        await find(u, 1, 2, 3)


async def test_another_model_is_another_index(u: dgent.Universe) -> None:
    await u.backend.declare(Declaration("note", 1, vector=NOTE))
    await u.put(Datum("n", schema="note", schema_version=1, data={"text": "x"}))
    waiting = await u.backend.waiting_vectors("note", 9)
    await u.backend.store_vectors("note", NOTE, given(waiting, {"n": [1, 0]}))
    await u.backend.declare(Declaration("note", 1))  # a program that knows of no model changes nothing
    assert await find(u, 1, 0) == ["n"]
    other = VectorSpec(2, "cosine", "model-2", ("text",))
    await u.backend.declare(Declaration("note", 1, vector=other))
    known = type("View", (type(STORED),), {"version": lambda self, schema: 1})()
    while await u.backend.fill("note", known):
        pass
    assert await find(u, 1, 0) == []
    waiting = await u.backend.waiting_vectors("note", 9)
    assert await u.backend.store_vectors("note", NOTE, given(waiting, {"n": [1, 0]})) == 0
    assert await u.backend.store_vectors("note", other, given(waiting, {"n": [1, 0]})) == 1
    assert await find(u, 1, 0) == ["n"]
    with pytest.raises(SchemaError, match="made by 'model-2'"):
        await u.backend.declare(Declaration("note", 1, vector=VectorSpec(2)))
