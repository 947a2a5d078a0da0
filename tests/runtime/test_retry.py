"""Retries, fallbacks and budgets, over scripted models."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest

from dgent.errors import BudgetSpent, ContextTooLong, InputError, ModelFailed, ModelThrottled
from dgent.runtime.model.budget import Budget, Spending
from dgent.runtime.model.call import (
    ModelCall,
    Piece,
    Reply,
    Restart,
    Settings,
    TextDelta,
    TokenUsage,
    complete,
)
from dgent.runtime.model.cost import find_cost
from dgent.runtime.model.retry import Retry, RetryingModel, open_model
from dgent.runtime.model.script import ScriptedModel

QUICK = Retry(first_s=0.001, most_s=0.004)
FAIL = {"error": "model"}
CALL = ModelCall()


def play(*steps: Any, name: str = "script:a") -> ScriptedModel:
    return ScriptedModel(steps, name=name)


async def test_a_failure_before_any_output_is_tried_again() -> None:
    script = play(FAIL, {"error": "model_throttled", "retry_s": 0.002}, "ok")
    pieces = [each async for each in open_model(script, retry=QUICK).stream(CALL)]
    assert [type(each) for each in pieces] == [TextDelta, Reply] and script.left == 0


async def test_attempts_are_bounded_and_the_error_says_how_many() -> None:
    script = play(*[FAIL] * 9)
    with pytest.raises(ModelFailed, match="4 calls to script:a failed, the last: step 4") as caught:
        await complete(open_model(script, retry=QUICK), CALL)
    assert caught.value.details["attempts"] == 4 and script.left == 5


async def test_what_was_refused_goes_to_the_next_model_at_once() -> None:
    first, second = play({"error": "context_too_long"}, name="script:short"), play("ok", name="script:long")
    model = open_model(first, fallbacks=[second])
    reply = await complete(model, CALL)
    assert (reply.text, reply.model, model.name) == ("ok", "script:long", "script:short")
    with pytest.raises(ContextTooLong):
        await complete(open_model(play({"error": "context_too_long"})), CALL)


async def test_a_wait_beyond_patience_goes_to_the_next_model() -> None:
    throttled = play({"error": "model_throttled", "retry_s": 3600})
    started = monotonic()
    assert (await complete(open_model(throttled, fallbacks=[play("ok")]), CALL)).text == "ok"
    with pytest.raises(ModelThrottled):
        await complete(open_model(play({"error": "model_throttled", "retry_s": 3600})), CALL)
    assert monotonic() - started < 5


@pytest.mark.parametrize("restart", [False, True])
async def test_after_output_it_begins_again_only_where_that_is_allowed(restart: bool) -> None:
    script = play({"text": "half", "error": "model"}, "whole")
    model = open_model(script, retry=Retry(first_s=0.001, restart=restart))
    seen: list[Piece] = []
    if not restart:
        with pytest.raises(ModelFailed):
            async for piece in model.stream(CALL):
                seen.append(piece)
        assert seen == [TextDelta("half")] and script.left == 1
        return
    seen = [piece async for piece in model.stream(CALL)]
    assert isinstance(seen[1], Restart) and seen[1].model == "script:a"
    assert [seen[0], seen[2]] == [TextDelta("half"), TextDelta("whole")]
    assert isinstance(seen[3], Reply) and seen[3].text == "whole"


async def test_no_restart_is_announced_where_none_follows() -> None:
    model = open_model(play({"text": "half", "error": "model"}), retry=Retry(attempts=1, restart=True))
    seen: list[Piece] = []
    with pytest.raises(ModelFailed):
        async for piece in model.stream(CALL):
            seen.append(piece)
    assert seen == [TextDelta("half")]


def test_waits_grow_are_bounded_and_heed_the_provider() -> None:
    retry = Retry(first_s=1, most_s=8, patience_s=60)
    assert [retry.wait_s(each, None, lambda: 1.0) for each in (1, 2, 3, 4, 5, 5000)] == [1, 2, 4, 8, 8, 8]
    assert retry.wait_s(3, None, lambda: 0.0) == 2
    asked = retry.wait_s(1, 30.0, lambda: 1.0)
    assert asked is not None and 30 < asked <= 33
    assert retry.wait_s(1, 61.0) is None
    assert retry.wait_s(1, 0.0, lambda: 1.0) == 1
    for wrong in ({"attempts": 0}, {"first_s": -1}, {"most_s": float("nan")}):
        with pytest.raises(InputError):
            Retry(**wrong)  # type: ignore[arg-type]


async def test_a_budget_of_calls_counts_retries() -> None:
    model = open_model(play(FAIL, FAIL, "ok"), retry=QUICK, budget=Budget(calls=2))
    with pytest.raises(BudgetSpent, match="2 of 2 calls") as caught:
        await complete(model, CALL)
    assert not caught.value.retryable and caught.value.details["limit"] == "calls"


async def test_budgets_of_tokens_and_money_refuse_the_next_call() -> None:
    step = {"text": "x", "usage": {"input_tokens": 90, "output_tokens": 10, "cost": 0.25}}
    tokens = open_model(play(step, step), budget=Budget(tokens=100))
    assert (await complete(tokens, CALL)).usage.input_tokens == 90
    with pytest.raises(BudgetSpent, match="100 of 100 tokens"):
        await complete(tokens, CALL)
    spending = Spending(Budget(cost=0.5))
    models = [RetryingModel([play(step)], spending=spending) for _ in range(3)]
    assert [(await complete(each, CALL)).text for each in models[:2]] == ["x", "x"]
    assert spending.usage == TokenUsage(180, 20, cost=0.5, calls=2)
    with pytest.raises(BudgetSpent, match=r"0\.5000 of 0\.5 US dollars"):
        await complete(models[2], CALL)


async def test_a_limit_of_money_is_not_kept_silently_without_prices() -> None:
    model = open_model(play({"text": "x", "usage": {"input_tokens": 9}}, "y"), budget=Budget(cost=1))
    await complete(model, CALL)
    with pytest.raises(BudgetSpent, match="1 answers have no known price"):
        await complete(model, CALL)


async def test_a_budget_of_time_ends_waits_and_answers() -> None:
    slow = open_model(play({"error": "model_throttled", "retry_s": 30}), budget=Budget(seconds=5))
    with pytest.raises(BudgetSpent, match="less is left"):
        await complete(slow, CALL)

    seen: list[float] = []

    class Asked(ScriptedModel):
        async def stream(self, call: ModelCall) -> Any:
            seen.append(call.settings.timeout_s)
            yield Reply(())

    await complete(
        open_model(Asked([]), budget=Budget(seconds=5)), ModelCall(settings=Settings(timeout_s=60))
    )
    assert 0 < seen[0] <= 5


async def test_cancelling_ends_a_wait_at_once() -> None:
    model = open_model(play(FAIL, "ok"), retry=Retry(first_s=60, most_s=60))
    task = asyncio.create_task(complete(model, CALL))
    await asyncio.sleep(0.01)
    started = monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert monotonic() - started < 5


def test_costs_are_known_for_known_models_alone() -> None:
    usage = TokenUsage(1_000_000, 1_000_000)
    assert find_cost("anthropic:claude-haiku-4-5", usage) == 6.0
    assert find_cost("openai-chat:gpt-4o", usage) == 12.5
    cached = find_cost("anthropic:claude-haiku-4-5", TokenUsage(1_000_000, 0, 1_000_000))
    assert cached is not None and cached < 1
    assert find_cost("openai:no-such-model", usage) is None
    assert find_cost("script:a", usage) is None
