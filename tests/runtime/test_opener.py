"""Agents as their settings say: the model and its key, rules, limits, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.config.agent import AgentSettings
from dgent.errors import ConfigError
from dgent.runtime.model.retry import RetryingModel
from dgent.runtime.model.script import ScriptedModel
from dgent.runtime.opener import choose_model, open_agent, read_rules


async def test_an_agent_is_opened_as_its_settings_say(tmp_path: Path) -> None:
    (tmp_path / "script.jsonl").write_text('"Hello."\n')
    settings = AgentSettings(
        model=f"script:{tmp_path / 'script.jsonl'}",
        instructions="You are a scout.",
        tools=("work",),
        rules=({"rule": "max_calls", "tool": "work", "count": 1},),
        window=20_000,
        answer=500,
        calls=3,
    )
    async with dgent.open("memory:") as u, open_agent(u, "scout", settings, consent_s=1) as agent:
        assert (await agent.run("hi")).text == "Hello."
        context = await agent.context()
        assert context["instructions"].text == "You are a scout."
        assert (context.window, context.answer) == (20_000, 500)
        assert "work" in {each["name"] for each in agent.belt.schemas()}
        assert "memory" not in {each["name"] for each in agent.belt.schemas()}
        assert agent.limits.budget.calls == 3


def test_a_key_goes_only_to_the_model_that_it_is_for() -> None:
    pytest.importorskip("pydantic_ai")
    settings = AgentSettings(model="openai:local", url="http://127.0.0.1:9/v1", key="hush-hush")
    own: Any = choose_model("scout", settings)
    assert own._secrets == ("hush-hush",)
    assert choose_model("scout", settings, "openai:other") == "openai:other", "with its own key and server"
    other = ScriptedModel(["x"])
    assert choose_model("scout", settings, other) is other


def test_fallbacks(tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    path.write_text('"Hello."\n')
    found = choose_model("scout", AgentSettings(model=f"script:{path}", fallback=(f"script:{path}",)))
    assert isinstance(found, RetryingModel) and len(found.models) == 2


def test_what_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no model is set for scout"):
        choose_model("scout", AgentSettings())
    with pytest.raises(ConfigError, match="rule 1"):
        read_rules(AgentSettings(rules=({"rule": "nonsense"},)))
    pytest.importorskip("pydantic_ai")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="needs a key") as caught:
        open_agent(dgent.open("memory:"), "scout", AgentSettings(model="anthropic:claude-sonnet-5-5"))
    assert "ANTHROPIC_API_KEY" in caught.value.hint
