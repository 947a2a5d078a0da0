"""Rules of tools, as data: which call may come now, when a batch may end, and what the model is told of it.

A rule names tools as `block` or, for one operation of a tool, as `block.delete`; `*` is every tool. Rules are
JSON objects whose `rule` says which one it is, as in `{"rule": "max_calls", "tool": "web", "count": 3}`.
Checking is pure: it looks at the calls of the batch so far, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from dgent.errors import Denied, InputError

Names: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
_OPERATION = "operation"  # the parameter of a tool that names one of its operations


class Called(NamedTuple):
    """A call of a tool: its name, the operation where it has several, when it ended, whether it succeeded."""

    tool: str
    operation: str = ""
    at: datetime | None = None
    ok: bool = True

    @property
    def name(self) -> str:
        """The tool, with its operation."""
        return f"{self.tool}.{self.operation}" if self.operation else self.tool


def read_call(name: str) -> Called:
    """Return the call that a name as `block` or `block.delete` means."""
    tool, _, operation = name.partition(".")
    return Called(tool, operation)


def fits(name: str, call: Called) -> bool:
    """Check whether a name in a rule means a call."""
    return name in ("*", call.tool, call.name)


def fits_any(names: Iterable[str], call: Called) -> bool:
    """Check whether one of some names means a call."""
    return any(fits(name, call) for name in names)


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="rule"):
    """One rule."""


class Start(_Rule, frozen=True, tag="start"):
    """The first call of a batch is one of these tools."""

    tools: Names


class RequiresPreceding(_Rule, frozen=True, tag="requires_preceding"):
    """A tool is called only after each of the others has succeeded in the batch."""

    tool: str
    after: Names


class RequiresFollowing(_Rule, frozen=True, tag="requires_following"):
    """After a tool, one of the others succeeds before the batch ends."""

    tool: str
    by: Names


class Exclusive(_Rule, frozen=True, tag="exclusive"):
    """Of some groups of tools, a batch uses only one group."""

    groups: Annotated[tuple[Names, ...], msgspec.Meta(min_length=2)]


class MaxCalls(_Rule, frozen=True, tag="max_calls"):
    """A tool is called at most so often in a batch."""

    tool: str
    count: Annotated[int, msgspec.Meta(ge=0)]


class Cooldown(_Rule, frozen=True, tag="cooldown"):
    """Between two calls of a tool, in one batch or in several, are so many seconds."""

    tool: str
    seconds: Seconds


class ExitLoop(_Rule, frozen=True, tag="exit_loop"):
    """A successful call of one of these tools ends the batch."""

    tools: Names


class ContinueLoop(_Rule, frozen=True, tag="continue_loop"):
    """After one of these tools the model goes on, which it does anyway: for rules of other programs."""

    tools: Names


class RequiredBeforeExit(_Rule, frozen=True, tag="required_before_exit"):
    """Each of these tools succeeds before the batch ends; with `if_used`, where one of those was called."""

    tools: Names
    if_used: tuple[str, ...] = ()


class RequiresConsent(_Rule, frozen=True, tag="consent"):
    """A call of one of these tools needs the partner's consent; `scope` is what one consent may cover."""

    tools: Names
    scope: str = ""


class AllowedOperations(_Rule, frozen=True, tag="allowed_operations"):
    """Of a tool, only these operations can be called, and the model is shown no others."""

    tool: str
    operations: Names


class Periodic(_Rule, frozen=True, tag="periodic"):
    """A tool is due again so many seconds after its last call."""

    tool: str
    seconds: Seconds


Rule: TypeAlias = (
    Start
    | RequiresPreceding
    | RequiresFollowing
    | Exclusive
    | MaxCalls
    | Cooldown
    | ExitLoop
    | ContinueLoop
    | RequiredBeforeExit
    | RequiresConsent
    | AllowedOperations
    | Periodic
)


_ORDERING = (Start, RequiresPreceding, RequiresFollowing, ExitLoop, RequiresConsent)


class Refusal(NamedTuple):
    """A rule that does not allow a call, or the end of a batch: why, and what to do instead."""

    rule: Rule
    text: str
    hint: str

    def error(self) -> Denied:
        """Return it as an error that names the rule."""
        return Denied(self.text, hint=self.hint, rule=msgspec.to_builtins(self.rule))


def read_rules(given: str | bytes | Sequence[Any]) -> Rules:
    """Read rules from JSON, or from a list of rules and maps; raises InputError naming what is wrong."""
    try:
        if isinstance(given, str | bytes):
            found = msgspec.json.decode(given, type=tuple[Rule, ...])
        else:
            found = msgspec.convert([msgspec.to_builtins(each) for each in given], tuple[Rule, ...])
    except (msgspec.ValidationError, msgspec.DecodeError, TypeError) as error:
        raise InputError(f"the tool rules cannot be read: {error}", field="rules") from None
    return Rules(found)


class Rules:
    """The rules of an agent's tools: `read_rules(…)`, then `check` before each call."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = tuple(rules)
        _refuse_circles(self.rules)

    def __iter__(self) -> Any:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def _of(self, kind: type[Any]) -> list[Any]:
        return [rule for rule in self.rules if type(rule) is kind]

    @property
    def looks_back(self) -> bool:
        """Whether a rule asks when tools were called before the batch."""
        return bool(self._of(Cooldown))

    def write(self) -> bytes:
        """Return the rules as JSON."""
        return msgspec.json.encode(self.rules)

    # -- before a call ------------------------------------------------------------------------

    def check(
        self,
        call: Called,
        calls: Sequence[Called],
        now: datetime,
        earlier: Mapping[str, datetime] | None = None,
    ) -> Refusal | None:
        """Return the first rule that refuses a call; None when it may run.

        `calls` are those of the batch so far, in order, with those still running. `earlier` has when each
        tool, or tool and operation, was last called before the batch.
        """
        for rule in self.rules:
            if (found := _check(rule, call, calls, now, earlier or {})) is not None:
                return found
        if self.is_exit(call):
            return self.check_exit([*calls, call])
        return None

    def find_consent(self, call: Called) -> RequiresConsent | None:
        """Return the rule by which a call needs consent; None when it needs none."""
        found = [rule for rule in self._of(RequiresConsent) if fits_any(rule.tools, call)]
        return found[0] if found else None

    def is_ordered(self, call: Called) -> bool:
        """Check whether a call waits for those before it, and those after it for its end."""
        return any(isinstance(rule, _ORDERING) and fits_any(_names_of(rule), call) for rule in self.rules)

    # -- the end of a batch -------------------------------------------------------------------

    def is_exit(self, call: Called) -> bool:
        """Check whether the batch ends after a successful call."""
        return any(fits_any(rule.tools, call) for rule in self._of(ExitLoop))

    def check_exit(self, calls: Sequence[Called]) -> Refusal | None:
        """Return the first rule by which a batch may not end after these calls; None when it may."""
        for rule in self.rules:
            missing: list[str] = []
            if isinstance(rule, RequiredBeforeExit):
                used = not rule.if_used or any(fits_any(rule.if_used, each) for each in calls)
                missing = [name for name in rule.tools if used and not _has(name, calls)]
            elif isinstance(rule, RequiresFollowing):
                places = [place for place, each in enumerate(calls) if each.ok and fits(rule.tool, each)]
                if places and not any(_has(name, calls[places[-1] + 1 :]) for name in rule.by):
                    missing = [" or ".join(rule.by)]
            if missing:
                named = ", ".join(missing)
                return Refusal(rule, f"the turn cannot end before {named} was called", f"call {named}")
        return None

    def find_due(self, last: Mapping[str, datetime], now: datetime) -> list[str]:
        """Return the tools that are due, given when each was last called; one never called is due."""
        return [
            rule.tool
            for rule in self._of(Periodic)
            if rule.tool not in last or last[rule.tool] + timedelta(seconds=rule.seconds) <= now
        ]

    # -- what the model sees ------------------------------------------------------------------

    def narrow(self, schemas: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the schemas of tools with only those operations that are allowed."""
        return [self._narrow(schema) for schema in schemas]

    def _narrow(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        rules = [rule for rule in self._of(AllowedOperations) if rule.tool in ("*", schema["name"])]
        parameters = schema.get("parameters") or {}
        properties = parameters.get("properties") or {}
        field = properties.get(_OPERATION)
        if not rules or not field or "enum" not in field:
            return schema
        kept = [each for each in field["enum"] if all(each in rule.operations for rule in rules)]
        properties = {**properties, _OPERATION: {**field, "enum": kept}}
        return {**schema, "parameters": {**parameters, "properties": properties}}

    def render(self) -> str:
        """Return the rules as a list for the model; empty without rules that it has to know."""
        return "\n".join(f"- {line}" for line in map(describe, self.rules) if line)

    def find_unknown(self, schemas: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the tools and operations that rules name and no schema has."""
        known = {"*"}
        for schema in schemas:
            name = str(schema["name"])
            field = ((schema.get("parameters") or {}).get("properties") or {}).get(_OPERATION) or {}
            known |= {name, *(f"{name}.{operation}" for operation in field.get("enum", ()))}
        named = dict.fromkeys(name for rule in self.rules for name in _names_of(rule))
        return [name for name in named if name not in known]


def _has(name: str, calls: Iterable[Called]) -> bool:
    return any(each.ok and fits(name, each) for each in calls)


def _check(
    rule: Rule, call: Called, calls: Sequence[Called], now: datetime, earlier: Mapping[str, datetime]
) -> Refusal | None:
    name = call.name
    match rule:
        case Start() if not calls and not fits_any(rule.tools, call):
            said = _join(rule.tools)
            return Refusal(rule, f"{name} cannot be the first call of a turn", f"call {said} first")
        case RequiresPreceding() if fits(rule.tool, call):
            missing = [each for each in rule.after if not _has(each, calls)]
            if missing:
                said = ", ".join(missing)
                return Refusal(rule, f"{name} needs {said} to succeed before it", f"call {said} first")
        case Exclusive():
            return _check_groups(rule, call, calls)
        case MaxCalls() if fits(rule.tool, call):
            count = sum(fits(rule.tool, each) for each in calls)
            if count >= rule.count:
                said = f"{rule.tool} was called {count} times in this turn, and may be {rule.count} times"
                return Refusal(rule, said, "go on with what you have, or end the turn")
        case Cooldown() if fits(rule.tool, call):
            return _check_cooldown(rule, call, calls, now, earlier)
        case AllowedOperations() if rule.tool in ("*", call.tool) and call.operation:
            if call.operation not in rule.operations:
                return Refusal(rule, f"{name} is not allowed", f"{rule.tool} has {_join(rule.operations)}")
        case _:
            pass
    return None


def _check_groups(rule: Exclusive, call: Called, calls: Sequence[Called]) -> Refusal | None:
    mine = [group for group in rule.groups if fits_any(group, call)]
    if not mine:
        return None
    for each in calls:
        theirs = [group for group in rule.groups if fits_any(group, each)]
        if theirs and not any(group in theirs for group in mine):
            said = f"{call.name} cannot be used in a turn that used {each.name}"
            return Refusal(rule, said, f"stay with {_join(theirs[0])}, or use {call.name} in the next turn")
    return None


def _check_cooldown(
    rule: Cooldown, call: Called, calls: Sequence[Called], now: datetime, earlier: Mapping[str, datetime]
) -> Refusal | None:
    times = [each.at or now for each in calls if fits(rule.tool, each)]
    times += [at for name, at in earlier.items() if fits(rule.tool, read_call(name))]
    if not times:
        return None
    left = (max(times) + timedelta(seconds=rule.seconds) - now).total_seconds()
    if left <= 0:
        return None
    # A clock that was set back must not lock a tool for longer than its rule says.
    left = min(left, rule.seconds)
    return Refusal(rule, f"{call.name} was called less than {rule.seconds:g} s ago", f"wait {left:.0f} s")


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def describe(rule: Rule) -> str:
    """Return a rule as a sentence for the model; empty for one that it need not know."""
    match rule:
        case Start():
            return f"Begin each turn with {_join(rule.tools)}."
        case RequiresPreceding():
            return f"Call {', '.join(rule.after)} before {rule.tool}."
        case RequiresFollowing():
            return f"After {rule.tool}, call {_join(rule.by)} before you end the turn."
        case Exclusive():
            groups = "; ".join(", ".join(group) for group in rule.groups)
            return f"Use only one of these groups in a turn: {groups}."
        case MaxCalls():
            return f"Call {rule.tool} at most {rule.count} times in a turn."
        case Cooldown():
            return f"Wait {rule.seconds:g} s between two calls of {rule.tool}."
        case ExitLoop():
            return f"A successful call of {_join(rule.tools)} ends your turn."
        case RequiredBeforeExit():
            used = f" if you used {_join(rule.if_used)}" if rule.if_used else ""
            return f"Call {', '.join(rule.tools)} before you end the turn{used}."
        case RequiresConsent():
            return f"Your partner is asked before {_join(rule.tools)} runs, and may refuse."
        case AllowedOperations():
            return f"Of {rule.tool}, use only {_join(rule.operations)}."
        case Periodic():
            return f"Call {rule.tool} every {rule.seconds:g} s, when you are told that it is due."
        case _:
            return ""


def _names_of(rule: Rule) -> tuple[str, ...]:
    match rule:
        case Start() | ExitLoop() | ContinueLoop() | RequiresConsent():
            return rule.tools
        case RequiresPreceding():
            return (rule.tool, *rule.after)
        case RequiresFollowing():
            return (rule.tool, *rule.by)
        case Exclusive():
            return tuple(name for group in rule.groups for name in group)
        case RequiredBeforeExit():
            return (*rule.tools, *rule.if_used)
        case AllowedOperations() if rule.tool != "*":
            return (rule.tool, *(f"{rule.tool}.{each}" for each in rule.operations))
        case _:
            return (rule.tool,)


def _refuse_circles(rules: Sequence[Rule]) -> None:
    """Raise InputError where tools wait for each other to be called first, so that none ever can be."""
    after: dict[str, set[str]] = {}
    for rule in rules:
        if isinstance(rule, RequiresPreceding):
            after.setdefault(rule.tool, set()).update(rule.after)
    for start in after:
        seen, waiting = set[str](), [*after[start]]
        while waiting:
            name = waiting.pop()
            if name == start:
                raise InputError(
                    f"the tool rules let {start} be called only after itself",
                    hint="take one of its requires_preceding rules away",
                    field="rules",
                )
            if name not in seen:
                seen.add(name)
                waiting += after.get(name, ())
