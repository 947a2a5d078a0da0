"""The kinds of the membrane as tables: rows of SQL become records, with history, feed and undo."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import dgent
from dgent.errors import Conflict, InputError, NotFound
from dgent.membrane import AgentState, Dream, Instance, Instances, Membrane, Shape
from dgent.membrane.record import SCHEMAS, TABLES
from dgent.store.registry import ENGINES, Engine
from dgent.universe.gate import Principal
from dgent.universe.room import load_room
from tests.contract.columns import SETTINGS

COLUMNS = {
    "instances": "id hostname pid project_path project_hash started_at last_heartbeat status",
    "shapes": "id shape_type intensity persistence interpretation project_hash instance_id observed_at"
    " embedding_status",
    "dreams": "id content source_shapes confidence dreamed_at",
    "embedding_metadata": "source_id model_name dimensions created_at needs_reembed content",
    "cli_sessions": "id name session_type state started_at ended_at project_path project_hash flow_name"
    " flow_path budget_level tokens_used metadata",
    "cli_session_events": "id session_id timestamp event_type source message data",
    "cli_session_agents": "id session_id name genus status started_at completed_at error metadata",
    "cli_session_artifacts": "id session_id name path artifact_type created_at updated_at size_bytes"
    " content_preview metadata",
    "self_grow_proposals": "id data content_hash context entity proposed_by proposed_at status created_at"
    " updated_at",
    "self_grow_nursery": "id proposal_id data handle usage_count success_count failure_patterns"
    " germinated_by germinated_at promoted_at pruned_at rollback_token created_at updated_at",
    "self_grow_rollback_tokens": "id handle promoted_at expires_at spec_path impl_path spec_content"
    " impl_content created_at",
}


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
async def u(request: pytest.FixtureRequest, store_path: Path) -> AsyncIterator[dgent.Universe]:
    engine: Engine = request.param
    async with dgent.open(SETTINGS[engine.name][0].url(store_path), author="scout") as universe:
        yield universe


def test_tables_have_the_columns_that_the_ancestor_has() -> None:
    assert {name: " ".join(TABLES[name].columns) for name in COLUMNS} == COLUMNS
    assert TABLES.keys() - COLUMNS.keys() == {"agent_state", "prompt_checkpoints"}
    assert {each.schema for each in TABLES.values()} == {each.name for each in SCHEMAS}
    assert load_room("membrane").tables is TABLES


async def test_rows_become_records_with_history_feed_and_undo(u: dgent.Universe) -> None:
    room, before = load_room("membrane"), await u.seq()
    state = json.dumps({"mood": "calm"})
    row = {"agent_id": "soul", "genus": "k-gent", "state": state}
    assert await room.insert(u, "agent_state", [row], replace=True) == 1
    await room.insert(u, "agent_state", [{**row, "state": '{"mood": "eager"}'}], replace=True)
    membrane = Membrane(u)
    stored = await membrane.get(AgentState, "soul")
    assert stored is not None and stored.state == {"mood": "eager"} and stored.genus == "k-gent"
    assert len(await u.history("membrane.agent_state/soul")) == 2
    changes = await u.changes(before)
    assert [item.id for each in changes for item in each.items] == ["membrane.agent_state/soul"] * 2
    await u.undo(await u.seq())
    stored = await membrane.get(AgentState, "soul")
    assert stored is not None and stored.state == {"mood": "calm"}


async def test_missing_columns_get_defaults_and_a_taken_key_is_a_conflict(u: dgent.Universe) -> None:
    membrane = Membrane(u)
    await membrane.insert("shapes", [{"id": "s1", "shape_type": "loop", "project_hash": "ab"}])
    await membrane.insert("shapes", [{"shape_type": "knot", "observed_at": 1_700_000_000, "intensity": 2}])
    shape = await membrane.get(Shape, "s1")
    assert shape is not None and (shape.intensity, shape.persistence) == (1.0, 1.0)
    assert shape.embedding_status == "none" and shape.observed_at.tzinfo is not None
    with pytest.raises(Conflict, match="'s1'"):
        await membrane.insert("shapes", [{"shape_type": "new"}, {"id": "s1", "shape_type": "loop"}])
    assert [each.shape_type for each in await membrane.list(Shape)] == ["loop", "knot"]  # newest first
    assert [each.id for each in await membrane.list(Shape, project_hash="ab")] == ["s1"]
    await membrane.insert("dreams", [{"id": "d", "content": "rain", "source_shapes": '["s1"]'}])
    dream = await membrane.get(Dream, "d")
    assert dream is not None and dream.source_shapes == ["s1"]


async def test_a_row_of_a_session_needs_its_session() -> None:
    async with dgent.open("memory:") as u:
        membrane, event = Membrane(u), {"event_type": "x", "source": "y", "message": "z"}
        with pytest.raises(NotFound, match="no session 'cli_1'"):
            await membrane.insert("cli_session_events", [{"session_id": "cli_1", **event}])
        await membrane.insert("cli_sessions", [{"id": "cli_1", "name": "n"}])
        assert await membrane.insert("cli_session_events", [{"session_id": "cli_1", **event}] * 2) == 2
        with pytest.raises(Conflict, match="given twice"):
            await membrane.insert("cli_sessions", [{"id": "a", "name": "n"}, {"id": "a", "name": "m"}])


@pytest.mark.parametrize(
    ("table", "row", "wrong"),
    [
        ("shapes", {"shape": 1}, "no column 'shape'"),
        ("shapes", {"shape_type": "x", "observed_at": "soon"}, "'observed_at'"),
        ("shapes", {"shape_type": "x", "intensity": "strong"}, "intensity"),
        ("shapes", {}, "shape_type"),
        ("agent_state", {"genus": "x"}, "agent_id"),
        ("agent_state", {"agent_id": "", "genus": "x"}, "agent_id"),
        ("agent_state", {"agent_id": "a\0b", "genus": "x"}, "agent_id"),
        ("squids", {}, "no table 'squids'"),
    ],
)
async def test_a_wrong_row_is_refused_by_its_column(table: str, row: dict[str, object], wrong: str) -> None:
    async with dgent.open("memory:") as u:
        with pytest.raises(dgent.DgentError, match=wrong) as refused:
            await Membrane(u).insert(table, [row])
        assert isinstance(refused.value, InputError)
        assert await u.seq() == 0


async def test_heartbeats_keep_no_history_and_are_not_announced(u: dgent.Universe) -> None:
    instances = Instances(u)
    mine = await instances.register(project_path="/tmp/a")
    before = await u.seq()
    for _ in range(3):
        assert await instances.heartbeat(mine.id)
    assert len(await u.history(f"membrane.instance/{mine.id}")) == 1
    assert [each for each in await u.changes(before) if each.items] == []
    assert await instances.sweep() == 0
    assert await instances.sweep(stale_s=0) == 1
    assert [each.status for each in await instances.list(project_hash=mine.project_hash)] == ["stale"]
    assert await instances.heartbeat(mine.id)
    assert [each.id for each in await instances.list(status="active")] == [mine.id]
    assert await instances.end(mine.id) and not await instances.end(mine.id)
    assert not await instances.heartbeat(mine.id)
    await instances.sweep(kept_s=0)
    assert await instances.list() == []


async def test_a_program_of_another_boot_is_judged_by_the_wall_clock() -> None:
    async with dgent.open("memory:") as u:
        long_ago = datetime.now(UTC) - timedelta(minutes=6)
        fields = {"hostname": "h", "pid": 1, "started_at": long_ago, "boot": "other", "beat_us": 1}
        await Membrane(u).put(Instance(id="old", last_heartbeat=long_ago, **fields))
        await Membrane(u).put(Instance(id="fresh", last_heartbeat=datetime.now(UTC), **fields))
        assert await Instances(u).sweep() == 1
        assert [each.id for each in await Instances(u).list(status="stale")] == ["old"]


async def test_a_running_block_sends_heartbeats_and_ends() -> None:
    async with dgent.open("memory:") as u:
        instances = Instances(u)
        async with instances.running(heartbeat_s=0.01) as mine:
            for _ in range(200):
                await asyncio.sleep(0.01)
                (now,) = await instances.list(status="active")
                if now.last_heartbeat > mine.last_heartbeat:
                    break
            assert now.last_heartbeat > mine.last_heartbeat
        assert [each.status for each in await instances.list()] == ["terminated"]


async def test_who_may_only_add_changes_no_state() -> None:
    async with dgent.open("memory:") as u:
        await Membrane(u).insert("agent_state", [{"agent_id": "soul", "genus": "k", "state": "{}"}])
        guest = u.acting(Principal("guest", "conversant"))
        with pytest.raises(dgent.errors.Denied):
            await Membrane(guest).insert(
                "agent_state", [{"agent_id": "soul", "genus": "k", "state": "[]"}], replace=True
            )
        assert await Membrane(guest).insert("shapes", [{"shape_type": "seen"}]) == 1
