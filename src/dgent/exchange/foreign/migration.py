"""Counts and problems of an import from another framework's store, and the write that is checked.

Each thing that is read ends as written, already there, or left out with its place and the reason. So the
counts prove that nothing was lost on the way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dgent.errors import Corrupt, InputError, NotFound
from dgent.exchange import folders
from dgent.exchange.foreign.legacy.source import MAX_TEXT_BYTES, open_file
from dgent.exchange.foreign.report import NAMED, Problem
from dgent.store.backend import Op, Put
from dgent.store.upkeep import forgotten_among
from dgent.system.threads import in_thread
from dgent.universe.universe import Universe


class KindCount(msgspec.Struct):
    """The counts of one kind of things: `read` is the sum of the others."""

    kind: str
    read: int = 0
    written: int = 0
    already_there: int = 0
    left_out: int = 0


class Migration(msgspec.Struct, frozen=True):
    """The result of an import from another framework, or of its dry run.

    `problems` lists the first of `odd` problems: by its table or part, its row, and the reason. A dry run
    counts as written what would be.
    """

    source: str
    read: int
    written: int
    already_there: int
    left_out: int
    kinds: list[KindCount]
    odd: int
    problems: list[Problem]
    dry_run: bool


class MigrationTally:
    """The counts of an import in progress."""

    def __init__(self) -> None:
        self.kinds: dict[str, KindCount] = {}
        self.odd = 0
        self.problems: list[Problem] = []

    def count(self, kind: str, verdict: str, number: int = 1) -> None:
        """Count things as written, already_there or left_out."""
        found = self.kinds.setdefault(kind, KindCount(kind))
        found.read += number
        setattr(found, verdict, getattr(found, verdict) + number)

    def leave(self, kind: str, place: str, row: int, reason: str, number: int = 1) -> None:
        """Count things as left out, and say why."""
        self.count(kind, "left_out", number)
        self.report(place, row, f"left out: {reason}")

    def report(self, place: str, row: int, message: str) -> None:
        """Report a problem at a row of a table, or an item of a list."""
        self.odd += 1
        if len(self.problems) < NAMED:
            self.problems.append(Problem(place, row, message))

    def done(self, source: str, dry_run: bool) -> Migration:
        """Return the result of the import."""
        kinds = list(self.kinds.values())
        fields = ("read", "written", "already_there", "left_out")
        sums = {field: sum(getattr(each, field) for each in kinds) for field in fields}
        return Migration(source, **sums, kinds=kinds, odd=self.odd, problems=self.problems, dry_run=dry_run)


async def commit_checked(universe: Universe, ops: Sequence[Op], note: str) -> None:
    """Commit ops, read the records back, and raise Corrupt for one that is not as it was written.

    One that somebody else has changed meanwhile is not compared.
    """
    if not ops:
        return
    done = await universe.commit(list(ops), note=note)
    wanted = {op.datum.id: op.datum for op in ops if isinstance(op, Put)}
    stored = await universe.get_many(list(wanted), raw=True)
    for datum, found in zip(wanted.values(), stored, strict=True):
        if found is not None and found.seq != done.seq:
            continue
        if found is None or found.content != datum.content or not is_same_data(found.data, datum.data):
            raise Corrupt(f"{datum.id!r} was not stored as it was written")


def is_same_data(first: Any, second: Any) -> bool:
    """Return whether two values are the same as JSON."""
    return bool(first == second) or msgspec.json.encode(first) == msgspec.json.encode(second)


async def find_forgotten(universe: Universe, ids: Sequence[str]) -> frozenset[str]:
    """Return the ids among some that were erased for good, and must not come back."""
    return await forgotten_among(universe.backend, ids) if ids else frozenset()


FORGOTTEN = "it was erased here for good"
DIFFERENT = "another version of it is here, which stays"


async def read_json_file(path: Path) -> Any:
    """Return the JSON of a plain file of at most 256 MB."""
    folders.check_path(path, "source")
    if not path.is_file():
        raise NotFound(f"there is no file {path}", path=str(path))

    def read(_stopped: object) -> Any:
        with open_file(path.resolve()) as file:
            raw = file.read(MAX_TEXT_BYTES + 1)
        if len(raw) > MAX_TEXT_BYTES:
            raise InputError(f"{path} has more than {MAX_TEXT_BYTES} bytes", field="source")
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is not JSON: {error!s:.120}", field="source") from None

    with folders.translate_errors(path):
        return await in_thread(read)
