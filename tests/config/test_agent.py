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


SERVERS = """
[agent.scout.mcp.files]
command = "mcp-files 'my notes' ~/there"
folder = "work"
env = { FILES_KEY = "${SECRET}" }
trust = "friend"

[agent.scout.mcp.tracker]
url = "https://ann:${SECRET}@tracker.example/mcp"
headers = { Authorization = "Bearer ${SECRET}" }
timeout_s = 5

[agent.scout.language_servers]
python = "pylsp -v"
rust = []
"""


def test_servers_have_tables_in_that_of_their_agent(house: House) -> None:
    house.user(SERVERS)
    settings = house.load(SECRET="hush-hush")
    assert settings.warnings == ()
    scout = find_agent(settings, "scout")
    files, tracker = scout.mcp
    assert files.command[:2] == ("mcp-files", "my notes")
    assert files.command[2].endswith("/there") and "~" not in files.command[2]
    assert files.folder == str(house.user_file.parent / "work")
    assert (files.name, files.env, files.trust) == ("files", {"FILES_KEY": "hush-hush"}, "friend")
    assert tracker.url == "https://ann:hush-hush@tracker.example/mcp"
    assert tracker.headers == {"Authorization": "Bearer hush-hush"}
    assert (tracker.timeout_s, tracker.trust) == (5, "untrusted")
    assert scout.language_servers == {"python": ("pylsp", "-v"), "rust": ()}
    assert "hush-hush" not in repr(scout)


def test_a_project_has_no_servers(house: House) -> None:
    house.ours('[agent.scout.mcp.evil]\ncommand = "evil"\n')
    settings = house.load()
    assert find_agent(settings, "scout").mcp == ()
    assert "your own file" in settings.warnings[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mcp = 5", "must be tables"),
        ("[agent.scout.mcp]\nfiles = 5", "must be tables"),
        ("[agent.scout.mcp.files]", "'files' needs a command or a url"),
        ("[agent.scout.mcp.files]\ncommand='x'\nurl='http://x'", "needs a command or a url"),
        ("[agent.scout.mcp.files]\nurl='ftp://ann:hush-hush@x'", "is not an address of HTTP"),
        ("[agent.scout.mcp.'my files']\ncommand='x'", "'my files' is not a valid name"),
        ("[agent.scout.mcp.files]\ncommand='${NOWHERE}'", "'files', which needs the variable NOWHERE"),
        ('[agent.scout.mcp.files]\ncommand="mcp hush-hush \'"', "cannot be split"),
        ("[agent.scout.mcp.files]\ncommand=[1]", "Expected `str`"),
        ("[agent.scout.mcp.files]\ncommand='x'\nenv={A=1}", "Expected `str`"),
        ("[agent.scout.mcp.files]\ncommand='x'\ncommnd='y'", "commnd"),
        ("[agent.scout.mcp.files]\ncommand='x'\ntrust='all'", "trust"),
        ("[agent.scout.mcp.files]\ncommand='x'\ntimeout_s=0", "timeout_s"),
        ("language_servers = 5", "language_servers"),
        ("language_servers = {python = 5}", "language_servers"),
    ],
)
def test_wrong_servers_are_an_error_without_their_values(house: House, text: str, said: str) -> None:
    house.user(f"[agent.scout]\n{text}")
    with pytest.raises(ConfigError, match=said) as caught:
        find_agent(house.load(), "scout")
    assert "hush-hush" not in str(caught.value)
