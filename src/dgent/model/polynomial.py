"""Polynomial agents: a state machine whose inputs depend on its state; and the one of storage.

A position is a state, its directions are the inputs that it takes, and the transition gives the next state
and an output. Everything here is a value: `universe/machine.py` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, Generic, Protocol, TypeVar

from dgent.errors import InputError

S = TypeVar("S")
A = TypeVar("A")
B = TypeVar("B")
A_in = TypeVar("A_in", contravariant=True)
B_out = TypeVar("B_out", covariant=True)


class Stateful(Protocol[S, A_in, B_out]):
    """An agent with a state, as `dgent.flow.StatefulAgent` is one."""

    def transition(self, state: S, input: A_in, /) -> tuple[S, B_out]:
        """Return the next state and the output."""
        ...


@dataclass(frozen=True)
class PolyAgent(Generic[S, A, B]):
    """A state machine: its named positions, the inputs of each state, and the step from one to the next."""

    positions: frozenset[S]
    directions: Callable[[S], frozenset[A]]
    transition: Callable[[S, A], tuple[S, B]]

    @classmethod
    def from_stateful(
        cls, agent: Stateful[S, A, B], positions: Iterable[S], directions: Callable[[S], Iterable[A]]
    ) -> PolyAgent[S, A, B]:
        """Return the machine of an agent with a state: its named states, and the inputs that each takes.

        It runs the same logic on values, and stores nothing. States are values that can be compared and
        hashed, such as frozen dataclasses.
        """
        try:
            named = frozenset(positions)
        except TypeError as error:
            raise InputError(
                f"a position is a value that can be hashed: {error}",
                hint="use a frozen dataclass as the state",
                field="positions",
            ) from None
        return cls(named, lambda state: frozenset(directions(state)), agent.transition)

    def invoke(self, state: S, op: A) -> tuple[S, B]:
        """Return the next state and the output; an input that the state does not take is an InputError."""
        if op not in self.directions(state):
            taken = ", ".join(sorted(str(each) for each in self.directions(state)))
            raise InputError(f"{state} does not take {op}", hint=f"it takes {taken}")
        return self.transition(state, op)

    def run(self, state: S, ops: Iterable[A]) -> tuple[S, list[B]]:
        """Return the state after several inputs, and the output of each."""
        outputs: list[B] = []
        for op in ops:
            state, output = self.invoke(state, op)
            outputs.append(output)
        return state, outputs


class StorageOp(Enum):
    """An event in the life of a store. The end of an operation says of which, since several run at once."""

    READ = "read"
    WRITE = "write"
    MIGRATE = "migrate"
    READ_DONE = "read done"
    WRITE_DONE = "write done"
    MIGRATE_DONE = "migrate done"
    ERROR = "error"
    RECOVERED = "recovered"

    def __str__(self) -> str:
        return self.value


class Phase(Enum):
    """The five positions by name."""

    IDLE = "idle"
    READING = "reading"
    WRITING = "writing"
    MIGRATING = "migrating"
    RECOVERING = "recovering"


@dataclass(frozen=True)
class StorageState:
    """The operations that run: any number of reads and writes at once, or one migration, or a recovery.

    Idle is none of them. A recovery lets operations end that ran when the error came, and begins no other.
    """

    reads: int = 0
    writes: int = 0
    migrating: bool = False
    recovering: bool = False

    IDLE: ClassVar[StorageState]
    READING: ClassVar[StorageState]
    WRITING: ClassVar[StorageState]
    MIGRATING: ClassVar[StorageState]
    RECOVERING: ClassVar[StorageState]

    @property
    def phase(self) -> Phase:
        """The position's name; one with reads and writes is writing."""
        if self.recovering:
            return Phase.RECOVERING
        if self.migrating:
            return Phase.MIGRATING
        if self.writes:
            return Phase.WRITING
        return Phase.READING if self.reads else Phase.IDLE

    def __str__(self) -> str:
        return self.phase.value


StorageState.IDLE = StorageState()
StorageState.READING = StorageState(reads=1)
StorageState.WRITING = StorageState(writes=1)
StorageState.MIGRATING = StorageState(migrating=True)
StorageState.RECOVERING = StorageState(recovering=True)


@dataclass(frozen=True)
class StorageResult:
    """One step: what happened, and the names of the positions before and after it."""

    op: StorageOp
    before: Phase
    after: Phase


_ENDS = frozenset((StorageOp.READ_DONE, StorageOp.WRITE_DONE, StorageOp.MIGRATE_DONE))
_BEGINS = frozenset((StorageOp.READ, StorageOp.WRITE))

VALID_OPS: Mapping[Phase, frozenset[StorageOp]] = MappingProxyType(
    {
        Phase.IDLE: _BEGINS | {StorageOp.MIGRATE, StorageOp.ERROR},
        Phase.READING: _BEGINS | {StorageOp.READ_DONE, StorageOp.ERROR},
        Phase.WRITING: _BEGINS | {StorageOp.READ_DONE, StorageOp.WRITE_DONE, StorageOp.ERROR},
        Phase.MIGRATING: frozenset((StorageOp.MIGRATE_DONE, StorageOp.ERROR)),
        Phase.RECOVERING: _ENDS | {StorageOp.ERROR, StorageOp.RECOVERED},
    }
)
"""The inputs of each position; `storage_directions` leaves out the end of what does not run."""


def storage_directions(state: StorageState) -> frozenset[StorageOp]:
    """Return what a store takes in a state."""
    absent = set()
    if not state.reads:
        absent.add(StorageOp.READ_DONE)
    if not state.writes:
        absent.add(StorageOp.WRITE_DONE)
    if not state.migrating:
        absent.add(StorageOp.MIGRATE_DONE)
    if state.reads or state.writes or state.migrating:
        absent.add(StorageOp.RECOVERED)  # what ran when the error came ends first
    return VALID_OPS[state.phase] - absent


def storage_transition(state: StorageState, op: StorageOp) -> tuple[StorageState, StorageResult]:
    """Return the state after one input that the state takes, and what happened."""
    reads, writes, migrating, recovering = state.reads, state.writes, state.migrating, state.recovering
    if op is StorageOp.READ:
        reads += 1
    elif op is StorageOp.READ_DONE:
        reads -= 1
    elif op is StorageOp.WRITE:
        writes += 1
    elif op is StorageOp.WRITE_DONE:
        writes -= 1
    elif op in (StorageOp.MIGRATE, StorageOp.MIGRATE_DONE):
        migrating = op is StorageOp.MIGRATE
    else:
        recovering = op is StorageOp.ERROR
    after = StorageState(reads, writes, migrating, recovering)
    return after, StorageResult(op, state.phase, after.phase)


STORAGE_POLYNOMIAL = PolyAgent[StorageState, StorageOp, StorageResult](
    positions=frozenset(
        {
            StorageState.IDLE,
            StorageState.READING,
            StorageState.WRITING,
            StorageState.MIGRATING,
            StorageState.RECOVERING,
        }
    ),
    directions=storage_directions,
    transition=storage_transition,
)
"""The storage of dgent: idle, reading and writing at once, migrating, recovering."""
