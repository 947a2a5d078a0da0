"""Scripted models, events, and the names of models."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from dgent.errors import InputError, ModelFailed, ModelRefused, ModelThrottled, NotFound
from dgent.messages.part import Part
from dgent.runtime import event
from dgent.runtime.model.call import (
    CallDelta,
    Model,
    ModelCall,
    Reply,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    Turn,
    complete,
)
from dgent.runtime.model.resolve import resolve
from dgent.runtime.model.script import ScriptedModel, open_script


def ask(text: str) -> ModelCall:
    return ModelCall(messages=(Turn("user", (Part("text", text),)),))


async def test_a_script_plays_pieces_and_ends_with_the_whole_reply() -> None:
    model = ScriptedModel(
        [{"thinking": "hm", "text": "x" * 40, "calls": [{"name": "read", "arguments": {"path": "a"}}]}]
    )
    pieces = [piece async for piece in model.stream(ask("hello"))]
    reply = pieces[-1]
    assert isinstance(reply, Reply)
    assert "".join(each.text for each in pieces if isinstance(each, TextDelta)) == reply.text == "x" * 40
    assert [each.text for each in pieces if isinstance(each, ThinkingDelta)] == ["hm"]
    calls = [each for each in pieces if isinstance(each, CallDelta)]
    assert calls[0].name == "read"
    assert json.loads("".join(each.arguments for each in calls)) == {"path": "a"}
    assert reply.calls == (Part("tool_call", call="call-1-1", name="read", arguments={"path": "a"}),)
    assert reply.finish == "tool_call"
    assert [type(part.type) for part in reply.parts] and [p.type for p in reply.parts] == [
        "thinking",
        "text",
        "tool_call",
    ]


async def test_a_script_checks_what_it_is_sent_and_says_where_it_differs() -> None:
    model = ScriptedModel([{"expect": "hello", "text": "hi"}, {"expect": ["a", "b"], "text": "never"}])
    assert (await complete(model, ask("hello there"))).text == "hi"
    with pytest.raises(ModelRefused, match=r"step 2 of script:list expects 'b' .* which is 'only a'"):
        await complete(model, ask("only a"))
    with pytest.raises(ModelRefused, match="has 2 answers, and was asked for another"):
        await complete(model, ask("more"))
    assert [call.last_text() for call in model.calls] == ["hello there", "only a"]


async def test_a_script_fails_before_or_after_its_output() -> None:
    model = ScriptedModel([{"error": "model_throttled", "retry_s": 2}, {"text": "half", "error": "model"}])
    with pytest.raises(ModelThrottled) as caught:
        await complete(model, ask("x"))
    assert caught.value.details["retry_s"] == 2 and caught.value.retryable
    seen = []
    with pytest.raises(ModelFailed):
        async for piece in model.stream(ask("x")):
            seen.append(piece)
    assert seen == [TextDelta("half")]
    assert model.left == 0


async def test_closing_a_stream_ends_it_while_it_waits() -> None:
    model = ScriptedModel([{"text": "ab", "piece": 1, "pause_s": 60}])
    async with aclosing(model.stream(ask("x"))) as pieces:
        assert await anext(pieces) == TextDelta("a")
    task = asyncio.create_task(complete(ScriptedModel([{"text": "x", "delay_s": 60}]), ask("x")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_script_files_are_lines_or_a_list(tmp_path: Path) -> None:
    lines = tmp_path / "talk.jsonl"
    lines.write_text('# a talk\n"one"\n\n{"text": "two"}\n', "utf-8")
    model = resolve(f"script:{lines}")
    assert model.name == f"script:{lines}"
    assert [(await complete(model, ask("x"))).text for _ in range(2)] == ["one", "two"]
    listed = tmp_path / "talk.json"
    listed.write_text('["one",\n {"text": "two"}]', "utf-8")
    assert open_script(listed).left == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"ok"\n{nonsense', "line 2 of .* is not JSON"),
        ('{"txet": "x"}', "line 1 of .*txet"),
        ('{"error": "on_fire"}', "'on_fire', which no model has"),
        ('{"text": "x", "piece": 0}', "piece must be 1 or more, not 0"),
    ],
)
def test_a_wrong_script_says_which_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "talk"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=said):
        open_script(path)


def test_names_of_models(tmp_path: Path) -> None:
    model = ScriptedModel([])
    assert resolve(model) is model and isinstance(model, Model)
    with pytest.raises(NotFound, match="there is no script"):
        resolve(f"script:{tmp_path / 'none'}")
    for wrong in ("gpt", ":x", "openai:", ""):
        with pytest.raises(InputError, match="not the name of a model"):
            resolve(wrong)
    with pytest.raises(InputError, match="not int"):
        resolve(3)  # type: ignore[arg-type]


def test_events_are_lines_of_json_and_back() -> None:
    samples: list[event.Event] = [
        event.Text(text="a", agent="scout", batch="b"),
        event.ToolStarted(call="1", name="read", arguments={"path": "a"}),
        event.UsageReport(model="m", usage=TokenUsage(3, 4, cost=0.5)),
        event.Missed(count=3),
        event.Done(text="ok"),
        event.fail(ModelThrottled("too fast")),
    ]
    for sample in samples:
        assert event.decode(event.encode(sample)) == sample
    assert msgspec.json.decode(event.encode(samples[1]))["type"] == "tool_started"
    assert [event.is_last(each) for each in samples] == [False] * 4 + [True] * 2
    failed = event.fail(ValueError("a secret"))
    assert failed.code == "internal" and "secret" not in failed.message


def test_usage_adds_up_and_an_unknown_cost_stays_unknown() -> None:
    one, two = TokenUsage(1, 2, cost=0.5), TokenUsage(10, 20, 3, 4, cost=0.25)
    assert one.add(two) == TokenUsage(11, 22, 3, 4, 0.75, 2)
    assert one.add(TokenUsage(1)).cost is None
