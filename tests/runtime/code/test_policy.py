"""Rules for paths and commands: deny wins, and what needs consent is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgent.errors import InputError
from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.policy import USUAL, Policy, Rule, parse_rule
from dgent.runtime.code.toolset import code_tools
from dgent.runtime.code.workspace import Workspace
from dgent.runtime.tool.tool import Call, find_consent

RULES = tuple(
    map(
        parse_rule,
        (
            "allow write src/**",
            "deny write src/vendor",
            "deny read secrets/**",
            "allow run git status",
            "allow run pytest",
            "deny run rm",
            "deny run git push",
        ),
    )
)
POLICY = Policy((*USUAL, *RULES))


@pytest.mark.parametrize(
    ("action", "name", "verdict"),
    [
        ("write", "src/a.py", "allow"),
        ("write", "src/vendor/x.py", "deny"),
        ("write", "SRC/Vendor/x.py", "deny"),
        ("write", "SRC/a.py", "ask"),
        ("write", ".git/hooks/pre-commit", "deny"),
        ("write", "sub/.GIT/config", "deny"),
        ("write", "src/.git/config", "deny"),
        ("write", "a.py", "ask"),
        ("read", "secrets/deep/x", "deny"),
        ("read", "sub/.env", "ask"),
        ("read", "sub/.env.local", "ask"),
        ("read", "a.py", "allow"),
    ],
)
def test_paths(action: str, name: str, verdict: str) -> None:
    assert POLICY.judge_path(action, name) == verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "shell", "verdict"),
    [
        ("git status -s", False, "allow"),
        ("git", False, "ask"),
        ("git push -f", False, "deny"),
        ("/usr/bin/git push", False, "deny"),
        ("/tmp/git status", False, "ask"),
        ("./pytest", False, "ask"),
        ("pytest -q", False, "allow"),
        ("rm x", False, "deny"),
        ("pytest -q", True, "ask"),
        ("true && rm x", True, "deny"),
        ("ls", True, "ask"),
    ],
)
def test_commands(command: str, shell: bool, verdict: str) -> None:
    assert POLICY.judge_command(command.split(), shell) == verdict
    allowed = Policy((*POLICY.rules, Rule("allow", "run", "shell")))
    if shell and verdict == "ask":
        assert allowed.judge_command(command.split(), shell) == "allow"


@pytest.mark.parametrize("text", ["", "deny", "deny write", "maybe read x", "allow eat x"])
def test_rules_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="not a valid rule"):
        parse_rule(text)


async def test_what_needs_consent_is_asked_for_and_then_done(root: Path) -> None:
    with Workspace(root) as workspace:
        tools = code_tools(CodeContext(workspace))
        arguments = {"path": "notes.txt", "old": "one", "new": "1"}
        request = find_consent(await tools.call("edit", arguments))
        assert request is not None
        assert (request.tool, request.action, request.target) == ("edit", "write", "notes.txt")
        assert (root / "notes.txt").read_text().startswith("one")
        other = Call(consents=frozenset(("write:other.txt", "run:*")))
        assert find_consent(await tools.call("edit", arguments, other)) == request
        assert (await tools.call("edit", arguments, Call(consents=frozenset((request.scope,)))))["ok"]
        denied = await tools.call(
            "write", {"path": ".git/x", "text": ""}, Call(consents=frozenset(("write:*",)))
        )
        assert denied["data"]["code"] == "denied"
        assert find_consent(denied) is None
        assert find_consent(await tools.call("run", {"command": "true"})) is not None
        (root / ".env").write_text("KEY=1")
        assert (await tools.call("grep", {"pattern": "KEY"}))["data"]["lines"] == []
        for name, arguments in (
            ("edit", {"path": ".env", "old": "1", "new": "2"}),
            ("write", {"path": ".env", "text": ""}),
        ):
            answer = await tools.call(name, arguments, Call(consents=frozenset(("write:*",))))
            asked = find_consent(answer)
            assert asked is not None
            assert asked.scope == "read:.env"
