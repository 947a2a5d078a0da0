"""The public suite for checkpoint savers, and what it does not ask of delta channels."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, DeltaChannelHistory
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from dgent.bridges.langgraph import DgentSaver
from tests.bridges.langgraph.steps import checkpoint_of, config_for

CASES = 81


async def test_the_public_suite_passes(saver: DgentSaver) -> None:
    @checkpointer_test(name="dgent")
    async def made() -> Any:
        yield saver

    report = (await validate(made)).to_dict()
    failures = [failure for each in report["results"].values() for failure in each["failures"] or ()]
    assert failures == []
    assert sum(each["tests_passed"] for each in report["results"].values()) == CASES


async def add_delta(
    saver: BaseCheckpointSaver[Any], config: Any, step: int, seed: Any = None, **writes: Any
) -> Any:
    """Store a checkpoint of delta channels: with values only where there is a snapshot."""
    values = seed or {}
    versions = {"a": step + 1, "b": step + 1}
    counters: Any = dict.fromkeys(versions, (step, step))
    metadata: Any = {"source": "loop", "step": step, "counters_since_delta_snapshot": counters}
    config = await saver.aput(config, checkpoint_of(values, versions, step), metadata, versions)
    for channel, value in writes.items():
        await saver.aput_writes(config, [(channel, value)], f"task-{channel}", f"path-{step}")
    return config


def plain(history: DeltaChannelHistory) -> tuple[list[Any], Any]:
    return [value for _, _, value in history["writes"]], history.get("seed", "none")


async def test_a_delta_history_ends_at_the_nearest_value_of_each_channel(saver: DgentSaver) -> None:
    config = await add_delta(saver, config_for(), 0, {"a": _DeltaSnapshot(["old"])}, a="a0", b="b0")
    config = await add_delta(saver, config, 1, None, a="a1")
    config = await add_delta(saver, config, 2, {"b": _DeltaSnapshot(list(range(40)))}, a="a2", b="b2")
    config = await add_delta(saver, config, 3, None, a="pending", b="pending")
    found = await saver.aget_delta_channel_history(config=config, channels=["a", "b", "none"])
    assert plain(found["a"]) == (["a0", "a1", "a2"], _DeltaSnapshot(["old"]))
    assert plain(found["b"]) == (["b2"], _DeltaSnapshot(list(range(40))))
    assert plain(found["none"]) == ([], "none")
    blocking = partial(saver.get_delta_channel_history, config=config, channels=["a", "b", "none"])
    assert await asyncio.to_thread(blocking) == found
    assert await saver.aget_delta_channel_history(config=config, channels=[]) == {}
    newest = await saver.aget_delta_channel_history(config=config_for(), channels=["a", "b", "none"])
    assert newest == found


async def test_a_delta_history_follows_parents_and_not_ids(saver: DgentSaver) -> None:
    root = await add_delta(saver, config_for(), 0, None, a="root")
    left = await add_delta(saver, root, 1, None, a="left")
    right = await add_delta(saver, root, 2, None, a="right")
    end = await add_delta(saver, left, 3)
    for config, expected in ((end, ["root", "left"]), (right, ["root"])):
        found = await saver.aget_delta_channel_history(config=config, channels=["a"])
        assert plain(found["a"]) == (expected, "none")


async def test_a_delta_history_is_that_of_the_framework(saver: DgentSaver) -> None:
    other, configs = InMemorySaver(), {}
    for each in (saver, other):
        config = config_for()
        for step in range(30):
            seed = {"a": _DeltaSnapshot(["s"] * step)} if step % 11 == 5 else None
            config = await add_delta(each, config, step, seed, a=step, b=-step)
            await each.aput_writes(config, [("a", "early"), ("b", 1)], "task-0", "")
        configs[each] = config
    for channels in (["a"], ["a", "b"]):
        assert await saver.aget_delta_channel_history(
            config=configs[saver], channels=channels
        ) == other.get_delta_channel_history(config=configs[other], channels=channels)


async def test_a_chain_that_is_a_loop_ends(saver: DgentSaver) -> None:
    first = checkpoint_of({}, {}, 0)
    one = await saver.aput(config_for(), first, {}, {})
    two = await saver.aput(one, checkpoint_of({}, {}, 1), {}, {})
    await saver.aput(two, first, {}, {})
    found = await saver.aget_delta_channel_history(config=two, channels=["a"])
    assert plain(found["a"]) == ([], "none")


async def test_pruning_keeps_what_delta_channels_stand_on(saver: DgentSaver) -> None:
    config = await add_delta(saver, config_for(), 0, None, a="lost", b="lost")
    for step in range(1, 6):
        seed = {"a": _DeltaSnapshot(["s"]), "b": _DeltaSnapshot(["t"])} if step == 2 else None
        config = await add_delta(saver, config, step, seed, a=step, b=step)
    before = await saver.aget_delta_channel_history(config=config, channels=["a", "b"])
    await saver.aprune(["t"])
    assert await saver.aget_delta_channel_history(config=config, channels=["a", "b"]) == before
    assert len([each async for each in saver.alist(config_for())]) == 4
    await saver.acopy_thread("t", "copy")
    copied = await saver.aget_delta_channel_history(config=config_for("copy"), channels=["a", "b"])
    assert copied == before
