"""A session of the Agents SDK that lasts, with branches: `pip install 'dgent[openai-agents]'`."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from dgent.errors import Unsupported

try:
    from agents import RunResult, TResponseInputItem
    from agents.memory.session import _await_mutation, _CompactionSnapshot
    from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit
except ImportError as error:
    raise Unsupported(
        f"sessions of the OpenAI Agents SDK need a package that is not installed: {error.name}",
        hint="pip install 'dgent[openai-agents]'",
    ) from None

from dgent.bridges.openai_agents import item as items_
from dgent.bridges.openai_agents import kept as kept_
from dgent.bridges.openai_agents import records
from dgent.bridges.openai_agents.records import MAIN, Branch, Talk, Work
from dgent.model.datum import Datum
from dgent.store.backend import Delete, Op
from dgent.sync.handle import Anywhere, anywhere, begin_anywhere
from dgent.universe.universe import Universe

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)


class DgentSession:
    """A conversation at a place: a URL, an open universe, or a handle of `dgent.sync.anywhere`.

    Does what the SDK's `AdvancedSQLiteSession` does. A change is one commit, and is done even if its caller
    is cancelled meanwhile. Each object has a current branch of its own, `main` at first.
    """

    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        place: str | Universe | Anywhere,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        session_id.encode()  # half a character is refused here, as the SDK's own sessions do
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self._place = anywhere(place)
        self._place.register(records.SESSION, records.ITEM, records.USAGE)
        self._closed = False
        self._changing = 0  # changes under way
        self._kept = kept_.UNKNOWN
        # The current branch, and how often the session had been cleared then; None before the first look.
        self._state: tuple[str, int | None] = (MAIN, None)

    # -- the protocol -------------------------------------------------------------------------

    async def get_items(
        self, limit: int | None = None, branch_id: str | None = None
    ) -> list[TResponseInputItem]:
        """Return the items of a branch, or the last of them, the first one first."""
        most = resolve_session_limit(limit, self.session_settings)
        chain = await self._read(self._chain, branch_id, None if most is None or most < 0 else most)
        return records.decode(chain)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items to the current branch, all or none."""
        self._check()
        if not items:
            return
        entries = records.encode(items)

        async def work(universe: Universe, talk: Talk, name: str) -> tuple[list[Op], None]:
            return records.append(universe, self.session_id, talk, talk.find(name), entries), None

        await self._change("add items", work)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item of the current branch and return it; None if there is none."""

        async def work(universe: Universe, talk: Talk, name: str) -> tuple[list[Op] | None, Any]:
            branch = talk.find(name)
            if branch.head is None:
                return None, None
            chain = await records.read_chain(universe, branch, 2, self._items_of(universe))
            if not chain:  # somebody deleted the record itself
                talk.keep(Branch(name))
                return [], None
            talk.keep(_cut(branch, chain[:-1], 1))
            ops = await records.drop(universe, talk, name, chain[-1:])
            turn = chain[-1].data["turn"]
            if len(chain) == 1 or chain[0].data["turn"] != turn:
                ops.append(Delete(records.usage_id(self.session_id, name, turn)))
            return ops, json.loads(chain[-1].content)

        popped: TResponseInputItem | None = await self._change("take back an item", work)
        return popped

    async def clear_session(self) -> None:
        """Delete all items, branches and usage; names of branches stay taken."""

        async def work(universe: Universe, talk: Talk, _name: str) -> tuple[list[Op], int]:
            talk.branches, talk.generation = [], talk.generation + 1
            gone = [
                each.id
                for schema in (records.ITEM, records.USAGE)
                for each in await records.list_records(universe, schema, talk)
            ]
            return [Delete(id) for id in gone], talk.generation

        self._state = MAIN, await self._change("clear a session", work)

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _CompactionSnapshot:
        """Return the newest items, and the function that replaces the last of them in one commit."""
        rows = await self._read(self._chain, None, limit)

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            expected, entries = [each.id for each in rows[start:]], records.encode(output)

            async def work(universe: Universe, talk: Talk, name: str) -> tuple[list[Op] | None, bool]:
                branch = talk.find(name)
                chain = await records.read_chain(universe, branch)
                kept = chain[: len(chain) - len(expected)]
                if not expected or [each.id for each in chain[len(kept) :]] != expected:
                    return None, False
                pruned = _count_expired(kept, prune_prefix)
                if pruned:  # items do not change, since other branches may have them: those kept are copied
                    left = [records.Entry(json.loads(each.content), each.content) for each in kept[pruned:]]
                    after = Branch(name, created_at=branch.created_at)
                    ops = records.append(universe, self.session_id, talk, after, [*left, *entries])
                    return [*await records.drop(universe, talk, name, chain), *ops], True
                after = _cut(branch, kept, len(expected))
                talk.keep(after)
                gone = await records.drop(universe, talk, name, chain[len(kept) :])
                return [*records.append(universe, self.session_id, talk, after, entries), *gone], True

            return await self._change("compact a session", work)

        complete = not rows or rows[0].parent_id is None
        return _CompactionSnapshot(records.decode(rows), complete, replace_suffix)

    # -- branches -----------------------------------------------------------------------------

    async def create_branch_from_turn(self, turn_number: int, branch_name: str | None = None) -> str:
        """Begin a branch with what was before a turn of the current one, and switch to it."""
        if branch_name is not None and not branch_name.strip():
            raise ValueError("Branch name cannot be empty")

        async def work(universe: Universe, talk: Talk, source: str) -> tuple[list[Op], tuple[str, int]]:
            branch = talk.find(source)
            chain = await records.read_chain(universe, branch)
            numbers = [each.data["turn"] if each.data["kind"] == "user" else None for each in chain]
            if turn_number not in numbers:
                raise ValueError(f"Turn {turn_number} does not contain a user message in branch '{source}'")
            name = _choose_name(talk, branch_name, turn_number)
            at = numbers.index(turn_number)
            made = _cut(branch, chain[:at], len(chain) - at)
            talk.reserve(name)
            talk.keep(Branch(name, made.head, at, made.turn))
            return [], (name, talk.generation)

        self._state = state = await self._change("begin a branch", work)
        return state[0]

    async def create_branch_from_content(self, search_term: str, branch_name: str | None = None) -> str:
        """Begin a branch at the first turn whose message contains a text."""
        found = await self.find_turns_by_content(search_term)
        if not found:
            raise ValueError(f"No user turns found containing '{search_term}'")
        return await self.create_branch_from_turn(found[0]["turn"], branch_name)

    async def switch_to_branch(self, branch_id: str) -> None:
        """Make a branch the current one; ValueError if it has no items."""

        async def read(universe: Universe) -> tuple[str, int]:
            talk, _ = await records.read_talk(universe, self.session_id)
            _require(talk, branch_id)
            return branch_id, talk.generation

        self._state = await self._read(read)

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """Delete a branch and what only it has; the current one only by `force`, which switches to main."""
        self._check()
        if not branch_id or not branch_id.strip():
            raise ValueError("Branch ID cannot be empty")
        if branch_id == MAIN:
            raise ValueError("Cannot delete the 'main' branch")
        is_current = branch_id == self._state[0]
        if is_current and not force:
            raise ValueError(
                f"Cannot delete current branch '{branch_id}'. Use force=True or switch branches first"
            )

        async def work(universe: Universe, talk: Talk, _name: str) -> tuple[list[Op], int]:
            branch = _require(talk, branch_id)
            if is_current:
                _require(talk, MAIN)
            chain = await records.read_chain(universe, branch)
            talk.keep(Branch(branch_id))
            usage = await records.list_records(universe, records.USAGE, talk)
            ops = await records.drop(universe, talk, branch_id, chain)
            return [*ops, *(Delete(u.id) for u in usage if u.data["branch"] == branch_id)], talk.generation

        generation = await self._change("delete a branch", work)
        if is_current:
            self._state = MAIN, generation

    async def list_branches(self) -> list[dict[str, Any]]:
        """Return the branches that have items, the oldest one first."""
        talk, current = await self._read(self._look)
        return [
            {
                "branch_id": each.branch,
                "message_count": each.length,
                "user_turns": each.turn,
                "is_current": each.branch == current,
                "created_at": each.created_at,
            }
            for each in talk.branches
        ]

    # -- turns and usage ----------------------------------------------------------------------

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """Return the messages of the user, each of which begins a turn."""
        return [*map(items_.describe_turn, items_.list_turns(await self._read(self._chain, branch_id)))]

    async def find_turns_by_content(
        self, search_term: str, branch_id: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the turns whose message contains a text."""
        turns = items_.list_turns(await self._read(self._chain, branch_id))
        return [items_.describe_turn(each, None) for each in items_.find_turns(turns, search_term)]

    async def get_conversation_by_turns(
        self, branch_id: str | None = None
    ) -> dict[int, list[dict[str, str | None]]]:
        """Return the kinds and tools of the items of each turn."""
        turns: dict[int, list[dict[str, str | None]]] = {}
        for each in await self._read(self._chain, branch_id):
            described = {"type": each.data["kind"], "tool_name": each.data["tool"]}
            turns.setdefault(each.data["turn"], []).append(described)
        return turns

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str | None, int, int]]:
        """Return how often each tool was used in each turn: (tool, uses, turn)."""
        return items_.count_tools(await self._read(self._chain, branch_id))

    async def store_run_usage(self, result: RunResult) -> None:
        """Store the usage of a run for the newest turn; what goes wrong is logged."""
        generation = self._state[1]
        usage = items_.describe_usage(result.context_wrapper.usage)

        async def work(universe: Universe, talk: Talk, name: str) -> tuple[list[Op] | None, None]:
            branch = talk.find(name)
            if branch.head is None or generation not in (None, talk.generation):
                return None, None
            return [records.put_usage(universe, self.session_id, talk, branch, usage)], None

        try:
            await self._change("store usage", work)
        except Exception:
            log.exception("the usage of session %r was not stored", self.session_id)

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """Return the usage of a branch, or of all; None if none was stored."""
        found = [each for each in await self._read(self._usage) if branch_id in (None, "", each["branch"])]
        if not found:
            return None
        total = {key: sum(each[key] for each in found) for key in items_.USAGE_COUNTS}
        return {**total, "total_turns": len(found)}

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """Return the usage of the turns of a branch, or of one turn, which is empty if none was stored."""
        name = (await self._read(self._look))[1] if branch_id is None else branch_id
        found = {each["turn"]: each for each in await self._read(self._usage) if each["branch"] == name}
        turns = {turn: {key: found[turn][key] for key in items_.USAGE_FIELDS} for turn in sorted(found)}
        if user_turn_number is not None:
            return turns.get(user_turn_number, {})
        return [{"user_turn_number": turn, **usage} for turn, usage in turns.items()]

    # -- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the place; every later call raises RuntimeError."""
        self._closed = True
        self._place.close()

    async def aclose(self) -> None:
        """Release the place like `close`, while the event loop goes on."""
        self._closed = True
        await self._place.aclose()

    # -- reading and changing -----------------------------------------------------------------

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("DgentSession is closed; make another one")

    def _resolve(self, talk: Talk, state: tuple[str, int | None]) -> str:
        """Return the branch that a call is about: after a clear by anybody, main."""
        if state[1] in (None, talk.generation):
            if self._state[1] is None:
                self._state = self._state[0], talk.generation
            return state[0]
        if self._state[1] != talk.generation:
            self._state = MAIN, talk.generation
        return self._state[0]

    async def _read(
        self, function: Callable[Concatenate[Universe, P], Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        self._check()
        return await self._place.arun(function, *args, **kwargs)

    async def _change(
        self, note: str, work: Callable[[Universe, Talk, str], Awaitable[tuple[list[Op] | None, R]]]
    ) -> R:
        """Change the session in one commit, whose outcome is known also to a caller that was cancelled."""
        self._check()
        state = self._state

        async def attempt(universe: Universe, talk: Talk) -> tuple[list[Op] | None, R]:
            return await work(universe, talk, self._resolve(talk, state))

        async def change() -> R:
            is_alone = not self._changing  # else others come first, also before the store is open
            self._changing += 1
            try:
                if is_alone and self._place.is_near:
                    done = await self._place.arun(self._try, note, attempt)
                    if done is not None:
                        return done[0]
                return await self._place.arun(records.change_talk, self.session_id, note, attempt)
            finally:
                self._changing -= 1

        return await _await_mutation(change())

    @begin_anywhere
    async def _try(self, universe: Universe, note: str, attempt: Work[R]) -> tuple[R] | None:
        self._kept = await kept_.look(universe, self.session_id, self._kept)
        done = await kept_.try_change(universe, self._kept, self.session_id, note, attempt)
        if done is None:
            return None
        result, self._kept = done
        return (result,)

    def _items_of(self, universe: Universe) -> Mapping[str, Datum]:
        """Return the items that are known to be as they were read."""
        kept = self._kept
        return kept.items if kept.is_current(universe) else records.NONE_KEPT

    @begin_anywhere
    async def _look(self, universe: Universe) -> tuple[Talk, str]:
        talk, _ = await records.read_talk(universe, self.session_id)
        return talk, self._resolve(talk, self._state)

    @begin_anywhere
    async def _chain(self, universe: Universe, name: str | None, limit: int | None = None) -> list[Datum]:
        """Return the items of a branch, all of one moment."""
        seen = None
        while True:
            kept = await kept_.look(universe, self.session_id, self._kept)
            talk = kept.make_talk(self.session_id)
            branch = talk.find(self._resolve(talk, self._state) if name is None else name)
            chain = await records.read_chain(universe, branch, limit, kept.items)
            expected = branch.length if limit is None else min(limit, branch.length)
            if len(chain) == expected or seen == kept.rev:  # else an item went between the two reads
                if kept.is_current(universe):
                    kept.add(chain)
                    self._kept = kept
                return chain
            seen = kept.rev

    @begin_anywhere
    async def _usage(self, universe: Universe) -> list[dict[str, Any]]:
        talk, _ = await records.read_talk(universe, self.session_id)
        return [each.data for each in await records.list_records(universe, records.USAGE, talk)]


def _cut(branch: Branch, before: list[Datum], count: int) -> Branch:
    """Return a branch without its last items; the items before them say where it ends."""
    if not before:
        return Branch(branch.branch, created_at=branch.created_at)
    last = before[-1]
    return Branch(branch.branch, last.id, branch.length - count, last.data["turn"], branch.created_at)


def _count_expired(items: list[Datum], is_expired: Callable[[TResponseInputItem], bool] | None) -> int:
    for number, each in enumerate(items):
        if is_expired is None or not is_expired(json.loads(each.content)):
            return number
    return len(items)


def _require(talk: Talk, name: str) -> Branch:
    branch = talk.find(name)
    if branch.head is None:
        raise ValueError(f"Branch '{name}' does not exist")
    return branch


def _choose_name(talk: Talk, wanted: str | None, turn: int) -> str:
    if wanted is not None:
        if wanted in talk.used:
            raise ValueError(f"Branch ID '{wanted}' has already been used. Choose a new branch ID.")
        return wanted
    base = name = f"branch_from_turn_{turn}_{int(time.time())}"
    number = 1
    while name in talk.used:
        number += 1
        name = f"{base}_{number}"
    return name
