"""Models of providers, with their real packages, against a server on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from dgent.errors import (
    ConfigError,
    ContextTooLong,
    InputError,
    ModelFailed,
    ModelRefused,
    ModelThrottled,
)
from dgent.messages.part import Part
from dgent.runtime.model.call import (
    CallDelta,
    Model,
    ModelCall,
    Piece,
    Reply,
    Settings,
    SystemPart,
    TextDelta,
    ThinkingDelta,
    Turn,
    complete,
    read_arguments,
)
from dgent.runtime.model.resolve import resolve
from tests.runtime.wire.server import Answer, WireServer, anthropic_error, anthropic_events, openai_events

KEY = "dummy-key-of-the-tests"
TOOL = {
    "name": "read",
    "description": "Read a file",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


def ask(*turns: Turn, **more: object) -> ModelCall:
    return ModelCall(messages=turns or (Turn("user", (Part("text", "hello"),)),), **more)  # type: ignore[arg-type]


@asynccontextmanager
async def wire(kind: str, *answers: Answer) -> AsyncIterator[tuple[WireServer, Model]]:
    async with WireServer() as server:
        server.answers += answers
        name = {"anthropic": "anthropic:claude-sonnet-5-5", "openai": "openai:gpt-4o"}[kind]
        base = server.url if kind == "anthropic" else f"{server.url}/v1"
        model = resolve(name, key=KEY, base_url=base)
        try:
            yield server, model
        finally:
            await model.close()


def events(kind: str, **more: object) -> tuple[tuple[str, str], ...]:
    return (anthropic_events if kind == "anthropic" else openai_events)(**more)  # type: ignore[operator,no-any-return]


both = pytest.mark.parametrize("kind", ["anthropic", "openai"])


@both
@pytest.mark.parametrize("piece", [0, 7])
async def test_text_and_calls_arrive_in_pieces_and_whole(kind: str, piece: int) -> None:
    calls = (("toolu_1", "read", '{"path": "a.py"}'), ("toolu_2", "read", '{"path": "ü.py"}'))
    sent = Answer(events(kind, text="I shall read both.", calls=calls), piece=piece)
    async with wire(kind, sent) as (server, model):
        pieces: list[Piece] = [each async for each in model.stream(ask(tools=(TOOL,)))]
    reply = pieces[-1]
    assert isinstance(reply, Reply)
    texts = [each.text for each in pieces if isinstance(each, TextDelta)]
    assert "".join(texts) == reply.text == "I shall read both." and len(texts) > 1
    assert reply.calls == (
        Part("tool_call", call="toolu_1", name="read", arguments={"path": "a.py"}),
        Part("tool_call", call="toolu_2", name="read", arguments={"path": "ü.py"}),
    )
    for call in reply.calls:
        text = "".join(
            each.arguments for each in pieces if isinstance(each, CallDelta) and each.call == call.call
        )
        assert read_arguments(text) == call.arguments
    assert reply.finish == "tool_call"
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == {
        "anthropic": (30, 11),
        "openai": (30, 12),
    }[kind]
    assert reply.usage.cache_read_tokens == {"anthropic": 7, "openai": 8}[kind]
    assert reply.usage.cost is not None and 0 < reply.usage.cost < 0.01
    assert server.requests[0].body["stream"] is True


async def test_thoughts_go_back_with_their_signature() -> None:
    answers = (
        Answer(events("anthropic", thinking="Let me see.", text="Yes.")),
        Answer(events("anthropic", text="ok")),
    )
    async with wire("anthropic", *answers) as (server, model):
        first = [each async for each in model.stream(ask())]
        reply = first[-1]
        assert isinstance(reply, Reply)
        assert "".join(each.text for each in first if isinstance(each, ThinkingDelta)) == "Let me see."
        again = ask(
            Turn("user", (Part("text", "hello"),)),
            Turn("assistant", reply.parts),
            Turn("user", (Part("text", "sure?"),)),
        )
        await complete(model, again)
    said = server.requests[1].body["messages"][1]["content"]
    assert said[0] == {"type": "thinking", "thinking": "Let me see.", "signature": "signed"}
    assert said[1]["text"] == "Yes."


@both
async def test_history_with_calls_and_results_is_written_as_the_provider_wants_it(kind: str) -> None:
    call = ask(
        Turn("user", (Part("text", "read a"),)),
        Turn("assistant", (Part("tool_call", call="c1", name="read", arguments={"path": "a"}),)),
        Turn("tool", (Part("tool_result", "no such file", call="c1", error=True),)),
        Turn("user", (Part("text", "then stop"),)),
        system=(SystemPart("You are scout."), SystemPart("It is noon.", stable=False)),
        tools=(TOOL,),
        settings=Settings(max_tokens=99, temperature=0.5 if kind == "openai" else None),
    )
    async with wire(kind, Answer(events(kind, text="ok"))) as (server, model):
        assert (await complete(model, call)).text == "ok"
    body = server.requests[0].body
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    if kind == "anthropic":
        assert [each["role"] for each in body["messages"]] == ["user", "assistant", "user"]
        result, text = body["messages"][2]["content"]
        assert result["tool_use_id"] == "c1" and result["is_error"] is True
        assert text["text"] == "then stop"
        assert body["max_tokens"] == 99
        # The cached prefix ends after the tools and the stable instructions, before the time of day.
        assert body["tools"][-1]["cache_control"]["type"] == "ephemeral"
        assert [each["text"] for each in body["system"]] == ["You are scout.", "It is noon."]
        assert ["cache_control" in each for each in body["system"]] == [True, False]
    else:
        assert [each["role"] for each in body["messages"]][-4:] == ["user", "assistant", "tool", "user"]
        assert body["messages"][-3]["tool_calls"][0]["function"]["name"] == "read"
        assert "no such file" in body["messages"][-2]["content"]
        assert "You are scout." in str(body["messages"][0]["content"])
        assert body["temperature"] == 0.5


@both
async def test_images_notices_and_broken_calls_go_along(kind: str) -> None:
    image = "blob:" + "0" * 64
    call = ask(
        Turn("user", (Part("text", "look"), Part("image", blob=image, media_type="image/png"))),
        Turn("user", (Part("image", blob="blob:" + "1" * 64, name="lost.png"),)),
        Turn("assistant", (Part("tool_call", call="c1", name="read", arguments='{"path": '),)),
        Turn("tool", (Part("tool_result", "not JSON", call="c1", name="read", error=True),)),
        Turn("system", (Part("text", "the partner left"),)),
        Turn("assistant", ()),
        blobs={image: b"\x89PNG"},
    )
    async with wire(kind, Answer(events(kind, text="ok"))) as (server, model):
        assert (await complete(model, call)).text == "ok"
    said = json.dumps(server.requests[0].body)
    for each in ("iVBORw==", "[image lost.png]", "[system] the partner left", "not JSON"):
        assert each in said
    assert server.requests[0].body["messages"][-1]["role"] == "user"


@both
@pytest.mark.parametrize(
    ("status", "body", "expected", "retryable"),
    [
        (429, anthropic_error("rate_limit_error", "slow down"), ModelThrottled, True),
        (500, anthropic_error("api_error", "oops"), ModelFailed, True),
        (503, b"<html>not json", ModelFailed, True),
        (401, anthropic_error("authentication_error", f"bad key {KEY}"), ModelRefused, False),
        (400, anthropic_error("invalid_request_error", "no such field"), ModelRefused, False),
        (404, anthropic_error("not_found_error", "no such model"), ModelRefused, False),
    ],
)
async def test_errors_say_whether_asking_again_helps(
    kind: str, status: int, body: object, expected: type[ModelFailed], retryable: bool
) -> None:
    answer = Answer(status=status, body=body, headers=(("retry-after", "3"),))
    async with wire(kind, answer) as (server, model):
        with pytest.raises(ModelFailed) as caught:
            await complete(model, ask())
    error = caught.value
    assert type(error) is expected and error.retryable is retryable
    assert error.details["status"] == status and error.details["model"] == model.name
    assert KEY not in str(error)
    if status == 429:
        assert error.details["retry_s"] == 3.0
    assert len(server.requests) == 1, "the retries of the provider's package are off"


async def test_a_long_request_is_told_apart() -> None:
    said = anthropic_error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
    async with wire("anthropic", Answer(status=400, body=said)) as (_, model):
        with pytest.raises(ContextTooLong):
            await complete(model, ask())


@both
@pytest.mark.parametrize("clean", [True, False])
async def test_a_cut_stream_is_a_failure_after_its_output(kind: str, clean: bool) -> None:
    half = events(kind, text="I shall read both.")[:5]
    async with wire(kind, Answer(half, cut=not clean)) as (_, model):
        seen: list[Piece] = []
        with pytest.raises(ModelFailed) as caught:
            async for piece in model.stream(ask()):
                seen.append(piece)
    assert caught.value.retryable and type(caught.value) is ModelFailed
    assert seen and all(isinstance(each, TextDelta) for each in seen)


@both
async def test_malformed_json_in_a_stream_is_a_failure(kind: str) -> None:
    broken = (
        *events(kind, text="abc")[:3],
        ("content_block_delta" if kind == "anthropic" else "", '{"type": "co'),
    )
    async with wire(kind, Answer(broken)) as (_, model):
        with pytest.raises(ModelFailed) as caught:
            await complete(model, ask())
    assert caught.value.retryable


@both
async def test_malformed_arguments_stay_text(kind: str) -> None:
    sent = Answer(events(kind, calls=(("c1", "read", '{"path": '),)))
    async with wire(kind, sent) as (_, model):
        reply = await complete(model, ask(tools=(TOOL,)))
    assert reply.calls[0].arguments == '{"path": '


async def test_an_error_inside_a_stream_is_told_by_its_kind() -> None:
    half = anthropic_events(text="abcdef")[:3]
    error = ("error", json.dumps(anthropic_error("overloaded_error", "Overloaded")))
    async with wire("anthropic", Answer((*half, error))) as (_, model):
        with pytest.raises(ModelThrottled):
            await complete(model, ask())


@both
async def test_closing_or_cancelling_ends_the_request_at_once(kind: str) -> None:
    half = events(kind, text="a long text")[:4]
    async with wire(kind, Answer(half, hang=True), Answer(half, hang=True)) as (server, model):
        async with aclosing(model.stream(ask())) as pieces:
            assert isinstance(await anext(pieces), TextDelta)
        await asyncio.wait_for(server.dropped.wait(), 5)
        server.dropped.clear()
        task = asyncio.create_task(complete(model, ask()))
        while len(server.requests) < 2:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.dropped.wait(), 5)


async def test_an_answer_that_takes_too_long_is_given_up() -> None:
    half = anthropic_events(text="a long text")[:4]
    async with wire("anthropic", Answer(half, hang=True)) as (server, model):
        with pytest.raises(ModelFailed, match=r"did not finish within 0\.2 s"):
            await complete(model, ask(settings=Settings(timeout_s=0.2)))
        await asyncio.wait_for(server.dropped.wait(), 5)


async def test_a_server_that_is_not_there_is_a_failure() -> None:
    async with WireServer() as server:
        url = server.url
    model = resolve("anthropic:claude-sonnet-5-5", key=KEY, base_url=url)
    with pytest.raises(ModelFailed) as caught:
        await complete(model, ask())
    assert caught.value.retryable
    await model.close()


def test_a_missing_key_and_an_unknown_provider_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        resolve("anthropic:claude-sonnet-5-5")
    with pytest.raises(InputError, match="nonesuch"):
        resolve("nonesuch:model")


@both
async def test_many_calls_at_once_and_one_after_close(kind: str) -> None:
    answers = [Answer(events(kind, text=f"hello {number}"), piece=40) for number in range(9)]
    async with wire(kind, *answers) as (_, model):
        replies = await asyncio.gather(*(complete(model, ask()) for _ in range(8)))
        assert sorted(reply.text for reply in replies) == [f"hello {number}" for number in range(8)]
        await model.close()
        assert (await complete(model, ask())).text == "hello 8"


@both
async def test_a_stream_may_be_closed_by_another_task(kind: str) -> None:
    half = events(kind, text="a long text")[:4]
    async with wire(kind, Answer(half, hang=True)) as (server, model):
        pieces = model.stream(ask())
        first = await asyncio.create_task(anext(pieces))  # type: ignore[arg-type]
        assert isinstance(first, TextDelta)
        await asyncio.create_task(pieces.aclose())
        await asyncio.wait_for(server.dropped.wait(), 5)


@both
async def test_an_empty_answer_is_one_and_an_empty_stream_is_not(kind: str) -> None:
    async with wire(kind, Answer(events(kind)), Answer()) as (_, model):
        reply = await complete(model, ask())
        assert reply.parts == () and reply.finish == "stop"
        with pytest.raises(ModelFailed):
            await complete(model, ask())
