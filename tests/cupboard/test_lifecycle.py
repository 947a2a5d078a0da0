"""Attaching and detaching, and what a configuration may say."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.cupboard import Config, Crumb, Cupboard, Property, Table, errors

TABLES = ("crumbs", "trails", "properties", "metadata", "links", "stashes", "categories", "schemas")

WRONG = [
    (Config(), errors.BackendEmpty),
    (Config(backend="", data_dir="x"), errors.BackendEmpty),
    (Config("dolt", "x"), errors.BackendUnknown),
    (Config("dolt", ""), errors.BackendUnknown),
    (Config("sqlite"), errors.DataDirEmpty),
    (Config("sqlite", ""), errors.DataDirEmpty),
    (Config("jsonl", ""), errors.DataDirEmpty),
    (Config("sqlite", "", "hourly"), errors.DataDirEmpty),
    (Config("sqlite", "x", "hourly"), errors.SyncStrategyUnknown),
    (Config("sqlite", "x", "batch", batch_size=-1), errors.BatchSizeInvalid),
    (Config("sqlite", "x", "batch", batch_size=True), errors.BatchSizeInvalid),
    (Config("sqlite", "x", "batch", batch_size="5"), errors.BatchSizeInvalid),  # type: ignore[arg-type]
    (Config("sqlite", "x", "batch", batch_interval=-0.5), errors.BatchIntervalInvalid),
    (Config("sqlite", "x", "batch", batch_interval=float("nan")), errors.BatchIntervalInvalid),
    (Config("sqlite", "x", "batch", batch_size=0, batch_interval=0), errors.BatchSizeInvalid),
]

RIGHT = [
    Config("memory"),
    Config("sqlite", "x"),
    Config("sqlite", "x", "immediate", batch_size=-1, batch_interval=-1),
    Config("sqlite", "x", "on_close", batch_size=-1),
    Config("sqlite", "x", "batch"),
    Config("jsonl", Path("x"), "batch", batch_size=0),
    Config("jsonl", "x", "batch", batch_size=5, batch_interval=0),
]


@pytest.mark.parametrize(("config", "error"), WRONG)
async def test_a_wrong_configuration_touches_nothing(
    config: Config, error: type[dgent.DgentError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error):
        config.validate()
    with pytest.raises(error):
        await Cupboard.attach(config)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("config", RIGHT)
def test_a_right_configuration(config: Config) -> None:
    config.validate()
    assert Config(**json.loads(json.dumps(dataclasses.asdict(config), default=str))).place == config.place


@pytest.mark.parametrize("given", [None, "sqlite", {"backend": "sqlite"}, 5])
async def test_attach_takes_a_config(given: Any) -> None:
    with pytest.raises(dgent.DgentError, match="Config"):
        await Cupboard.attach(given)


@pytest.mark.parametrize("backend", ["sqlite", "jsonl"])
@pytest.mark.parametrize("strategy", ["", "immediate", "on_close", "batch"])
async def test_what_was_stored_is_there_after_detach(tmp_path: Path, backend: str, strategy: str) -> None:
    config = Config(backend, tmp_path / "deep" / "er", strategy, batch_size=5)
    cupboard = await Cupboard.attach(config)
    made = await cupboard.add("kept", state="ready", properties={"priority": "high"})
    assert (await cupboard.crumbs.get(made.id)).name == "kept"
    await cupboard.detach()
    again = await Cupboard.attach(config)
    assert (await again.crumbs.get(made.id)).readable()["priority"] == "high"
    assert len(await again.properties.fetch()) == 5
    await again.detach()


async def test_twice_and_afterwards(tmp_path: Path) -> None:
    cupboard = Cupboard()
    with pytest.raises(errors.Detached):
        cupboard.table("crumbs")
    await cupboard.detach()  # it is not attached: fine
    config = Config("sqlite", tmp_path)
    assert await cupboard.attach(config) is cupboard
    with pytest.raises(errors.AlreadyAttached):
        await cupboard.attach(config)
    assert isinstance(errors.AlreadyAttached("x"), dgent.DgentError)
    assert await cupboard.crumbs.fetch() == []
    await cupboard.detach()
    await cupboard.detach()
    await cupboard.attach(config)  # the same object may be used again
    assert await cupboard.crumbs.fetch() == []
    await cupboard.detach()


async def test_attached_elsewhere_it_knows_nothing_of_before(tmp_path: Path) -> None:
    """Two stores with as many definitions each, but other ones."""
    cupboard = Cupboard()
    made: dict[str, str] = {}
    for place in ("a", "b"):
        await cupboard.attach(Config("sqlite", tmp_path / place))
        await cupboard.properties.set(None, Property(f"p{place}", "integer"))
        made[place] = (await cupboard.add("x")).id
        await cupboard.detach()
    for place, other in (("a", "b"), ("b", "a"), ("a", "b")):
        await cupboard.attach(Config("sqlite", tmp_path / place))
        found = await cupboard.crumbs.get(made[place])
        assert found.get_property(f"p{place}") == 0
        with pytest.raises(errors.PropertyNotFound):
            found.get_property(f"p{other}")
        await cupboard.detach()


async def test_every_call_on_a_detached_cupboard_says_so(tmp_path: Path) -> None:
    cupboard = await Cupboard.attach(Config("sqlite", tmp_path))
    held = {name: cupboard.table(name) for name in TABLES}
    await cupboard.detach()
    with pytest.raises(errors.Detached):
        cupboard.table("crumbs")
    with pytest.raises(errors.Detached):
        _ = cupboard.universe
    for table in [*held.values(), cupboard.crumbs]:
        for call in (
            lambda table=table: table.get("x"),
            lambda table=table: table.get(""),
            lambda table=table: table.set(None, table.entity()),
            lambda table=table: table.set("x", object()),
            lambda table=table: table.delete("x"),
            lambda table=table: table.delete(""),
            lambda table=table: table.fetch(),
            lambda table=table: table.fetch({"limit": "x"}),
        ):
            with pytest.raises(errors.Detached):
                await call()
    stashes = cupboard.stashes
    for later in (
        cupboard.add("x"),
        cupboard.add_many([Crumb("x")]),
        cupboard.ready(),
        cupboard.blocked(),
        cupboard.take("me"),
        cupboard.heartbeat("x", "me"),
        cupboard.done("x"),
        cupboard.drop("x"),
        cupboard.release("x"),
        cupboard.explain("x"),
        cupboard.start("x"),
        cupboard.complete("x"),
        cupboard.abandon("x"),
        cupboard.lessons(),
        cupboard.origin("x"),
        cupboard.comment("x", "y"),
        cupboard.register_schema("x"),
        stashes.increment("x"),
        stashes.acquire("x", "me"),
        stashes.release("x", "me"),
        stashes.heartbeat("x", "me"),
        stashes.set_value("x", 1),
        stashes.history("x"),
        stashes.history(""),
        cupboard.properties.get_categories("priority"),
        cupboard.properties.define_category("priority", "x"),
    ):
        with pytest.raises(errors.Detached):
            await later
    with pytest.raises(errors.Detached):
        async with cupboard.explore("x"):
            pass


async def test_on_an_open_universe(tmp_path: Path) -> None:
    async with dgent.open("memory:") as u:
        async with Cupboard(u) as cupboard:
            await cupboard.add("x")
            assert cupboard.universe is u
            with pytest.raises(errors.AlreadyAttached):
                await cupboard.attach(Config("memory"))
        with pytest.raises(errors.Detached):
            await cupboard.crumbs.fetch()
        # The universe belongs to who opened it.
        assert [c.name for c in await Cupboard(u).crumbs.fetch()] == ["x"]


async def test_what_is_under_way_when_it_detaches_is_whole_or_not_there(tmp_path: Path) -> None:
    config = Config("sqlite", tmp_path)
    cupboard = await Cupboard.attach(config)
    adding = [
        asyncio.ensure_future(cupboard.add_many([Crumb(f"{n}.{m}") for m in range(5)])) for n in range(10)
    ]
    await asyncio.sleep(0.002)
    await cupboard.detach()
    ended = await asyncio.gather(*adding, return_exceptions=True)
    assert all(isinstance(each, list | errors.Detached | dgent.errors.Closed) for each in ended), ended
    stored = sorted(f"{n}.{m}" for n, each in enumerate(ended) if isinstance(each, list) for m in range(5))
    async with await Cupboard.attach(config) as again:
        assert sorted(c.name for c in await again.crumbs.fetch()) == stored


async def test_tables_by_name(cupboard: Cupboard) -> None:
    for name in TABLES:
        table = cupboard.table(name)
        assert isinstance(table, Table)
        assert table is cupboard.table(name) is cupboard.get_table(name) is getattr(cupboard, name)
    for name in ("", "Crumbs", "nothing", "_room", "crumb", "universe", None, 5, ["crumbs"]):
        with pytest.raises(errors.TableNotFound):
            cupboard.table(name)  # type: ignore[arg-type]


async def test_a_new_cupboard_has_what_is_built_in(cupboard: Cupboard) -> None:
    assert [p.name for p in await cupboard.properties.fetch()] == [
        "priority",
        "type",
        "description",
        "owner",
        "labels",
    ]
    assert len(await cupboard.categories.fetch()) == 12
    assert {s.name for s in await cupboard.schemas.fetch()} == {"comments", "attachments"}
    names = [c.name for c in await cupboard.properties.get_categories("priority")]
    assert names == ["highest", "high", "medium", "low", "lowest"]
    assert [c.name for c in await cupboard.properties.get_categories("type")] == [
        "task",
        "epic",
        "bug",
        "chore",
        "feature",
        "spike",
        "decision",
    ]
    for name in ("crumbs", "trails", "links", "stashes", "metadata"):
        assert await cupboard.table(name).fetch() == []


async def test_two_new_stores_agree_on_the_ids_of_what_is_built_in() -> None:
    seen = []
    for _ in range(2):
        async with dgent.open("memory:") as u:
            cupboard = Cupboard(u)
            await cupboard.add("x")
            seen.append(
                (
                    [p.id for p in await cupboard.properties.fetch()],
                    [c.id for c in await cupboard.categories.fetch()],
                )
            )
    assert seen[0] == seen[1]
