"""The graph on every engine: against a plain model, with writers at once, and as a file."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.errors import Conflict, Denied, InputError, NotFound
from dgent.exchange.foreign import export_graph, import_graph
from dgent.graph import Entity, Graph, Relation
from dgent.graph.record import entity_id, relation_id
from dgent.store.registry import ENGINES, Engine
from dgent.universe.gate import Principal
from tests.contract.columns import SETTINGS


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
async def u(request: pytest.FixtureRequest, store_path: Path) -> AsyncIterator[dgent.Universe]:
    engine: Engine = request.param
    async with dgent.open(SETTINGS[engine.name][0].url(store_path), author="scout") as universe:
        yield universe


async def test_as_a_plain_model(u: dgent.Universe) -> None:
    graph, chance = Graph(u), random.Random(16)
    entities: dict[str, list[str]] = {}
    relations: list[Relation] = []
    names = ("a", "b", "c/d", "", "\0")
    for _ in range(150):
        name, other, fact = chance.choice(names), chance.choice(names), chance.choice("xyz")
        relation = Relation(name, other, fact)
        match chance.randrange(6):
            case 0:
                new = await graph.create_entities([Entity(name, "t", (fact,))])
                assert bool(new) == (name not in entities)
                entities.setdefault(name, [fact])
            case 1:
                assert bool(await graph.create_relations([relation])) == (relation not in relations)
                relations += [relation] if relation not in relations else []
            case 2 if name in entities:
                (added,) = await graph.add_observations([(name, [fact])])
                assert added == [each for each in [fact] if each not in entities[name]]
                entities[name] += added
            case 2:
                with pytest.raises(NotFound):
                    await graph.add_observations([(name, [fact])])
            case 3:
                await graph.delete_observations([(name, [fact])])
                if name in entities:
                    entities[name] = [each for each in entities[name] if each != fact]
            case 4:
                await graph.delete_relations([relation])
                relations = [each for each in relations if each != relation]
            case 5 if chance.random() < 0.5:
                await graph.delete_entities([name, other])
                entities = {each: facts for each, facts in entities.items() if each not in (name, other)}
                relations = [each for each in relations if not {each.source, each.target} & {name, other}]
        found = await graph.read()
        assert {each.name: list(each.observations) for each in found.entities} == entities
        assert found.relations == relations
        opened = await graph.open([name])
        assert [each.name for each in opened.entities] == [each for each in (name,) if each in entities]
        wanted = [each for each in relations if name in (each.source, each.target)]
        assert opened.relations == (wanted if name in entities else [])


async def test_writers_at_once(u: dgent.Universe) -> None:
    graph = Graph(u)
    await graph.create_entities([Entity("Bob", "person")])

    async def write(n: int) -> None:
        await graph.add_observations([("Bob", [f"fact {n}"])])
        await graph.create_relations([Relation("Bob", f"{n % 4}", "knows")])
        await graph.create_entities([Entity(f"{n % 4}", "person", (f"{n}",))])

    await asyncio.gather(*map(write, range(20)))
    found = await graph.read()
    assert sorted(found.entities[0].observations) == sorted(f"fact {n}" for n in range(20))
    assert len(found.entities) == 5 and len(found.relations) == 4


async def test_a_deletion_beside_a_new_relation(u: dgent.Universe) -> None:
    """Whichever comes first, no relation is left at a deleted entity unless it was made after that."""
    graph = Graph(u)
    await graph.create_entities([Entity("Bob", "person")])
    new = [Relation("Bob", f"{n}", "knows") for n in range(10)]
    await graph.create_relations(new)
    await asyncio.gather(graph.delete_entities(["Bob"]), *(graph.create_relations([each]) for each in new))
    seq = max(change.seq or 0 for change in await u.changes(0) if change.note == "delete Bob")
    for each in (await graph.read()).relations:
        record = await u.get(relation_id(each), raw=True)
        assert record.seq > seq


def test_ids_differ() -> None:
    parts = ("", "/", "~", "~0", "~1", "a", "a/", "/a", "x" * 600, "\0")
    found = {relation_id(Relation(a, b, c)) for a in parts for b in parts for c in parts}
    assert len(found) == len(parts) ** 3
    assert len({entity_id(each) for each in parts}) == len(parts)
    assert entity_id("Ann") == "graph.entity/Ann"
    assert all(0 < len(each.encode()) <= 512 and "\0" not in each for each in found)


async def test_half_a_surrogate_pair(u: dgent.Universe) -> None:
    graph = Graph(u)
    for bad in (graph.create_entities([Entity("\ud800", "t")]), graph.open(["\ud800"])):
        with pytest.raises(InputError):
            await bad
    with pytest.raises(InputError):
        await graph.delete_entities(["\ud800"])


# -- the file -------------------------------------------------------------------------------

ANN = {"type": "entity", "name": "Ann", "entityType": "person", "observations": ["likes tea", "日本"]}
KNOWS = {"type": "relation", "from": "Ann", "to": "Bob", "relationType": "knows"}


def write(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines))
    return path


async def test_there_and_back(u: dgent.Universe, store_path: Path) -> None:
    lines = [{**ANN, "name": name} for name in ("Ann", "", "a/b", "\0", "x" * 1000)]
    lines += [KNOWS, {**KNOWS, "from": "/", "to": "\0"}]
    path = write(store_path / "memory.jsonl", *lines)
    trial = await import_graph(u, path, dry_run=True)
    assert (trial.added, trial.seq, (await Graph(u).read()).entities) == (7, None, [])
    done = await import_graph(u, path)
    assert (done.added, done.odd) == (7, 0) and done.seq == await u.seq()
    again = await import_graph(u, path)
    assert (again.added, again.unchanged, again.seq) == (0, 7, None)
    out = await export_graph(u, store_path / "out.jsonl")
    assert out.lines == {"out.jsonl": 7}
    written = (store_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in written] == lines
    with pytest.raises(Conflict):
        await export_graph(u, store_path / "out.jsonl")
    await export_graph(u, store_path / "out.jsonl", replace=True)


async def test_more_than_a_transaction_reads(store_path: Path) -> None:
    many = 10_100
    path = write(store_path / "memory.jsonl", *({**KNOWS, "to": f"{n}"} for n in range(many)))
    async with dgent.open("memory:") as u:
        assert (await import_graph(u, path)).added == many
        assert (await import_graph(u, path)).unchanged == many
        assert await Graph(u).create_relations([Relation("Ann", f"{n}", "knows") for n in range(many)]) == []
        await Graph(u).delete_entities(["Ann"])
        assert (await Graph(u).read()).relations == []


async def test_a_damaged_file(u: dgent.Universe, store_path: Path) -> None:
    path = write(
        store_path / "memory.jsonl",
        ANN,
        '{"type": "entity", "name": "To',
        {"type": "colour", "name": "red"},
        {"name": "Bob"},
        {"type": "entity", "name": "Bob"},
        {"type": ["entity"]},
        "",
        "[1]",
        {**ANN, "observations": ["likes tea", "new"], "entityType": "cat"},
        KNOWS,
        KNOWS,
    )
    done = await import_graph(u, path)
    assert (done.added, done.skipped, done.odd) == (2, 8, 8)
    assert [problem.line for problem in done.problems] == [2, 3, 4, 5, 6, 8, 9, 11]
    assert "it is not valid JSON" in done.problems[0].message and "'colour'" in done.problems[1].message
    assert "line 1" in done.problems[6].message
    (ann,) = (await Graph(u).read()).entities
    assert ann == Entity("Ann", "person", ("likes tea", "日本", "new"))
    for bad in (store_path / "nothing", store_path):
        with pytest.raises((NotFound, InputError)):
            await import_graph(u, bad)


async def test_what_is_or_was_there(u: dgent.Universe, store_path: Path) -> None:
    graph = Graph(u)
    path = write(store_path / "memory.jsonl", ANN, {**ANN, "name": "Cy"}, KNOWS)
    await import_graph(u, path)
    await graph.delete_entities(["Cy"])
    await graph.delete_observations([("Ann", ["likes tea"])])
    await graph.add_observations([("Ann", ["own"])])
    done = await import_graph(u, path)
    assert (done.added, done.skipped, done.unchanged, done.seq) == (0, 2, 1, None)
    done = await import_graph(u, path, existing="merge")
    assert (done.added, done.changed, done.unchanged) == (1, 1, 1)
    assert {each.name: each.observations for each in (await graph.read()).entities} == {
        "Ann": ("日本", "own", "likes tea"),
        "Cy": ("likes tea", "日本"),
    }
    with pytest.raises(Denied):
        await import_graph(u.acting(Principal("scout", "untrusted")), path)


async def test_a_record_that_is_not_of_the_graph(u: dgent.Universe, store_path: Path) -> None:
    """Somebody else has the id of an entity: it is left alone, and the rest goes on."""
    graph = Graph(u)
    await u.put(dgent.Datum(id="graph.entity/Ann", data={"mine": 1}))
    with pytest.raises(Conflict):
        await graph.create_entities([Entity("Ann", "person")])
    done = await import_graph(u, write(store_path / "memory.jsonl", ANN, KNOWS))
    assert (done.added, done.skipped) == (1, 1)
    assert (await graph.read()).entities == []
    assert (await graph.open(["Ann"])).entities == []
    with pytest.raises(NotFound):
        await graph.add_observations([("Ann", ["x"])])
    await graph.delete_observations([("Ann", ["x"])])
    await graph.delete_entities(["Ann"])
    assert await u.get("graph.entity/Ann", raw=True) is not None
