"""Import the files of the Agents SDK's own sessions: `SQLiteSession` and `AdvancedSQLiteSession`.

A session is one commit, so it is imported whole or not at all. One that is here already stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dgent.bridges.openai_agents import records
from dgent.bridges.openai_agents.item import USAGE_COUNTS, USAGE_FIELDS
from dgent.bridges.openai_agents.records import MAIN, Branch, Entry, Talk
from dgent.errors import InputError, VersionConflict
from dgent.exchange.foreign.database import open_database, parse_moment, read_batches
from dgent.exchange.foreign.migration import (
    DIFFERENT,
    FORGOTTEN,
    Migration,
    MigrationTally,
    commit_checked,
    find_forgotten,
)
from dgent.store.backend import Op, Put
from dgent.store.sqlite.foreign import ForeignDatabase, ForeignRow
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread
from dgent.universe.universe import Universe

NOTE = "import from OpenAI Agents"
STRUCTURE, USAGE = "message_structure", "turn_usage"
COLUMNS = {"id", "session_id", "message_data"}


class Step(NamedTuple):
    """A message in a branch, and the number of its turn where the file has one."""

    message: int
    turn: int | None


class Source(NamedTuple):
    """A session of a file."""

    session: str
    rows: dict[int, ForeignRow]
    entries: dict[int, Entry]
    branches: dict[str, list[Step]]
    created: dict[str, str]
    used: list[str]
    generation: int
    usage: list[ForeignRow]


async def import_sessions(
    universe: Universe, path: Path, *, dry_run: bool = False, progress: Progress | None = None
) -> Migration:
    """Import the sessions of a file, which stays as it is, with their branches and usage."""
    universe.register(records.SESSION, records.ITEM, records.USAGE)
    run = _Import(universe, dry_run)
    async with open_database(path) as database:
        tables = [name for name, columns in database.tables.items() if columns_fit(columns)]
        if not tables:
            raise InputError(f"{path} has no table of the Agents SDK's sessions", field="source")
        pace = ProgressReporter(progress, sum(map(database.count, tables)))
        for table in tables:
            structured = STRUCTURE in database.tables and (len(tables) == 1 or table == "agent_messages")
            waiting: list[ForeignRow] = []
            async for rows in read_batches(database, table, ("session_id", "id"), run.tally, pace):
                for row in rows:
                    if waiting and waiting[-1].values["session_id"] != row.values["session_id"]:
                        await run.take(database, waiting, structured)
                        waiting = []
                    waiting.append(row)
            await run.take(database, waiting, structured)
        pace.end()
    return run.tally.done(str(path), dry_run)


def columns_fit(columns: Iterable[str]) -> bool:
    """Return whether a table with these columns has the messages of sessions."""
    return set(columns) >= COLUMNS


class _Import:
    def __init__(self, universe: Universe, dry_run: bool) -> None:
        self._universe, self._dry_run = universe, dry_run
        self.tally = MigrationTally()

    async def take(self, database: ForeignDatabase, rows: list[ForeignRow], structured: bool) -> None:
        """Import the session that rows belong to."""
        if not rows:
            return
        session = rows[0].values["session_id"]
        if not isinstance(session, str):
            for row in rows:
                self._leave(row, "its session_id is not a text")
            return
        source = await in_thread(lambda _: self._read(database, session, rows, structured))
        talk, ops = self._make(source)
        verdict = await self._find_verdict(source, [records.session_record_id(session)])
        if verdict is None:
            verdict = "written"
            try:
                if not self._dry_run and ops:
                    await commit_checked(self._universe, [self._make_session(talk), *ops], NOTE)
            except VersionConflict:  # another program was faster
                verdict = await self._find_verdict(source, []) or DIFFERENT
            except InputError as error:
                verdict = error.message
        for number in source.entries:
            row = source.rows[number]
            if verdict in ("written", "already_there"):
                self.tally.count("items", verdict)
            else:
                self._leave(row, verdict)
        for row in source.usage:
            if verdict in ("written", "already_there"):
                self.tally.count("usage", verdict)
            else:
                self.tally.leave("usage", row.table, row.number, verdict)

    def _leave(self, row: ForeignRow, reason: str) -> None:
        session = row.values.get("session_id")
        self.tally.leave("items", row.table, row.number, f"{reason} (session {session!r:.60})")

    async def _find_verdict(self, source: Source, ids: list[str]) -> str | None:
        """Return what is to be said of a session that is or was here; None for a new one."""
        if await find_forgotten(self._universe, ids):
            return FORGOTTEN
        talk, rev = await records.read_talk(self._universe, source.session)
        if rev == 0:
            return None
        for name, steps in source.branches.items():
            wanted = [source.entries[step.message].raw for step in steps]
            chain = await records.read_chain(self._universe, talk.find(name))
            if [each.content for each in chain[: len(wanted)]] != wanted:
                return DIFFERENT
        return "already_there"

    # -- reading ------------------------------------------------------------------------------

    def _read(
        self, database: ForeignDatabase, session: str, rows: list[ForeignRow], structured: bool
    ) -> Source:
        found: dict[int, ForeignRow] = {}
        entries: dict[int, Entry] = {}
        for row in rows:
            try:
                (entry,) = records.encode([json.loads(row.values["message_data"])])
            except (ValueError, TypeError, RecursionError) as error:
                self._leave(row, f"its message_data is not JSON: {error!s:.100}")
                continue
            entries[row.values["id"]], found[row.values["id"]] = entry, row
        where = {"session_id": session}
        order = ("sequence_number", "id")
        structure = [*database.read(STRUCTURE, order, where)] if structured else []
        branches, created = _read_branches(structure, entries)
        if not structure and entries:
            branches = {MAIN: [Step(number, None) for number in sorted(entries)]}
            created = {MAIN: str(rows[0].values.get("created_at") or "")}
        shown = {step.message for steps in branches.values() for step in steps}
        for number in [number for number in entries if number not in shown]:
            self._leave(found[number], "it is in no branch")
            del entries[number]
        used = [row.values["branch_id"] for row in _select(database, "branch_reservations", where)]
        cleared = [*_select(database, "session_clear_generations", where)]
        generation = cleared[0].values.get("generation") if cleared else 0
        usage = [*self._read_usage(database, where)] if structured else []
        names = [name for name in used if isinstance(name, str)]
        times = generation if type(generation) is int else 0
        return Source(session, found, entries, branches, created, names, times, usage)

    def _read_usage(self, database: ForeignDatabase, where: Mapping[str, str]) -> Iterator[ForeignRow]:
        for row in _select(database, USAGE, where):
            numbers = [row.values.get(name) for name in ("user_turn_number", *USAGE_COUNTS)]
            if not isinstance(row.values.get("branch_id"), str) or any(type(n) is not int for n in numbers):
                self.tally.leave("usage", row.table, row.number, "it is damaged")
                continue
            yield row

    # -- making -------------------------------------------------------------------------------

    def _make(self, source: Source) -> tuple[Talk, list[Op]]:
        """Return the session and the ops of its items; branches share what they have in common."""
        talk, ops = Talk(source.session, source.generation), []
        for name in source.used:
            talk.reserve(name)
        known: dict[tuple[str | None, Step], Branch] = {}
        for name, steps in source.branches.items():
            branch = Branch(name, created_at=source.created[name])
            for step in steps:
                at = branch.head
                earlier = known.get((at, step))
                if earlier is None:
                    ops.append(self._append(source, talk, branch, step))
                    known[at, step] = Branch(name, branch.head, branch.length, branch.turn)
                else:
                    branch.head, branch.length, branch.turn = earlier.head, earlier.length, earlier.turn
            talk.keep(branch)
        for row in source.usage:
            values = row.values
            counts: dict[str, Any] = {key: values[key] for key in USAGE_COUNTS}
            for key in USAGE_FIELDS[len(USAGE_COUNTS) :]:
                counts[key] = _read_details(values.get(key))
            turn = Branch(values["branch_id"], turn=values["user_turn_number"])
            ops.append(records.put_usage(self._universe, source.session, talk, turn, counts))
        return talk, ops

    def _append(self, source: Source, talk: Talk, branch: Branch, step: Step) -> Op:
        # `append` also keeps the branch as it is by then; `_make` does so again when it is whole.
        entry = source.entries[step.message]
        (op,) = records.append(self._universe, source.session, talk, branch, [entry])
        assert isinstance(op, Put)
        datum = op.datum
        if step.turn is not None:
            branch.turn = step.turn
            datum = datum.replace(data={**datum.data, "turn": step.turn})
        created = parse_moment(source.rows[step.message].values.get("created_at"))
        return Put(datum if created is None else datum.replace(created_at=created), 0)

    def _make_session(self, talk: Talk) -> Op:
        return Put(records.make_session(self._universe, talk), 0)


def _read_branches(
    structure: Iterable[ForeignRow], entries: Mapping[int, Entry]
) -> tuple[dict[str, list[Step]], dict[str, str]]:
    """Return the branches of a session, the oldest first, and when they began."""
    branches: dict[str, list[Step]] = {}
    created: dict[str, str] = {}
    for row in structure:
        name, turn, at = (row.values.get(key) for key in ("branch_id", "branch_turn_number", "created_at"))
        if not isinstance(name, str) or row.values.get("message_id") not in entries:
            continue
        number = turn if type(turn) is int else None
        branches.setdefault(name, []).append(Step(row.values["message_id"], number))
        created[name] = min(created.get(name, str(at)), str(at))
    return {name: branches[name] for name in sorted(branches, key=lambda name: created[name])}, created


def _select(database: ForeignDatabase, table: str, where: Mapping[str, str]) -> Iterator[ForeignRow]:
    if table in database.tables:
        yield from database.read(table, (), where)


def _read_details(given: Any) -> Any:
    try:
        return None if given is None else json.loads(given)
    except (ValueError, TypeError, RecursionError):
        return None
