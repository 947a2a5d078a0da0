"""The laws of the storage polynomial, for any run of inputs that it takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.errors import InputError
from dgent.model.polynomial import (
    STORAGE_POLYNOMIAL,
    VALID_OPS,
    Phase,
    StorageOp,
    StorageState,
)

ENDS = {
    StorageOp.READ: StorageOp.READ_DONE,
    StorageOp.WRITE: StorageOp.WRITE_DONE,
    StorageOp.MIGRATE: StorageOp.MIGRATE_DONE,
}


@st.composite
def runs(draw: st.DrawFn) -> list[StorageOp]:
    """Inputs, each of which the state before it takes."""
    state, ops = StorageState.IDLE, []
    for _ in range(draw(st.integers(0, 20))):
        taken = sorted(STORAGE_POLYNOMIAL.directions(state), key=str)
        op = draw(st.sampled_from(taken))
        state, _ = STORAGE_POLYNOMIAL.invoke(state, op)
        ops.append(op)
    return ops


def test_the_seed_s_transitions() -> None:
    """Idle leads to each of the others, and the end of each leads back."""
    for op, position in (
        (StorageOp.READ, StorageState.READING),
        (StorageOp.WRITE, StorageState.WRITING),
        (StorageOp.MIGRATE, StorageState.MIGRATING),
    ):
        assert STORAGE_POLYNOMIAL.invoke(StorageState.IDLE, op)[0] == position
        assert STORAGE_POLYNOMIAL.invoke(position, ENDS[op])[0] == StorageState.IDLE
    failed, result = STORAGE_POLYNOMIAL.invoke(StorageState.IDLE, StorageOp.ERROR)
    assert failed == StorageState.RECOVERING
    assert (result.before, result.after) == (Phase.IDLE, Phase.RECOVERING)
    assert STORAGE_POLYNOMIAL.invoke(failed, StorageOp.RECOVERED)[0] == StorageState.IDLE
    assert {position.phase for position in STORAGE_POLYNOMIAL.positions} == set(Phase) == set(VALID_OPS)


@given(runs())
def test_a_state_counts_what_runs(ops: list[StorageOp]) -> None:
    """Reads and writes are what began less what ended; only a migration runs alone, and nothing below 0."""
    state, results = STORAGE_POLYNOMIAL.run(StorageState.IDLE, ops)
    assert state.reads == ops.count(StorageOp.READ) - ops.count(StorageOp.READ_DONE) >= 0
    assert state.writes == ops.count(StorageOp.WRITE) - ops.count(StorageOp.WRITE_DONE) >= 0
    assert not (state.migrating and (state.reads or state.writes))
    phases = [Phase.IDLE, *(result.after for result in results)]
    assert [result.before for result in results] == phases[:-1]
    assert phases[-1] is state.phase
    assert [result.op for result in results] == ops


@given(runs())
def test_every_state_finds_its_way_back_to_idle(ops: list[StorageOp]) -> None:
    """Ending what runs, and then a recovery, always leads to idle: there is no dead end."""
    state, _ = STORAGE_POLYNOMIAL.run(StorageState.IDLE, ops)
    for _ in range(state.reads + state.writes + 2):
        ends = STORAGE_POLYNOMIAL.directions(state) & {*ENDS.values(), StorageOp.RECOVERED}
        if ends:
            state, _ = STORAGE_POLYNOMIAL.invoke(state, sorted(ends, key=str)[0])
    assert state == StorageState.IDLE


@given(runs(), st.sampled_from(StorageOp))
def test_an_input_is_taken_or_refused(ops: list[StorageOp], op: StorageOp) -> None:
    """Migrating and recovering begin nothing else; what is refused is an error that lists what is taken."""
    state, _ = STORAGE_POLYNOMIAL.run(StorageState.IDLE, ops)
    taken = STORAGE_POLYNOMIAL.directions(state)
    assert taken <= VALID_OPS[state.phase]
    if state.phase in (Phase.MIGRATING, Phase.RECOVERING):
        assert not taken & set(ENDS)
    if op in taken:
        after, _ = STORAGE_POLYNOMIAL.invoke(state, op)
        assert after != state or (op is StorageOp.ERROR and state.recovering)
        return
    with pytest.raises(InputError, match=r"does not take"):
        STORAGE_POLYNOMIAL.invoke(state, op)


@given(runs(), runs())
def test_a_run_in_two_parts_is_the_same_run(first: list[StorageOp], second: list[StorageOp]) -> None:
    """Running is associative: the state is all that a run leaves behind."""
    state, outputs = STORAGE_POLYNOMIAL.run(StorageState.IDLE, first)
    whole = [*first]
    for op in second:
        if op in STORAGE_POLYNOMIAL.directions(state):
            state, output = STORAGE_POLYNOMIAL.invoke(state, op)
            outputs.append(output)
            whole.append(op)
    assert STORAGE_POLYNOMIAL.run(StorageState.IDLE, whole) == (state, outputs)


@given(st.permutations([StorageOp.READ, StorageOp.WRITE, StorageOp.READ, StorageOp.WRITE]))
def test_reads_and_writes_run_at_once_in_any_order(ops: list[StorageOp]) -> None:
    """Which of them began first does not matter."""
    state, _ = STORAGE_POLYNOMIAL.run(StorageState.IDLE, ops)
    assert state == StorageState(reads=2, writes=2)
