"""Import the messages of an agent of Letta: from one message of the user to the next is a batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from dgent import clock
from dgent.errors import DgentError, InputError
from dgent.exchange.foreign.database import parse_moment
from dgent.exchange.foreign.migration import FORGOTTEN, MigrationTally, find_forgotten
from dgent.messages.batch import make_added, read_state
from dgent.messages.log import Log
from dgent.messages.message import Entry
from dgent.messages.part import Part
from dgent.messages.record import BATCH, ROLES, BatchRecord, place_of_batch
from dgent.store.backend import Op, Put
from dgent.universe.universe import Universe

TRUST = "partner"


class SourceMessage(NamedTuple):
    """A message of a file: its number there, its digest, and what it says."""

    number: int
    digest: str
    role: str
    parts: list[Part]
    at: datetime | None


class MessageImport:
    """The import of one agent's messages."""

    def __init__(self, universe: Universe, agent: str, tally: MigrationTally, dry_run: bool) -> None:
        self._log = Log(universe, agent)
        self._tally, self._dry_run = tally, dry_run
        self._order = -1

    async def take(self, messages: Sequence[Any]) -> None:
        """Import messages, a batch in a commit."""
        waiting: list[SourceMessage] = []
        for number, given in enumerate(messages, 1):
            try:
                found = self._read(number, given)
            except (InputError, ValueError, TypeError, RecursionError) as error:
                reason = error.message if isinstance(error, InputError) else str(error)[:120]
                self._tally.leave("messages", "messages", number, reason)
                continue
            if found.role == "user" and waiting:
                await self._put(waiting)
                waiting = []
            waiting.append(found)
        if waiting:
            await self._put(waiting)

    def _read(self, number: int, given: Any) -> SourceMessage:
        if not isinstance(given, dict):
            raise InputError("it is not a JSON object")
        role = {"function": "tool", "approval": "assistant"}.get(given.get("role", ""), given.get("role"))
        if role not in ROLES:
            raise InputError(f"{role!r:.40} is not a role that is known")
        parts = [*_read_content(given.get("content") or given.get("text")), *_read_calls(given)]
        call = given.get("tool_call_id")
        if role == "tool" and isinstance(call, str) and call:
            text = "\n".join(part.text for part in parts)
            parts = [Part("tool_result", text, call, str(given.get("name") or ""))]
        if not parts:
            raise InputError("it says nothing")
        raw = msgspec.json.encode([self._log.agent, given.get("created_at"), role, parts], order="sorted")
        digest = hashlib.sha256(raw).hexdigest()[:32]
        return SourceMessage(number, digest, role, parts, parse_moment(given.get("created_at")))

    async def _put(self, messages: Sequence[SourceMessage]) -> None:
        """Store messages as one complete batch, unless it is there."""
        first = messages[0]
        id = f"letta-{first.digest}"
        ms = 0 if first.at is None else max(clock.to_us(first.at) // 1000, 0)
        self._order = max(self._order + 1, ms)  # the order of the file, also within a millisecond
        try:
            if await find_forgotten(self._log.universe, [id]):
                raise InputError(FORGOTTEN)
            found = await self._log.universe.get(id, raw=True)
            if found is not None:
                known = min(int(found.data.get("count") or 0), len(messages))
                self._tally.count("messages", "already_there", known)
                for each in messages[known:]:
                    reason = "the conversation that it continues was imported without it"
                    self._tally.leave("messages", "messages", each.number, reason)
                return
            ops = self._plan(id, messages)
            if not self._dry_run:
                await self._log.commit(ops)
            self._tally.count("messages", "written", len(messages))
        except DgentError as error:
            for each in messages:
                self._tally.leave("messages", "messages", each.number, error.message)

    def _plan(self, id: str, messages: Sequence[SourceMessage]) -> list[Op]:
        place, state = place_of_batch(self._log.agent, self._order, id), read_state(())
        trust = self._log.stamp(TRUST)
        results = {part.call for each in messages for part in each.parts if part.type == "tool_result"}
        called: set[str] = set()
        ops: list[Op] = []
        for each in messages:
            parts = [_settle(part, results, called) for part in each.parts]
            entry = Entry(each.role, parts)
            op = make_added(self._log, id, place, entry, entry.check(), trust, state).op
            ops.append(op if each.at is None else Put(op.datum.replace(created_at=each.at), op.expect))
        at = [each.at for each in messages if each.at is not None]
        record = BatchRecord(
            self._log.agent,
            place,
            "user_request" if messages[0].role == "user" else "system_trigger",
            "complete",
            0,
            trust,
            origin="letta",
            count=state.count,
            tokens=state.tokens,
            ended_at=at[-1] if at else clock.now(),
        )
        return [self._log.put(BATCH, id, record, 0, at[0] if at else None), *ops]


def _read_content(content: Any) -> list[Part]:
    """Return the parts of a content, which is a text or a list; what has no text is told as JSON."""
    if isinstance(content, str):
        return [Part("text", content)] if content else []
    found: list[Part] = []
    for each in content if isinstance(content, list) else []:
        kind = each.get("type") if isinstance(each, dict) else None
        if kind == "text" and isinstance(each.get("text"), str):
            found.append(Part("text", each["text"]))
        elif kind == "reasoning" and isinstance(each.get("reasoning"), str):
            found.append(Part("thinking", each["reasoning"], signature=str(each.get("signature") or "")))
        elif kind == "tool_return" and isinstance(each.get("content"), str):
            found.append(Part("text", each["content"]))
        else:
            found.append(Part("text", json.dumps(each, ensure_ascii=False)[:100_000]))
    return found


def _read_calls(given: dict[str, Any]) -> list[Part]:
    found = []
    calls = given.get("tool_calls")
    for each in calls if isinstance(calls, list) else []:
        function = each["function"]
        arguments = function.get("arguments")
        try:
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        except ValueError:
            arguments = {"arguments": arguments}
        found.append(Part("tool_call", "", str(each["id"]), str(function["name"]), arguments))
    return found


def _settle(part: Part, results: set[str], called: set[str]) -> Part:
    """Return a part; a call without its result, or a result without its call, becomes a text."""
    if part.type == "tool_call":
        if part.call in results and part.call not in called:
            called.add(part.call)
            return part
        return Part("text", f"{part.name}({json.dumps(part.arguments, ensure_ascii=False)})")
    if part.type == "tool_result":
        if part.call in called:
            called.discard(part.call)
            return part
        return Part("text", part.text)
    return part
