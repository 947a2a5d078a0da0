"""Upgrades of the storage format: numbered steps, and what one upgrade does or did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from dgent.errors import Corrupt, DgentError, FormatTooOld, InputError, StorageError, StorageFull, Unsupported
from dgent.store.backend import Backend
from dgent.store.migration import mark_migration
from dgent.system.progress import Progress

UpgradePolicy: TypeAlias = Literal["backup", "no-backup", "never"]
"""Upgrade an older format on open: after a backup where the engine can make one, without one, or never."""

POLICIES: tuple[UpgradePolicy, ...] = ("backup", "no-backup", "never")


class Step(NamedTuple):
    """One step between storage formats: SQL, or a function of the connection and a ProgressReporter.

    `number` is the format that a store has after it. Each step runs in a transaction of its own, which also
    stores the number.
    """

    number: int
    description: str
    run: str | Callable[..., Any]


class UpgradeStep(msgspec.Struct, frozen=True):
    """A step of an upgrade: the format after it, and what it does."""

    number: int
    description: str


class Upgrade(msgspec.Struct, frozen=True):
    """An upgrade of a store's format; without steps if it has the newest format already."""

    place: str
    engine: str
    from_format: int
    to_format: int
    steps: list[UpgradeStep]
    size_bytes: int
    backup: str | None = None
    note: str = ""
    dry_run: bool = False


def check_policy(policy: str) -> UpgradePolicy:
    """Return the policy; InputError if it is not one."""
    for known in POLICIES:
        if policy == known:
            return known
    raise InputError(f"upgrade is {policy!r}; it is one of {', '.join(POLICIES)}", field="upgrade")


def steps_between(steps: Sequence[Step], found: int, wanted: int, place: str) -> list[Step]:
    """Return the steps from one format to another; Corrupt if one is missing."""
    by_number = {step.number: step for step in steps}
    missing = [number for number in range(found + 1, wanted + 1) if number not in by_number]
    if missing:
        raise Corrupt(
            f"{place} has storage format {found}, and this dgent has no step to format {missing[0]}",
            hint="it was not changed; an earlier dgent may read it",
        )
    return [by_number[number] for number in range(found + 1, wanted + 1)]


def describe_steps(steps: Sequence[Step]) -> list[UpgradeStep]:
    """Return the steps as they are shown."""
    return [UpgradeStep(step.number, step.description) for step in steps]


def make_too_old_error(place: str, found: int, wanted: int) -> FormatTooOld:
    """Return the error for a store whose format is older than this dgent's."""
    return FormatTooOld(f"{place} has storage format {found}; this dgent reads and writes format {wanted}")


def make_step_error(error: Exception, step: Step, place: str, backup: str | None) -> DgentError:
    """Return the error for a step that was rolled back: which one, and where the backup is."""
    failed = error if isinstance(error, DgentError) else StorageError(str(error) or type(error).__name__)
    failed.message = f"step {step.number} ({step.description}) of {place} failed: {failed.message}"
    failed.args = (failed.message,)
    failed.hint = f"it still has storage format {step.number - 1}, nothing of the step was stored" + (
        "; free some space and open it again" if isinstance(failed, StorageFull) else ""
    )
    if backup is not None:
        failed.hint += f"; the backup is {backup}"
    return failed


async def upgrade_store(
    backend: Backend, *, backup: bool = True, dry_run: bool = False, progress: Progress | None = None
) -> Upgrade:
    """Upgrade the store of a backend that is not open; `dry_run` only reports what would be done."""
    upgrade = getattr(backend, "upgrade", None)
    if upgrade is None:
        raise Unsupported(f"the {backend.name} engine has no stored format to upgrade")
    with nullcontext() if dry_run else mark_migration(backend):
        done: Upgrade = await upgrade(backup=backup, dry_run=dry_run, progress=progress)
    return done
