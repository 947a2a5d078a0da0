"""One contract for telemetry, at every place that it can be kept in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from dgent.errors import Closed, Corrupt, FormatTooNew, InputError, Unsupported
from dgent.store.port.telemetry import ITelemetryStore, Retention, TelemetryEvent, Usage
from dgent.store.registry import backend_for, telemetry_beside, telemetry_for
from tests.telemetry.stores import PLACES, make

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    """The name of each place in turn."""
    name: str = request.param
    return name


@pytest.fixture
async def store(place: str, store_path: Path) -> AsyncIterator[ITelemetryStore]:
    """An empty store that keeps everything."""
    made = make(place, store_path, Retention(None, None))
    yield made
    await made.close()


def _at(minutes: float, kind: str = "tick", **fields: Any) -> TelemetryEvent:
    return TelemetryEvent(kind, NOON + timedelta(minutes=minutes), **fields)


async def test_an_event_comes_back_as_it_was(store: ITelemetryStore) -> None:
    """Every field is kept, and the time is UTC whatever its zone was."""
    full = TelemetryEvent(
        "span",
        datetime(2026, 5, 4, 14, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2))),
        {"text": "a\0b ü 🎈", "deep": {"list": [1, 2.5, None, True]}},
        instance_id="i1",
        project_hash="abcd1234",
        span_id="s1",
        trace_id="t1",
        parent_id="s0",
        agent="scout",
        datum_id="note/1",
    )
    assert full.timestamp == datetime(2026, 5, 4, 12, 0, 0, 123456, tzinfo=UTC)
    assert isinstance(store, ITelemetryStore)
    assert await store.append([full]) == 1
    assert await store.query("s1") == [full]
    assert (await store.query("s1"))[0].timestamp.tzinfo is UTC


async def test_an_id_is_stored_once(store: ITelemetryStore) -> None:
    """Appending again, or copying again, adds nothing and changes nothing."""
    first = [_at(n) for n in range(3)]
    assert await store.append(first) == 3
    again = TelemetryEvent("other", NOON, id=first[0].id)
    assert await store.append([again, *first, _at(9)]) == 1
    assert await store.count() == 4
    assert await store.count("other") == 0


async def test_conditions_narrow_and_the_newest_come_first(store: ITelemetryStore) -> None:
    """Each condition holds alone and beside the others; `since` is included, `until` is not."""
    events = [
        _at(0, "span", trace_id="t1", span_id="a", agent="scout", instance_id="i1"),
        _at(1, "span", trace_id="t1", span_id="b", parent_id="a", project_hash="p"),
        _at(2, "log", trace_id="t1", datum_id="d"),
        _at(3, "log", trace_id="t2", agent="scout", data={"gen_ai.tool.name": "grep"}),
    ]
    await store.append(reversed(events))

    async def found(**asked: Any) -> list[int]:
        return [events.index(event) for event in await store.query(**asked)]

    assert await found() == [3, 2, 1, 0]
    assert await found(limit=2) == [3, 2]
    assert await found(trace="t1") == [2, 1, 0]
    assert await found(trace="t1", kind="span") == [1, 0]
    assert await found(span_id="b") == [1]
    assert await found(span_id="b", trace="t2") == []
    assert await found(kind="log") == [3, 2]
    assert await found(since=NOON + timedelta(minutes=1), until="2026-05-04T12:03:00Z") == [2, 1]
    assert await found(agent="scout") == [3, 0]
    assert await found(datum_id="d") == [2]
    assert await found(instance_id="i1") == [0]
    assert await found(project_hash="p") == [1]
    assert await found(tool="grep", agent="scout") == [3]
    assert await found(kind="' OR 1=1 --") == []


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"kind": ""}, "kind must not be empty"),
        ({"kind": "a\0"}, "NUL"),
        ({"trace_id": "x" * 300}, "trace_id is 300 bytes"),
        ({"agent": "\ud800"}, "surrogate"),
        ({"data": {"n": float("nan")}}, "n is nan"),
        ({"data": [1]}, "data must be a dict"),
        ({"data": {"x": "y" * 2_000_000}}, "data is 2000008 bytes"),
        ({"datum_id": 5}, "datum_id must be text"),
    ],
)
async def test_a_bad_event_stores_nothing_of_its_batch(
    store: ITelemetryStore, fields: dict[str, Any], says: str
) -> None:
    """The error names the event and the field, the same at every place."""
    bad = TelemetryEvent(**{"kind": "x", "timestamp": NOON, **fields})
    with pytest.raises(InputError, match=r"^events\[1\]: ") as caught:
        await store.append([_at(0), bad])
    assert says in caught.value.message
    assert await store.count() == 0


@pytest.mark.parametrize("time", [datetime(2026, 5, 4), "2026-05-04T12:00:00", "yesterday", 5, None])
async def test_a_time_without_a_zone_is_refused(time: Any) -> None:
    """Local times compared as text were a bug of old; a zone is always needed."""
    with pytest.raises(InputError, match="timestamp"):
        TelemetryEvent("x", time)
    store = telemetry_for("memory:")
    if time is not None:
        with pytest.raises(InputError, match="since"):
            await store.query(since=time)
    with pytest.raises(InputError, match="limit"):
        await store.query(limit=0)
    await store.close()


async def test_usage_adds_up_by_the_columns_asked_for(store: ITelemetryStore) -> None:
    """Tokens and cost come from the names of OpenTelemetry; a span that sums up others is not counted."""

    def call(day: int, agent: str, model: str, tokens: int, cost: float | None = None) -> TelemetryEvent:
        data = {
            "gen_ai.operation.name": "chat",
            "gen_ai.agent.name": agent,
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": tokens,
            "gen_ai.usage.output_tokens": 1,
        }
        return _at(1440 * day, "span", data=data if cost is None else {**data, "gen_ai.usage.cost": cost})

    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "grep", "gen_ai.agent.name": "ann"}
    whole = {**call(0, "ann", "m1", 999).data, "gen_ai.operation.name": "invoke_agent"}
    await store.append(
        [
            call(0, "ann", "m1", 10, 0.5),
            call(0, "ann", "m1", 20, 0.25),
            call(0, "bob", "m2", 5),
            call(1, "ann", "m1", 7),
            _at(1, "span", data=tool),
            _at(2, "span", data=whole),
            _at(3, "log", data={"gen_ai.usage.input_tokens": 50}),
        ]
    )
    first, second = date(2026, 5, 4), date(2026, 5, 5)
    assert await store.usage(by=("agent", "day")) == [
        Usage(3, 30, 2, 0.75, day=first, agent="ann"),
        Usage(1, 5, 1, 0.0, day=first, agent="bob"),
        Usage(1, 7, 1, 0.0, day=second, agent="ann"),
    ]
    assert await store.usage(by=()) == [Usage(5, 42, 4, 0.75)]
    assert await store.usage(by=["tool"], agent="ann", until=NOON + timedelta(hours=1)) in (
        [Usage(2, 30, 2, 0.75), Usage(1, 0, 0, 0.0, tool="grep")],
        [Usage(1, 0, 0, 0.0, tool="grep"), Usage(2, 30, 2, 0.75)],
    )
    assert len(await store.usage()) == 4
    assert await store.usage(since=NOON + timedelta(days=9), by=()) == []
    with pytest.raises(InputError, match="by is"):
        await store.usage(by=["data; DROP TABLE event"])  # type: ignore[list-item]


async def test_prune_drops_by_age_and_by_size(store: ITelemetryStore) -> None:
    """The oldest go by age, the first to arrive by size; a dry run only counts."""
    now = datetime.now(UTC)
    old = [TelemetryEvent("old", now - timedelta(days=9, seconds=n)) for n in range(30)]
    new = [TelemetryEvent("new", now - timedelta(seconds=n), {"pad": "x" * 100}) for n in range(20)]
    await store.append([*new[:10], *old, *new[10:]])
    assert await store.prune() == 0  # its own rule keeps everything
    assert await store.prune(8, dry_run=True) == 30
    assert await store.prune(8) == 30
    assert await store.count("old") == 0
    size = len(b'{"pad":""}') + 100 + 200
    assert await store.prune(max_bytes=5 * size, dry_run=True) == 15
    assert await store.prune(max_bytes=5 * size) == 15
    assert {event.id for event in await store.query()} == {event.id for event in new[15:]}
    with pytest.raises(InputError, match="keep_days"):
        await store.prune(-1)


async def test_the_rule_is_applied_in_the_background(place: str, store_path: Path) -> None:
    """Appending is enough: what is too old goes by itself, also much more than one step drops."""
    store = make(place, store_path, Retention(keep_days=1))
    try:
        now = datetime.now(UTC)
        old = [TelemetryEvent("old", now - timedelta(days=2)) for _ in range(6000)]
        await store.append([*old, TelemetryEvent("new", now)])
        for _ in range(2000):
            if await store.count() == 1:
                break
            await asyncio.sleep(0.01)
        assert await store.count() == await store.count("new") == 1
    finally:
        await store.close()


async def test_forget_reaches_the_events_of_a_record(store: ITelemetryStore, store_path: Path) -> None:
    """They are gone, and on a disk of ours so is every byte of them."""
    await store.append([_at(n, datum_id=f"d{n % 3}", data={"secret": f"marzipan-{n % 3}"}) for n in range(9)])
    assert await store.forget(["d1", "d2", "nobody"]) == 6
    assert [event.datum_id for event in await store.query()] == ["d0", "d0", "d0"]
    assert await store.forget(["d1"]) == 0
    left = b"".join(file.read_bytes() for file in store_path.rglob("*") if file.is_file())
    assert b"marzipan-1" not in left and b"marzipan-2" not in left


async def test_scan_gives_everything_once_in_the_order_of_arrival(store: ITelemetryStore) -> None:
    """A copy goes on where it was, and what arrives later comes later, however old it is."""
    events = [_at(-n) for n in range(25)]
    await store.append(events[:20])
    seen: list[TelemetryEvent] = []
    after = 0
    while True:
        page = await store.scan(after, 7)
        seen += page.events
        if not page.events:
            break
        after = page.after
    await store.append(events[20:])
    assert seen == events[:20]
    assert (await store.scan(after)).events == events[20:]


async def test_stats_and_check_describe_the_store(store: ITelemetryStore) -> None:
    """They say how much there is, since when, and that it can be read."""
    empty = await store.stats()
    assert (empty.events, empty.oldest) == (0, None)
    await store.append([_at(0), _at(5)])
    found = await store.stats()
    assert (found.events, found.oldest, found.newest) == (2, NOON, NOON + timedelta(minutes=5))
    assert found.size_bytes > 0
    assert await store.check() == []


async def test_a_closed_store_says_so(store: ITelemetryStore) -> None:
    """Closing twice is fine, using it after that is not."""
    await store.append([_at(0)])
    await store.close()
    await store.close()
    with pytest.raises(Closed):
        await store.count()


async def test_many_handles_append_at_once(place: str, store_path: Path) -> None:
    """None of them is refused, nothing is lost, and another handle sees all of it."""
    import asyncio

    if place == "memory":
        return
    stores = [make(place, store_path, Retention(None, None)) for _ in range(4)]
    try:
        batches = [[_at(n, trace_id=f"t{w}") for n in range(50)] for w in range(4) for _ in range(5)]
        jobs = [stores[n % 4].append(batch) for n, batch in enumerate(batches)]
        assert sum(await asyncio.gather(*jobs)) == 1000
        assert [await each.count() for each in stores] == [1000] * 4
    finally:
        for each in stores:
            await each.close()


# -- the file -----------------------------------------------------------------------------


async def test_a_file_of_something_else_is_refused_and_left_alone(store_path: Path) -> None:
    """A store of dgent, a newer file and garbage are reported, and not a byte of them changes."""
    import apsw

    import dgent

    path = store_path / "x.db"
    async with dgent.open(f"sqlite:///{path}"):
        pass
    newer = store_path / "newer.db"
    made = telemetry_for(f"sqlite:///{newer}")
    await made.append([_at(0)])
    await made.close()
    connection = apsw.Connection(str(newer))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    garbage = store_path / "garbage.db"
    garbage.write_bytes(b"no database at all" * 100)
    for file, kind in ((path, Corrupt), (newer, FormatTooNew), (garbage, Corrupt)):
        before = file.read_bytes()
        refused = telemetry_for(f"sqlite:///{file}")
        with pytest.raises(kind):
            await refused.append([_at(0)])
        with pytest.raises(kind):
            await refused.query()
        await refused.close()
        assert file.read_bytes() == before


async def test_a_damaged_event_is_found_by_check(store_path: Path) -> None:
    """A query that meets it says which one it is."""
    import apsw

    path = store_path / "x.db"
    store = telemetry_for(f"sqlite:///{path}", Retention(None, None))
    await store.append([_at(0, trace_id="t"), _at(1)])
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE event SET data = X'5B' WHERE trace = 't'")
    connection.close()
    assert "is damaged" in (await store.check())[0]
    with pytest.raises(Corrupt, match="is damaged"):
        await store.query(trace="t")
    await store.close()


def test_each_store_has_its_telemetry_beside_it(store_path: Path) -> None:
    """A file beside the file or in the folder; a table in Postgres; nothing where nothing lasts."""
    folder = store_path.resolve()

    def beside(url: str) -> str:
        return telemetry_beside(backend_for(url)).place  # type: ignore[attr-defined,no-any-return]

    assert beside("memory:") == "memory:"
    assert beside(f"sqlite:///{folder}/x.db") == f"sqlite:///{folder}/x.db.telemetry.db"
    assert beside(f"sqlite:///{folder}/membrane.db") == f"sqlite:///{folder}/telemetry.db"
    assert beside(f"jsonl:{folder}/y") == f"sqlite:///{folder}/y/telemetry.db"
    assert beside("postgresql://me@host/db?universe=u") == "postgresql://me@host/db?universe=u"
    with pytest.raises(Unsupported, match="telemetry"):
        telemetry_for(f"jsonl:{folder}/y")
    with pytest.raises(Unsupported, match="telemetry"):
        beside("http://127.0.0.1:1")
