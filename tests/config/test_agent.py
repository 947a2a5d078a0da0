"""Settings of agents: from the user's own file alone, with variables, and never shown with a key."""

from __future__ import annotations

import pytest

from dgent.config.agent import AgentSettings, find_agent, list_agents
from dgent.errors import ConfigError
from tests.config.house import House

SCOUT = """
model = "openai:usual"

[agent.scout]
url = "http://127.0.0.1:9/v1"
key = "${SCOUT_KEY}"
instructions_file = "scout.md"
tools = ["blocks"]
rules = [{ rule = "max_calls", tool = "web", count = 3 }]

[agent.critic]
model = "anthropic:other"
"""


def test_an_agent_has_a_table_of_its_own(house: House) -> None:
    house.user(SCOUT)
    (house.user_file.parent / "scout.md").write_text("You are a scout.")
    settings = house.load(SCOUT_KEY="hush-hush")
    assert settings.warnings == ()
    assert list_agents(settings) == ["critic", "scout"]
    scout = find_agent(settings, "scout")
    assert (scout.model, scout.url, scout.key) == ("openai:usual", "http://127.0.0.1:9/v1", "hush-hush")
    assert scout.read_instructions() == "You are a scout."
    assert scout.rules == ({"rule": "max_calls", "tool": "web", "count": 3},)
    assert find_agent(settings, "critic").model == "anthropic:other"
    assert find_agent(settings, "nobody") == AgentSettings(model="openai:usual")
    assert "hush-hush" not in repr(scout)
    assert "hush-hush" not in repr(settings)


def test_the_environment_names_a_model(house: House) -> None:
    assert find_agent(house.load(), "scout").model is None
    assert find_agent(house.load(DGENT_MODEL="script:a.jsonl"), "scout").model == "script:a.jsonl"


def test_a_project_names_no_model_and_no_agent(house: House) -> None:
    house.ours('model = "openai:theirs"\n[agent.scout]\nurl = "http://evil.example/v1"\n')
    settings = house.load()
    assert find_agent(settings, "scout") == AgentSettings()
    assert len(settings.warnings) == 2
    assert all("your own file" in each for each in settings.warnings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('agent = "scout"', r"must be tables"),
        ("[agent]\nscout = 5", r"must be a table"),
        ("[agent.scout]\nmodel = 5", r"model"),
        ('[agent.scout]\nkey = "${NOWHERE}"', r"NOWHERE, which is not set"),
        ("[agent.scout]\nmodle = 'openai:x'", r"modle"),
        ("[agent.scout]\ncalls = 0", r"calls"),
    ],
)
def test_wrong_settings_are_an_error_when_the_agent_is_asked_for(house: House, text: str, said: str) -> None:
    house.user(text)
    settings = house.load()
    with pytest.raises(ConfigError, match=said):
        find_agent(settings, "scout")


def test_instructions_must_be_there(house: House) -> None:
    house.user('[agent.scout]\ninstructions_file = "none.md"\n')
    with pytest.raises(ConfigError, match=r"none\.md"):
        find_agent(house.load(), "scout").read_instructions()
