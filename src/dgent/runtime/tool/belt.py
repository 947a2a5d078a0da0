"""The tools of an agent together: find the one that is meant, check whether it may run, and run it.

Before a call the tool rules are checked, then its trust, then consent. A call that takes more trust than its
batch has left can still be allowed by the partner who asked for the work, and runs at that trust then.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from dgent import clock
from dgent.errors import Conflict, Denied, DgentError, InputError
from dgent.messages.part import Part
from dgent.runtime.errors import ConsentDenied
from dgent.runtime.tool import consent as consents
from dgent.runtime.tool.consent import Consent, Consents, Grant
from dgent.runtime.tool.function import function_tool
from dgent.runtime.tool.own import OwnTools
from dgent.runtime.tool.rule import Called, Rules
from dgent.runtime.tool.tool import (
    Answer,
    Call,
    CallInfo,
    Tool,
    Toolset,
    ToolSource,
    call_tool,
    describe_call,
    fail,
    find_consent,
    refuse,
    report,
)
from dgent.runtime.trust import is_at_least

OPERATION = "operation"  # the argument that names one of several operations of a tool
NOBODY = "nobody"  # who denies a request where there is no door to ask at


class Decision(NamedTuple):
    """The answer of a partner to a request: deny, once, duration or scope, and for how long."""

    answer: consents.Answer
    for_s: float | None = None
    by: str = ""


Decided: TypeAlias = Decision | consents.Answer
AskPartner: TypeAlias = Callable[[Consent], Awaitable[Decided] | Decided]
"""Asks the partner at a door; what it returns is stored, unless another door was faster."""

GivenTool: TypeAlias = ToolSource | Tool | Callable[..., Any]


class ToolCall(NamedTuple):
    """One call, with what decides whether it may run: the trust of its batch, and of who asked for it."""

    part: Part
    key: str
    trust: str
    caller: str = "partner"
    origin: str = ""
    info: CallInfo = CallInfo()

    @property
    def called(self) -> Called:
        """The call as rules see it."""
        given = self.part.arguments
        operation = given.get(OPERATION) if isinstance(given, Mapping) else None
        return Called(self.part.name, operation if isinstance(operation, str) else "", clock.now())


class ToolBelt:
    """All tools of an agent."""

    def __init__(
        self,
        agent: str,
        own: OwnTools | None,
        given: Sequence[GivenTool],
        rules: Rules,
        consent: Consents,
        ask: AskPartner | None,
        wait_s: float | None,
    ) -> None:
        self.agent, self.rules, self.ask = agent, rules, ask
        self._own, self._consents = own, consent
        self._wait_s = wait_s
        self._local = Toolset()
        self._sources: list[ToolSource] = [] if own is None else [own]
        self._sources.append(self._local)
        self._homes: dict[str, ToolSource] = {}  # of tools, by name, as they were last listed
        for each in given:
            self.add(each)
        self.schemas()

    def add(self, tool: GivenTool) -> None:
        """Add a source, a tool or a function; InputError if a name is taken."""
        if isinstance(tool, Tool):
            found = tool
        elif hasattr(tool, "schemas") and hasattr(tool, "call"):
            self.schemas()
            for schema in tool.schemas():
                self._refuse_twice(schema["name"])
            self._sources.append(tool)
            return
        elif callable(tool):
            found = function_tool(tool)
        else:
            raise InputError(f"a tool is a function, a Tool or a source of tools, not {type(tool).__name__}")
        self.schemas()
        self._refuse_twice(found.name)
        self._local.add(found)

    def _refuse_twice(self, name: str) -> None:
        if name in self._homes:
            raise InputError(f"there are two tools named {name!r}", hint="rename one", field="tools")

    def remove(self, source: ToolSource) -> None:
        """Take a source away that was added; one that is not there is left out."""
        if source in self._sources:
            self._sources.remove(source)

    def schemas(self) -> list[Mapping[str, Any]]:
        """Return what the model is told of each tool."""
        listed = [(source, schema) for source in self._sources for schema in source.schemas()]
        self._homes = {schema["name"]: source for source, schema in reversed(listed)}
        return self.rules.narrow(schema for _, schema in listed)

    def find(self, name: str) -> ToolSource | None:
        """Return the source of a tool that was listed; None where there is none."""
        return self._homes.get(name)

    def describe(self, part: Part) -> CallInfo:
        """Return what is known of a call before it is made; one of an unknown tool does nothing."""
        source = self.find(part.name)
        if source is None:
            return CallInfo("read", "other", True, None, "untrusted", True)
        return describe_call(source, part.name, part.arguments)

    # -- before a call ------------------------------------------------------------------------

    async def check(
        self, call: ToolCall, calls: Iterable[Called], earlier: Mapping[str, datetime]
    ) -> tuple[str, frozenset[str]]:
        """Return the trust that a call runs at, and the scopes that were agreed to; raises Denied."""
        refusal = self.rules.check(call.called, list(calls), clock.now(), earlier)
        if refusal is not None:
            raise refusal.error()
        trust, least = call.trust, call.info.least
        if not is_at_least(trust, least):
            if not is_at_least(call.caller, least):
                raise Denied(
                    f"{call.part.name} takes {least} trust, and this was asked for by {call.caller}",
                    hint="do without it, and say so",
                )
            await self.require(call, scope="", reason=f"the turn has read what is {trust}")
            trust = call.caller
        rule = self.rules.find_consent(call.called)
        if rule is not None:
            await self.require(call, scope=rule.scope)
            return trust, frozenset((rule.scope,) if rule.scope else ())
        return trust, frozenset()

    async def require(
        self, call: ToolCall, *, scope: str, reason: str = "", again: bool = False
    ) -> Consent | Grant:
        """Return the partner's consent to a call; raises ConsentDenied or ConsentExpired.

        `again` is for a call whose outcome is unknown: only an answer to this very call counts then.
        """
        made = call.called
        key = f"{call.key}/{'again' if again else scope or 'call'}"
        about: dict[str, Any] = {"operation": made.operation, "scope": scope, "trust": call.trust}
        if not again:
            grant = await self._consents.find_grant(self.agent, made.tool, **about)
            if grant is not None:
                return grant
        wait_s = self._wait_s if self._wait_s is not None else consents.WAIT_S if self.ask else 0.0
        asked = await self._consents.ask(
            self.agent,
            made.tool,
            key=key,
            reason=reason,
            details=call.part.arguments,
            wait_s=wait_s or 1.0,
            **about,
        )
        if asked.state == "open" and self.ask is None and not wait_s:
            with suppress(DgentError):  # answered at another door meanwhile
                await self._consents.answer(asked.id, "deny", by=NOBODY)
            raise ConsentDenied(
                f"{made.name} needs the partner's consent, and nobody can be asked here",
                hint="do without it; the partner can allow it at a door, as in `dgent chat`",
                id=asked.id,
            )
        return await self._wait(asked)

    async def _wait(self, asked: Consent) -> Consent:
        """Ask at this door and wait for any: the first answer counts."""
        if asked.state != "open" or self.ask is None:
            return await self._consents.wait(asked.id)
        door = asyncio.ensure_future(self._ask_here(asked, self.ask))
        store = asyncio.ensure_future(self._consents.wait(asked.id))
        try:
            await asyncio.wait((door, store), return_when=asyncio.FIRST_COMPLETED)
            if door.done() and (error := door.exception()) is not None:
                raise error
            return await store
        finally:
            for each in (door, store):
                each.cancel()
            await asyncio.gather(door, store, return_exceptions=True)

    async def _ask_here(self, asked: Consent, ask: AskPartner) -> None:
        # A plain function runs on a thread, where it may wait for a person.
        found: Any = ask(asked) if inspect.iscoroutinefunction(ask) else await asyncio.to_thread(ask, asked)
        given: Decided = await found if inspect.isawaitable(found) else found
        decision = given if isinstance(given, Decision) else Decision(given)
        with suppress(Conflict):  # another door was faster, and its answer counts
            await self._consents.answer(
                asked.id, decision.answer, by=decision.by or "partner", for_s=decision.for_s
            )

    # -- the call -----------------------------------------------------------------------------

    async def run(
        self, call: ToolCall, trust: str, agreed: frozenset[str], asking: asyncio.Lock
    ) -> tuple[Answer, str | None]:
        """Make a call, which may ask for consent itself, under a lock; a failure is an answer too.

        Returns the answer, and the trust of what it came from; None where that is the agent's own.
        """
        source = self.find(call.part.name)
        if source is None:
            return await self._local.call(call.part.name, call.part.arguments), None
        given = Call(self.agent, call.key, trust, agreed)
        answer, read = await self._call(source, call, given)
        wanted = find_consent(answer)
        if wanted is None:
            return answer, read
        reason = wanted.reason or f"to {wanted.action} {wanted.target}"
        try:
            async with asking:
                await self.require(call, scope=wanted.scope, reason=reason)
        except Denied as error:
            return refuse(error), None
        return await self._call(source, call, Call(self.agent, call.key, trust, agreed | {wanted.scope}))

    async def _call(self, source: ToolSource, call: ToolCall, given: Call) -> tuple[Answer, str | None]:
        name, arguments, read = call.part.name, call.part.arguments, call.info.trust
        try:
            if isinstance(source, OwnTools):
                found, read = await source.call_as(name, arguments, given.trust, call.key, call.origin)
            else:
                found = await call_tool(source, name, arguments, given)
            return report(found), read
        except DgentError as error:
            return refuse(error), read
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return fail(error), read  # of a task of the tool's own
        except Exception as error:  # a source is others' code: whatever it raises, the loop goes on
            return fail(error), read
