"""Rules for the files and commands of a workspace: allow, ask or deny. Deny wins over ask, ask over allow.

Rules for paths are globs below the root. Rules for commands are words: `git status` covers every command that
begins so, and each word may be a glob. They keep a mistake from happening; they are no sandbox, since
a command that is allowed may start any other.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from dgent.errors import Denied, InputError
from dgent.runtime.code.ignore import fits, matches
from dgent.runtime.tool.errors import ConsentRequest, make_consent_error
from dgent.runtime.tool.tool import Call

Action: TypeAlias = Literal["read", "write", "run"]
Verdict: TypeAlias = Literal["allow", "ask", "deny"]
SHELL = "shell"  # the rule for commands that a shell runs, whatever they are


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule: for `read` and `write` the pattern is a glob, for `run` the first words of a command."""

    verdict: Verdict
    action: Action
    pattern: str


USUAL = (
    Rule("deny", "write", "**/.git/**"),
    Rule("deny", "write", ".git"),
    *(Rule("ask", "read", name) for name in (".env", ".env.*", "*.pem", "*.key", "id_rsa*", "id_ed25519*")),
    *(Rule("ask", "read", name) for name in (".netrc", ".npmrc", ".pypirc", "credentials*")),
)
"""Rules that hold unless a policy is made without them: a hook of git would run as the user."""


class Policy(msgspec.Struct, frozen=True):
    """Rules, and what holds where none fits: reading is allowed, changing and running asks."""

    rules: tuple[Rule, ...] = USUAL
    read: Verdict = "allow"
    write: Verdict = "ask"
    run: Verdict = "ask"

    def judge_path(self, action: Literal["read", "write"], name: str) -> Verdict:
        """Return the verdict on reading or writing a file."""
        found = [
            rule.verdict
            for rule in self.rules
            if rule.action == action and _fits_path(rule.pattern, name, broadly=rule.verdict != "allow")
        ]
        return _strictest(found, self.read if action == "read" else self.write)

    def judge_command(self, words: Sequence[str], shell: bool) -> Verdict:
        """Return the verdict on a command; of one for a shell, only a rule for `shell` allows it."""
        found = []
        for rule in self.rules:
            if rule.action != "run":
                continue
            broadly = rule.verdict != "allow"
            if shell and rule.pattern == SHELL:
                found.append(rule.verdict)
            elif shell and broadly:
                # Any part of the line may be a command of its own.
                if any(_fits_command(rule.pattern, words[at:], True) for at in range(len(words))):
                    found.append(rule.verdict)
            elif not shell and _fits_command(rule.pattern, words, broadly):
                found.append(rule.verdict)
        return _strictest(found, self.run)

    def require_path(self, tool: str, action: Literal["read", "write"], name: str, call: Call) -> None:
        """Raise Denied where a rule forbids this, and ConsentNeeded where the partner must agree first."""
        self._require(self.judge_path(action, name), tool, action, name, call)

    def require_command(self, tool: str, words: Sequence[str], shell: bool, text: str, call: Call) -> None:
        """Raise Denied where a rule forbids a command, and ConsentNeeded where the partner must agree."""
        self._require(self.judge_command(words, shell), tool, "run", text, call)

    def _require(self, verdict: Verdict, tool: str, action: Action, target: str, call: Call) -> None:
        if verdict == "deny":
            raise Denied(f"a rule forbids {tool} to {action} {target!r}", hint="do it another way, or ask")
        scope = f"{action}:{target}"
        if verdict == "ask" and not call.consents & {scope, f"{action}:*"}:
            raise make_consent_error(ConsentRequest(tool, action, target, scope))


def parse_rule(text: str) -> Rule:
    """Return the rule in a line such as `deny write secrets/**` or `allow run git status`."""
    verdict, _, rest = text.strip().partition(" ")
    action, _, pattern = rest.strip().partition(" ")
    try:
        made = msgspec.convert({"verdict": verdict, "action": action, "pattern": pattern.strip()}, Rule)
    except msgspec.ValidationError:
        made = Rule("deny", "run", "")
    if not made.pattern:
        raise InputError(
            f"{text!r} is not a valid rule", hint="as: allow|ask|deny read|write|run PATTERN", field="rules"
        )
    return made


def _strictest(found: Sequence[Verdict], otherwise: Verdict) -> Verdict:
    for verdict in ("deny", "ask", "allow"):
        if verdict in found:
            return verdict
    return otherwise


def _fits_path(pattern: str, name: str, broadly: bool) -> bool:
    """Check a path; broadly, what a system without case would take for the same file fits too."""
    if not broadly:
        return matches(pattern, name)
    pattern, name = (unicodedata.normalize("NFKC", each).casefold() for each in (pattern, name))
    # A rule for a folder holds for what is in it.
    return matches(pattern, name) or matches(
        f"{pattern.rstrip('/')}/**" if "/" in pattern else f"**/{pattern}/**", name
    )


def _fits_command(pattern: str, words: Sequence[str], broadly: bool) -> bool:
    wanted = pattern.split()
    if len(words) < len(wanted) or not words:
        return False
    first = words[0].replace("\\", "/").rpartition("/")[2] if broadly and "/" not in wanted[0] else words[0]
    return all(fits((each,), (word,)) for each, word in zip(wanted, [first, *words[1:]], strict=False))
