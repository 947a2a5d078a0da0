"""Checkpoints on each engine: values, disk, names, many at once, and what is left after deletions."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

import dgent
from dgent.bridges.langgraph import DgentSaver
from dgent.bridges.langgraph.content import GROUP, join_value, references, split_value
from dgent.errors import Corrupt, InputError, Unsupported
from tests.bridges.langgraph.steps import add_step, checkpoint_of, config_for

SERDE = JsonPlusSerializer()


def message(number: int) -> HumanMessage:
    words = " ".join(f"word{number * 7 + each}" for each in range(60))
    return HumanMessage(f"{number}: {words}", id=f"m{number}")


def on_disk(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.glob(path.name + "*"))


# -- values -------------------------------------------------------------------------------


@given(
    st.integers(0, 40).flatmap(
        lambda size: st.lists(
            st.one_of(st.text(max_size=300), st.none(), st.floats(allow_nan=False), st.binary(max_size=90)),
            min_size=size * 16,
            max_size=size * 16 + 20,
        )
    )
)
@settings(max_examples=30)
def test_a_list_comes_back_from_its_parts(items: list[Any]) -> None:
    for value in (items, _DeltaSnapshot(items)):
        made: dict[bytes, bytes] = {}
        stored = split_value(value, SERDE.dumps_typed, made)
        assert join_value(stored, made, SERDE.loads_typed) == value
        assert set(references([stored])) <= made.keys()


def test_a_longer_list_shares_all_but_its_end() -> None:
    items = [message(number) for number in range(GROUP * GROUP * 2 + 5)]
    made: dict[bytes, bytes] = {}
    split_value(items, SERDE.dumps_typed, made)
    before = set(made)
    stored = split_value([*items, message(9999)], SERDE.dumps_typed, made)
    assert len(set(made) - before) == 1
    assert len(references([stored])) == 2 + 6


def test_a_missing_content_is_reported() -> None:
    stored = split_value("long" * 100, SERDE.dumps_typed, {})
    with pytest.raises(Corrupt, match="missing"):
        join_value(stored, {}, SERDE.loads_typed)


async def test_odd_values_come_back(saver: DgentSaver) -> None:
    values: dict[str, Any] = {
        "nothing": None,
        "infinite": math.inf,
        "huge": 2**64 - 1,
        "bytes": b"\0" * 1000,
        "empty": [],
        "set": {1, 2},
        "nul": "a\0b",
        "nested": {"a": [{"b": [1] * 500}]},
        "messages": [message(number) for number in range(40)],
        "long": "x" * 100_000,
    }
    config = await add_step(saver, config_for(), values, huge=2**64 - 1, infinite=math.inf, user="ann")
    found = await saver.aget_tuple(config)
    assert found is not None
    assert found.checkpoint["channel_values"] == values
    assert found.metadata["huge"] == 2**64 - 1  # type: ignore[typeddict-item]
    listed = [each async for each in saver.alist(None, filter={"infinite": math.inf, "user": "ann"})]
    assert [each.config for each in listed] == [config]
    assert [each async for each in saver.alist(None, limit=0)] == []


@pytest.mark.parametrize("name", ["a/b", "~", "a\0b", "\ud800", "é" * 400, "%_*", " ", "a.b|c:d"])
async def test_any_name_of_a_thread_or_namespace_works(saver: DgentSaver, name: str) -> None:
    for thread, namespace in ((name, ""), ("t", name), (name + "/x", name), (name, name + "x")):
        config = await add_step(saver, config_for(thread, namespace), {"a": [thread, "x" * 200]})
        await saver.aput_writes(config, [("a", 1)], "task")
    found = await saver.aget_tuple(config_for(name))
    assert found is not None and found.config["configurable"]["thread_id"] == name
    assert found.pending_writes == [("task", "a", 1)]
    await saver.adelete_thread(name)
    assert await saver.aget_tuple(config_for(name)) is None
    assert await saver.aget_tuple(config_for(name, name + "x")) is None
    assert await saver.aget_tuple(config_for(name + "/x", name)) is not None
    assert await saver.aget_tuple(config_for("t", name)) is not None


async def test_a_type_outside_the_allow_list_is_not_constructed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    async with DgentSaver(url) as saver:
        config = await add_step(saver, config_for(), {"where": tmp_path, "name": "x"})
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    async with DgentSaver(url, serde=strict).with_allowlist([("nowhere", "Nothing")]) as saver:
        found = await saver.aget_tuple(config)
        assert found is not None and saver.serde is not strict
    with pytest.raises(TypeError):
        async with DgentSaver("memory:") as saver:
            await add_step(saver, config_for(), {"lambda": lambda: None})


class Cipher:
    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "xor", bytes(each ^ 0x5A for each in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return self.encrypt(ciphertext)[1]


async def test_encrypted_values_leave_no_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with DgentSaver(f"sqlite:///{path}", serde=EncryptedSerializer(Cipher())) as saver:
        values = {"messages": [HumanMessage("the secret word")], "long": "the secret word" * 50}
        config = await add_step(saver, config_for(), values)
        await saver.aput_writes(config, [("messages", "the secret word")], "task")
        found = await saver.aget_tuple(config)
        assert found is not None and found.checkpoint["channel_values"]["long"] == values["long"]
    assert b"secret" not in b"".join(each.read_bytes() for each in tmp_path.iterdir() if each.is_file())


# -- differential -------------------------------------------------------------------------


VALUES = st.one_of(
    st.integers(-5, 5),
    st.text(max_size=5),
    st.integers(0, 50).map(lambda count: [f"item {each} " * 20 for each in range(count)]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.integers(0, 9), st.dictionaries(st.sampled_from("abc"), VALUES), st.booleans()
        ),
        st.tuples(
            st.just("writes"),
            st.integers(0, 9),
            st.lists(st.tuples(st.sampled_from(["a", "b", "__error__", "__resume__"]), VALUES), max_size=3),
            st.sampled_from(["t1", "t2"]),
        ),
        st.tuples(st.just("delete"), st.sampled_from(["x", "y"])),
    ),
    max_size=14,
)


async def run(saver: BaseCheckpointSaver[Any], steps: list[Any], ids: list[str]) -> list[Any]:
    """Run a program and return all that can be read afterwards."""
    configs: list[Any] = [config_for("x"), config_for("x", "sub"), config_for("y")]
    versions: dict[str, int] = {}
    for number, (kind, *rest) in enumerate(steps):
        if kind == "put":
            at, values, keep = rest
            config = configs[at % len(configs)]
            new = {name: versions.get(name, 0) + 1 for name in values}
            versions |= new
            above = config["configurable"].get("checkpoint_id") and await saver.aget_tuple(config)
            old = above.checkpoint if above and keep else {"channel_values": {}, "channel_versions": {}}
            made = checkpoint_of(
                {**old["channel_values"], **values}, {**old["channel_versions"], **new}, number
            )
            made["id"] = ids[number]
            configs.append(
                await saver.aput(config, made, {"source": "loop", "step": number, "even": number % 2}, new)
            )
        elif kind == "writes":
            at, writes, task = rest
            config = configs[at % len(configs)]
            if "checkpoint_id" in config["configurable"]:
                await saver.aput_writes(config, writes, task, task[::-1])
        else:
            await saver.adelete_thread(rest[0])
    wanted = [*configs, config_for("x"), config_for("x", "sub"), config_for("y"), config_for("z")]
    found: list[Any] = [await saver.aget_tuple(each) for each in wanted]
    for thread, namespace in (("x", ""), ("x", "sub"), ("y", "")):
        for options in ({}, {"limit": 2}, {"filter": {"even": 1}}, {"before": configs[-1]}):
            listing = saver.alist(config_for(thread, namespace), **options)
            found.append([each async for each in listing])
    return found


@given(STEPS)
@settings(max_examples=25)
async def test_programs_read_as_in_the_framework(steps: list[Any]) -> None:
    ids = [str(checkpoint_of({}, {}, each)["id"]) for each in range(len(steps))]
    async with DgentSaver("memory:") as saver:
        assert await run(saver, steps, ids) == await run(InMemorySaver(), steps, ids)


@given(STEPS)
@settings(max_examples=4)
async def test_engines_read_the_same(steps: list[Any]) -> None:
    import tempfile

    ids = [str(checkpoint_of({}, {}, each)["id"]) for each in range(len(steps))]
    with tempfile.TemporaryDirectory() as folder:
        expected = await run(InMemorySaver(), steps, ids)
        for url in (f"sqlite:///{folder}/s.db", f"jsonl:{folder}/s"):
            async with DgentSaver(url) as saver:
                assert await run(saver, steps, ids) == expected


# -- disk ---------------------------------------------------------------------------------


async def grow(saver: DgentSaver, steps: int) -> int:
    """Add steps to a conversation; return the size of all its states, which LangGraph's own saver stores."""
    config, size = config_for(), 0
    messages: list[Any] = []
    for step in range(steps):
        messages = [*messages, message(2 * step), AIMessage(message(2 * step + 1).content, id=f"a{step}")]
        config = await add_step(saver, config, {"messages": messages, "turn": step}, step)
        await saver.aput_writes(config, [("messages", messages[-1:])], f"task-{step}")
        size += len(SERDE.dumps_typed(messages)[1])
    return size


async def test_disk_grows_with_what_changed(tmp_path: Path) -> None:
    path = tmp_path / "ours.db"
    async with DgentSaver(f"sqlite:///{path}") as saver:
        whole = await grow(saver, 200)
    assert on_disk(path) * 20 < whole


async def test_pruning_and_deleting_leave_no_contents(saver: DgentSaver, url: str) -> None:
    config = config_for()
    for step in range(40):
        config = await add_step(
            saver, config, {"messages": [message(n) for n in range(step)]}, step, run_id=f"r{step % 2}"
        )
        await saver.aput_writes(config, [("messages", "w" * 300)], "task")
    await add_step(saver, config_for("t", "sub"), {"messages": [message(1)] * 3}, 0)
    count = counter(saver)
    assert await count("langgraph.content") == 2 + 37
    await saver.aprune(["t"])
    assert await count("langgraph.checkpoint") == 2
    assert await count("langgraph.writes") == 1
    assert await count("langgraph.content") == 2 + 7 + 1  # groups and items of the newest, and one of `sub`
    found = await saver.aget_tuple(config_for())
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"] == [message(n) for n in range(39)]
    await saver.adelete_for_runs(["r1", "unknown"])
    assert await count("langgraph.content") == 1
    await saver.aprune(["t", "unknown"], strategy="delete")
    for schema in ("langgraph.checkpoint", "langgraph.writes", "langgraph.content"):
        assert await count(schema) == 0
    with pytest.raises(InputError, match="'newest' is not a valid strategy"):
        await saver.aprune(["t"], strategy="newest")


def counter(saver: DgentSaver) -> Any:
    async def count(schema: str) -> int:
        return await saver.place.arun(lambda u: u.count(schema=schema))

    return count


# -- many at once -------------------------------------------------------------------------


async def test_a_thread_is_pruned_while_it_grows(saver: DgentSaver) -> None:
    done = asyncio.Event()

    async def prune() -> None:
        while not done.is_set():
            await saver.aprune(["t"])
            await asyncio.sleep(0)

    pruning = asyncio.ensure_future(prune())
    config, items = config_for(), []
    for step in range(60):
        items = [*items, f"item {step} " * 20]
        config = await add_step(saver, config, {"items": items}, step)
        found = await saver.aget_tuple(config)
        assert found is not None and found.checkpoint["channel_values"]["items"] == items
    done.set()
    await pruning


async def test_tasks_write_at_once(saver: DgentSaver) -> None:
    config = await add_step(saver, config_for(), {"a": 1})
    await asyncio.gather(
        *[
            saver.aput_writes(config, [("a", task), ("__resume__", each)], f"task-{task}")
            for task in range(8)
            for each in range(4)
        ]
    )
    found = await saver.aget_tuple(config)
    assert found is not None and found.pending_writes is not None
    assert len(found.pending_writes) == 16


def test_threads_and_loops_share_a_saver(saver: DgentSaver) -> None:
    async def work(name: str) -> int:
        config = config_for(name)
        for step in range(5):
            config = await add_step(saver, config, {"a": [name] * 40}, step)
        return len([each async for each in saver.alist(config_for(name))])

    async def main() -> list[int]:
        calls = [asyncio.to_thread(asyncio.run, work(f"t{each}")) for each in range(6)]
        return await asyncio.gather(*calls)

    assert asyncio.run(main()) == [5] * 6
    assert len(list(saver.list(None))) == 30


async def test_a_cancelled_put_happens_or_not(saver: DgentSaver) -> None:
    for step in range(20):
        task = asyncio.ensure_future(add_step(saver, config_for(f"t{step}"), {"a": ["x" * 200] * 20}))
        await asyncio.sleep(0.0005 * step)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async for found in saver.alist(None):
        assert found.checkpoint["channel_values"] == {"a": ["x" * 200] * 20}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_saver_works_after_a_fork(tmp_path: Path) -> None:
    with DgentSaver(f"sqlite:///{tmp_path / 's.db'}") as saver:
        asyncio.run(add_step(saver, config_for("before"), {"a": 1}))
        child = os.fork()
        if child == 0:
            try:
                saver.put(config_for("child"), checkpoint_of({"a": 2}, {"a": 1}), {}, {"a": 1})
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert len(list(saver.list(None))) == 2


OTHER = """
import sys
from dgent.bridges.langgraph import DgentSaver
from langgraph.checkpoint.base import empty_checkpoint

saver = DgentSaver(sys.argv[1])
config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
if sys.argv[2] == "put":
    saver.put(config, empty_checkpoint(), {"step": 7}, {})
else:
    saver.delete_thread("t")
saver.close()
"""


async def test_what_another_program_did_is_seen_at_once(tmp_path: Path) -> None:
    url, config = f"sqlite:///{tmp_path}/s.db", {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    async with DgentSaver(url) as saver:
        await saver.aput(config, empty_checkpoint(), {"step": 1}, {})
        first = await saver.aget_tuple(config)
        assert first == await saver.aget_tuple(config) and first.metadata["step"] == 1, "from memory"
        subprocess.run([sys.executable, "-c", OTHER, url, "put"], check=True)
        assert (await saver.aget_tuple(config)).metadata["step"] == 7
        subprocess.run([sys.executable, "-c", OTHER, url, "delete"], check=True)
        assert await saver.aget_tuple(config) is None


async def test_an_open_universe_is_used_where_it_is(tmp_path: Path) -> None:
    async with dgent.open("memory:") as u:
        saver = DgentSaver(u)
        config = await add_step(saver, config_for(), {"messages": [HumanMessage("hello there")]}, user="ann")
        found = await asyncio.to_thread(saver.get_tuple, config)
        assert found is not None
        with pytest.raises(Unsupported, match="wait for itself"):
            saver.get_tuple(config)
        (hit,) = await u.search("hello")
        assert hit.datum.data["thread"] == "t"
        (one,) = await u.query(schema="langgraph.checkpoint", where={"metadata.user": "ann"}, raw=True)
        assert one.data["preview"] == "hello there"


async def test_threads_of_another_saver_go_on(tmp_path: Path) -> None:
    async with DgentSaver("memory:") as saver:
        old = InMemorySaver().get_next_version(None, None)
        assert saver.get_next_version(old) > old
        assert saver.get_next_version(None) == 1
        assert saver.get_next_version(1) == 2
