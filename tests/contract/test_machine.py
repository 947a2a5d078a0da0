"""Each engine against the model, step by step: whatever was done before, every answer is the same."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dgent.errors import DgentError
from dgent.model.query import Query
from dgent.store.backend import Commit, Declaration, Keep, Put, View
from dgent.store.tally import Tally
from dgent.testing.contract import STORED, Steps
from tests.contract import program
from tests.contract.columns import COLUMNS, Column
from tests.contract.model import Model
from tests.scratch import find_memory
from tests.soak import examples


class Machine(RuleBasedStateMachine):
    """Runs every step on a store and on the model."""

    column: Column

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.clock = self.stack.enter_context(program.slow_clock())
        self.runner = self.stack.enter_context(asyncio.Runner())
        self.folder = Path(tempfile.mkdtemp(dir=find_memory()))
        self.stack.callback(shutil.rmtree, self.folder)
        self.model = Model()
        self.store = self.column.make(self.folder)
        self.runner.run(self.store.open())

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.stack.close()

    def same(self, name: str, *args: Any) -> None:
        """One step on both."""
        self.clock.tick += 1
        wanted = self.runner.run(program.answer(self.model, name, args))
        given = self.runner.run(program.answer(self.store, name, args))
        assert given == wanted

    def seq(self, number: int | None) -> int | None:
        """A seq that there is, or will be next."""
        return None if number is None else number % (self.model.seq + 2)

    # -- steps ----------------------------------------------------------------------------

    @rule(commit=program.commits)
    def commit(self, commit: Commit) -> None:
        ids = [op.id for op in commit.ops]
        if len(ids) == len(set(ids)):
            self.same("commit", commit, STORED)

    @rule(ops=st.lists(program.puts, min_size=4, max_size=5, unique_by=lambda op: op.id))
    def put_many(self, ops: list[Put]) -> None:
        self.same("commit", Commit([Put(op.datum) for op in ops]), STORED)

    @precondition(lambda self: self.model.lives)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Bring an old version back as a new one, as undo does."""
        life = self.model.lives[data.draw(st.sampled_from(sorted(self.model.lives)))]
        old = data.draw(st.sampled_from(life.versions)).datum
        expect = 0 if life.now.datum is None else life.now.rev
        if old is not None:
            self.same("commit", Commit([Put(old, expect)], kind="undo", of_seq=old.seq), STORED)

    @rule(ids=st.lists(st.sampled_from(program.IDS), max_size=2), only_deleted=st.booleans())
    def forget(self, ids: list[str], only_deleted: bool) -> None:
        self.same("forget", ids, "tester", None, only_deleted)

    @rule(keep=program.keeps)
    def compact(self, keep: Keep) -> None:
        self.same("compact", keep)

    @rule(declaration=program.declarations)
    def declare(self, declaration: Declaration) -> None:
        self.runner.run(self.store.declare(declaration))
        self.runner.run(self.model.declare(declaration))

    @rule(version=st.integers(1, 3))
    def fill(self, version: int) -> None:
        """One batch; which records are indexed already must never show."""
        self.runner.run(self.store.fill("note", Steps(version)))

    @rule(path=st.sampled_from(program.INDEXES))
    def drop_index(self, path: str) -> None:
        try:
            self.runner.run(self.store.drop_index("note", path))
        except DgentError as error:
            assert error.code == "not_found"

    @precondition(lambda self: self.column.setting.persistent)
    @rule()
    def reopen(self) -> None:
        self.runner.run(self.store.close())
        self.store = self.column.make(self.folder)
        self.runner.run(self.store.open())

    # -- questions ------------------------------------------------------------------------

    @rule(query=program.queries, view=program.views, as_of=program.past)
    def query(self, query: Query, view: View, as_of: int | None) -> None:
        self.same("query", query, view, self.seq(as_of))
        self.same("count", query, view, self.seq(as_of))

    @rule(tally=program.tallies, view=program.views, as_of=program.past)
    def tally(self, tally: Tally, view: View, as_of: int | None) -> None:
        self.same("tally", tally, view, self.seq(as_of))

    @rule(id=st.sampled_from(program.IDS), as_of=program.past)
    def get(self, id: str, as_of: int | None) -> None:
        self.same("get", id, self.seq(as_of))
        self.same("history", id, None)

    @rule(since=program.seqs, limit=st.sampled_from([1, 2, 100]))
    def changes(self, since: int, limit: int) -> None:
        self.same("changes", self.seq(since), limit)

    @invariant()
    def everything_is_there(self) -> None:
        self.same("query", Query(limit=None), STORED, None)
        self.same("last_seq")


@pytest.mark.timeout(900)  # a failure is told only after hypothesis has looked for a smaller one
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_an_engine_answers_as_the_model_does(column: Column) -> None:
    machine = type(f"Machine_{column.name}", (Machine,), {"column": column})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(8), stateful_step_count=30))
