"""Rules of tools: each refuses what it says, and no sequence of allowed calls breaks one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgent.errors import InputError
from dgent.runtime.tool.rule import Called, Rules, describe, fits, fits_any, read_call, read_rules

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TOOLS = ("a", "b", "c", "d")


def refusal(rules: Any, call: str, *before: str, ok: bool = True, **more: Any) -> str:
    """Return why a call is refused after others; empty when it is allowed."""
    calls = [read_call(each)._replace(ok=ok) for each in before]
    found = read_rules(rules).check(read_call(call), calls, NOW, **more)
    return "" if found is None else f"{found.text}; {found.hint}"


def test_each_rule_refuses_and_says_what_to_do() -> None:
    start = [{"rule": "start", "tools": ["a", "b"]}]
    assert refusal(start, "c") == "c cannot be the first call of a turn; call a or b first"
    assert refusal(start, "b") == refusal(start, "c", "a") == ""
    after = [{"rule": "requires_preceding", "tool": "b", "after": ["a", "c"]}]
    assert refusal(after, "b", "c") == "b needs a to succeed before it; call a first"
    assert refusal(after, "b", "c", "a") == refusal(after, "d") == ""
    assert "needs a, c" in refusal(after, "b", "c", "a", ok=False)
    groups = [{"rule": "exclusive", "groups": [["a", "b"], ["c"]]}]
    assert refusal(groups, "c", "d", "b").startswith(
        "c cannot be used in a turn that used b; stay with a or b"
    )
    assert refusal(groups, "b", "a", "d") == refusal(groups, "d", "a", "b") == ""
    most = [{"rule": "max_calls", "tool": "a", "count": 2}]
    assert "may be 2 times" in refusal(most, "a", "a", "b", "a")
    assert refusal(most, "a", "a", "b") == ""
    allowed = [{"rule": "allowed_operations", "tool": "block", "operations": ["get", "list"]}]
    assert refusal(allowed, "block.delete") == "block.delete is not allowed; block has get or list"
    assert refusal(allowed, "block.get") == refusal(allowed, "work.delete") == ""
    wait = [{"rule": "cooldown", "tool": "a", "seconds": 30}]
    assert refusal(wait, "a", earlier={"a": NOW - timedelta(seconds=10)}).endswith("30 s ago; wait 20 s")
    assert refusal(wait, "a", earlier={"a": NOW - timedelta(seconds=30)}) == ""
    assert refusal(wait, "a", earlier={"a": NOW + timedelta(days=9)}).endswith(
        "wait 30 s"
    )  # a clock set back
    assert "30 s ago" in refusal(wait, "a.read", "a.write")


def test_a_turn_ends_when_its_rules_are_met() -> None:
    rules = read_rules(
        [
            {"rule": "exit_loop", "tools": ["send"]},
            {"rule": "required_before_exit", "tools": ["save"], "if_used": ["edit"]},
            {"rule": "requires_following", "tool": "lock", "by": ["unlock", "steal"]},
        ]
    )
    assert rules.check_exit([]) is None and rules.is_exit(Called("send"))
    found = rules.check_exit([Called("edit")])
    assert found is not None and found.hint == "call save"
    assert rules.check(Called("send"), [Called("edit")], NOW) == found
    assert rules.check(Called("send"), [Called("edit"), Called("save")], NOW) is None
    locked = [Called("lock"), Called("unlock"), Called("lock")]
    found = rules.check_exit(locked)
    assert found is not None and found.hint == "call unlock or steal"
    assert rules.check_exit([*locked, Called("unlock", ok=False)]) == found
    assert rules.check_exit([*locked, Called("steal")]) is None
    assert found.error().details["rule"]["rule"] == "requires_following"


def test_consent_operations_and_due_tools() -> None:
    rules = read_rules(
        [
            {"rule": "consent", "tools": ["run", "block.delete"], "scope": "workspace"},
            {"rule": "allowed_operations", "tool": "block", "operations": ["get", "delete"]},
            {"rule": "periodic", "tool": "tidy", "seconds": 60},
        ]
    )
    consent = rules.find_consent(Called("block", "delete"))
    assert consent is not None and consent.scope == "workspace"
    assert rules.find_consent(Called("block", "get")) is None
    field = {"type": "string", "enum": ["create", "get", "delete"]}
    schemas: list[Any] = [
        {"name": "block", "parameters": {"properties": {"operation": field}}},
        {"name": "run"},
    ]
    shown = rules.narrow(schemas)
    assert shown[0]["parameters"]["properties"]["operation"]["enum"] == ["get", "delete"]
    assert shown[1] is schemas[1] and field["enum"] == ["create", "get", "delete"]
    assert rules.find_unknown(schemas) == ["tidy"]
    assert rules.find_due({}, NOW) == rules.find_due({"tidy": NOW - timedelta(seconds=60)}, NOW) == ["tidy"]
    assert rules.find_due({"tidy": NOW}, NOW) == []
    assert rules.render().count("\n- ") == len(rules) - 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('[{"rule": "start"}]', "missing required field `tools`"),
        ('[{"rule": "start", "tools": []}]', "length >= 1"),
        ('[{"rule": "never", "tools": ["a"]}]', "never"),
        ('[{"rule": "max_calls", "tool": "a", "count": -1}]', "count"),
        ('[{"rule": "max_calls", "tool": "a", "count": 1, "limit": 2}]', "limit"),
        ('[{"rule": "cooldown", "tool": "a", "seconds": 0}]', "seconds"),
        ("[", "truncated"),
        ([3], "int"),
        (
            [
                {"rule": "requires_preceding", "tool": "a", "after": ["b"]},
                {"rule": "requires_preceding", "tool": "b", "after": ["a"]},
            ],
            "only after itself",
        ),
    ],
)
def test_wrong_rules_are_refused(given: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_rules(given)


names = st.sampled_from(TOOLS)
some = st.lists(names, min_size=1, max_size=3, unique=True)
rule = st.one_of(
    st.fixed_dictionaries({"rule": st.just("start"), "tools": some}),
    st.fixed_dictionaries(
        {"rule": st.just("requires_preceding"), "tool": st.just("d"), "after": st.just(["a"])}
    ),
    st.fixed_dictionaries({"rule": st.just("requires_following"), "tool": names, "by": some}),
    st.fixed_dictionaries({"rule": st.just("exclusive"), "groups": st.lists(some, min_size=2, max_size=3)}),
    st.fixed_dictionaries({"rule": st.just("max_calls"), "tool": names, "count": st.integers(0, 3)}),
    st.fixed_dictionaries({"rule": st.just("cooldown"), "tool": names, "seconds": st.integers(1, 5)}),
    st.fixed_dictionaries({"rule": st.just("exit_loop"), "tools": some}),
    st.fixed_dictionaries({"rule": st.just("required_before_exit"), "tools": some}),
    st.fixed_dictionaries({"rule": st.just("consent"), "tools": some}),
)


def breaks(given: dict[str, Any], calls: list[Called]) -> bool:
    """Check a whole sequence against one rule, in another way than the code does."""
    kind, names_ = given["rule"], [call.tool for call in calls]
    if kind == "start":
        return bool(names_) and names_[0] not in given["tools"]
    if kind == "requires_preceding":
        first = {call.tool: place for place, call in reversed(list(enumerate(calls))) if call.ok}
        places = [place for place, name in enumerate(names_) if name == given["tool"]]
        return any(first.get(each, 99) > places[0] for each in given["after"]) if places else False
    if kind == "exclusive":
        used = [{n for n, group in enumerate(given["groups"]) if name in group} for name in names_]
        used = [each for each in used if each]
        return any(not one & other for one in used for other in used)
    if kind == "max_calls":
        return bool(names_.count(given["tool"]) > given["count"])
    if kind == "cooldown":
        times = [call.at for call in calls if call.tool == given["tool"] and call.at]
        return any((b - a).total_seconds() < given["seconds"] for a, b in pairwise(times))
    return False


@settings(max_examples=150, deadline=None)
@given(
    st.lists(rule, max_size=5),
    st.lists(st.tuples(names, st.booleans(), st.integers(0, 3)), max_size=12),
)
def test_no_sequence_of_allowed_calls_breaks_a_rule(
    rules: list[dict[str, Any]], wanted: list[tuple[str, bool, int]]
) -> None:
    made = read_rules(rules)
    assert read_rules(made.write()).rules == made.rules == read_rules(json.dumps(rules)).rules
    calls: list[Called] = []
    now = NOW
    for name, ok, passed in wanted:
        now += timedelta(seconds=passed)
        call = Called(name, "", now, ok)
        found = made.check(call, calls, now)
        tried = [*calls, call]
        broken = [each for each in rules if breaks(each, tried)]
        if found is None:
            calls = tried
            assert not broken
        elif not made.is_exit(call):
            assert broken  # nothing is refused that breaks no rule
            assert found.hint and found.text
    assert not [each for each in rules if breaks(each, calls)]


@given(names, names)
def test_names_mean_tools_and_their_operations(tool: str, operation: str) -> None:
    call = Called(tool, operation)
    assert fits(tool, call) and fits(call.name, call) and fits("*", call)
    assert not fits(f"{tool}.x", call) and not fits_any((), call)


def test_every_rule_is_described_but_one() -> None:
    lines = Rules(read_rules([{"rule": "continue_loop", "tools": ["a"]}]).rules)
    assert lines.render() == "" and describe(lines.rules[0]) == ""
