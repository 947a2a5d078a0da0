"""Calls of models in telemetry: recorded without keys, and replayed without the model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from pathlib import Path
from time import process_time
from typing import Any

import pytest

import dgent
from dgent.errors import ModelRefused, ModelThrottled
from dgent.messages.part import Part
from dgent.runtime.model.call import (
    CallDelta,
    ModelCall,
    Reply,
    Settings,
    SystemPart,
    TextDelta,
    Turn,
    complete,
)
from dgent.runtime.model.record import KIND, RecordingModel, ReplayModel
from dgent.runtime.model.redact import redact
from dgent.runtime.model.script import ScriptedModel
from dgent.store.port.telemetry import TelemetryEvent

KEYS = ("sk-ant-api03-abcdefghijklmnop", "AIzaSyA-abcdefghijklmnopqrstuvwx", "gsk_abcdefghijklmnop1234")


def ask(text: str, **more: Any) -> ModelCall:
    return ModelCall(
        system=(SystemPart("Be brief."),), messages=(Turn("user", (Part("text", text),)),), **more
    )


@pytest.fixture
async def universe(tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(f"sqlite:///{tmp_path}/s.db", durability="relaxed") as u:
        yield u


async def test_calls_are_counted_and_replayed(universe: dgent.Universe) -> None:
    telemetry = universe.storage.telemetry
    call = {"name": "read", "arguments": {"path": "ü"}}
    usage = {"input_tokens": 900, "output_tokens": 80, "cost": 0.25}
    script = ScriptedModel(
        [
            {"text": "Reading.", "thinking": "hm", "calls": [call], "usage": usage},
            {"error": "model_throttled", "retry_s": 7},
            "second",
        ]
    )
    model = RecordingModel(script, telemetry, agent="scout")
    first = await complete(model, ask("read it"))
    with pytest.raises(ModelThrottled):
        await complete(model, ask("again"))
    assert (await complete(model, ask("again"))).text == "second"
    await model.close()
    assert model.lost == 0
    spent = await telemetry.usage(by=("agent", "model"))
    assert [(each.agent, each.model) for each in spent] == [("scout", "script:list")]
    assert spent[0].calls == 3 and spent[0].input_tokens >= 900 and spent[0].cost == 0.25

    events = await telemetry.query(kind=KIND)
    assert all(event.data["duration_us"] >= 0 for event in events)
    replay = ReplayModel(events)
    with pytest.raises(ModelRefused, match="'something else'"):
        await complete(replay, ask("something else"))
    pieces = [piece async for piece in replay.stream(ask("read it"))]
    assert pieces[-1] == first and TextDelta("Reading.") in pieces
    assert CallDelta("call-1-1", "read", '{"path":"ü"}') in pieces
    with pytest.raises(ModelThrottled) as caught:
        await complete(replay, ask("again"))
    assert caught.value.details["retry_s"] == 7
    assert (await complete(replay, ask("again"))).text == "second" and replay.left == 0


async def test_no_key_reaches_the_store(universe: dgent.Universe) -> None:
    secret = "a very own password"
    said = f"use {KEYS[0]} or {KEYS[1]}, {KEYS[2]}, {secret}"
    extra = {"extra_headers": {"Authorization": "Basic abcdef", "X-Api-Key": "plain", "X-Trace": "kept"}}
    script = ScriptedModel(
        [{"text": said, "calls": [{"name": "login", "arguments": {"password": "hunter2"}}]}]
    )
    model = RecordingModel(script, universe.storage.telemetry, secrets=[secret])
    assert (await complete(model, ask(said, settings=Settings(extra=extra)))).text == said
    await model.close()
    (event,) = await universe.storage.telemetry.query(kind=KIND)
    stored = repr(event.data)
    for each in (*KEYS, secret, "Basic abcdef", "'plain'", "hunter2"):
        assert each not in stored
    assert "kept" in stored and "use ***" in stored


async def test_recording_never_fails_the_answer() -> None:
    class Broken:
        async def append(self, events: Iterable[TelemetryEvent]) -> int:
            raise OSError("no room left")

    model = RecordingModel(ScriptedModel(["ok"]), Broken())
    assert (await complete(model, ask("x"))).text == "ok"
    await model.close()
    assert model.lost == 1


async def test_closed_calls_and_large_ones_are_recorded() -> None:
    kept: list[TelemetryEvent] = []

    class Kept:
        async def append(self, events: Iterable[TelemetryEvent]) -> int:
            kept.extend(events)
            return len(kept)

    model = RecordingModel(ScriptedModel([{"text": "ab", "piece": 1}, "ok"]), Kept())
    async with aclosing(model.stream(ask("x"))) as pieces:
        assert await anext(pieces) == TextDelta("a")
    await complete(model, ask("x" * 2_000_000))
    await model.flush()
    assert kept[0].data["error"]["code"] == "cancelled" and "reply" in kept[0].data
    assert "request" not in kept[1].data and "2000" in kept[1].data["left_out"]
    silent = RecordingModel(ScriptedModel(["private"]), Kept(), content=False)
    await complete(silent, ask("a private matter"))
    await silent.close()
    assert "private" not in repr(kept[2].data) and kept[2].data["finish"] == "stop"
    assert ReplayModel(kept).left == 1


async def test_replays_of_recordings_with_keys_still_match(universe: dgent.Universe) -> None:
    call = ask(f"my key is {KEYS[0]}")
    model = RecordingModel(ScriptedModel(["noted"]), universe.storage.telemetry)
    await complete(model, call)
    await model.close()
    replay = ReplayModel(await universe.storage.telemetry.query(kind=KIND))
    reply = await complete(replay, call)
    assert isinstance(reply, Reply) and reply.text == "noted"


def test_redaction_by_name_and_by_look() -> None:
    given = {
        "api_key": "x1",
        "apiKey": "x2",
        "authorization": "x3",
        "Proxy-Authorization": "x4",
        "client_secret": "x5",
        "Set-Cookie": "x6",
        "access_token": "x7",
        "deep": [{"text": "Bearer abcdefghij and sk-proj-abcdefgh12345"}],
        "input_tokens": 12,
        "risk-assessment-of-everything": "kept",
    }
    got = redact(given)
    assert [got[name] for name in list(given)[:7]] == ["***"] * 7
    assert got["deep"] == [{"text": "*** and ***"}]
    assert got["input_tokens"] == 12 and got["risk-assessment-of-everything"] == "kept"
    for kept in ("a task-oriented sk- thing", "the password is wrong", "see https://example.org:8080/a@b"):
        assert redact(kept) == kept
    for said in (
        '{"password": "hunter2", "user": "me"}',
        "Authorization: Basic hunter2hunter2",
        "API_KEY=hunter2",
        "postgres://me:hunter2@db/x",
        [["authorization", "hunter2"]],
        [(b"x-api-key", b"hunter2")],
        {"Authorization": ["hunter2"]},
    ):
        assert "hunter2" not in repr(redact(said)) and "***" in repr(redact(said)), said
    schema = {"properties": {"password": {"type": "string"}}}
    assert redact(schema) == schema


@pytest.mark.parametrize("text", ["a" * 1_000_000, "sk-" * 300_000, "secret=" * 140_000, "a://" * 250_000])
def test_redaction_is_linear(text: str) -> None:
    started = process_time()
    redact(text)
    assert process_time() - started < 2
