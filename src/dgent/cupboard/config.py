"""Configuration of a cupboard that opens its own store, and how it is attached to that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote

from dgent.cupboard import errors
from dgent.errors import InputError, StorageError
from dgent.store.jsonl.fsync import Strategy
from dgent.system import files
from dgent.universe import universe as universes
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

BACKENDS = ("sqlite", "jsonl", "memory")
STRATEGIES: tuple[str, ...] = get_args(Strategy)
BATCH_SIZE = 100
BATCH_INTERVAL_S = 5.0


@dataclass(frozen=True)
class Config:
    """A backend (`sqlite`, `jsonl` or `memory`), a folder, and when writes reach the disk.

    `immediate`: before each call returns; `batch`: after `batch_size` writes or `batch_interval` seconds;
    `on_close`: at the end. For these two, None is the default and 0 turns that trigger off.
    """

    backend: str = ""
    data_dir: str | Path = ""
    sync_strategy: str = ""
    batch_size: int | None = None
    batch_interval: float | None = None

    def validate(self) -> None:
        """Raise a ConfigError if a setting is invalid; nothing is written."""
        if not self.backend:
            raise errors.BackendEmpty("the backend must not be empty", field="backend")
        if self.backend not in BACKENDS:
            raise errors.BackendUnknown(
                f"{self.backend!r} is not a valid backend",
                hint=f"use one of {', '.join(BACKENDS)}",
                field="backend",
            )
        if not str(self.data_dir) and self.backend != "memory":
            raise errors.DataDirEmpty("the data folder must not be empty", field="data_dir")
        if self.sync_strategy and self.sync_strategy not in STRATEGIES:
            raise errors.SyncStrategyUnknown(
                f"{self.sync_strategy!r} is not a valid sync strategy",
                hint=f"use one of {', '.join(STRATEGIES)}",
                field="sync_strategy",
            )
        if self.sync_strategy == "batch":
            self._check_batch()

    def _check_batch(self) -> None:
        size, interval = self.batch_size, self.batch_interval
        if size is not None and (type(size) is not int or size < 0):
            raise errors.BatchSizeInvalid(f"expected a whole number from 0 as batch size, got {size!r}")
        if interval is not None and (
            isinstance(interval, bool) or not isinstance(interval, int | float) or not 0 <= interval < 3600
        ):
            raise errors.BatchIntervalInvalid(
                f"expected 0 to 3600 seconds as batch interval, got {interval!r}"
            )
        if size == 0 and interval == 0:
            raise errors.BatchSizeInvalid("with size and interval 0 a batch would never end")

    @property
    def place(self) -> dict[str, Any]:
        """The arguments of `dgent.open` for this configuration."""
        self.validate()
        strategy = self.sync_strategy or "immediate"
        if self.backend == "memory":
            return {"url": "memory:"}
        folder = Path(self.data_dir).expanduser().absolute()
        if self.backend == "sqlite":
            # A commit is always whole; only how soon it survives a power cut is a matter of choice.
            durability = "full" if strategy == "immediate" else "relaxed"
            return {"url": f"sqlite:///{quote(str(folder / 'cupboard.db'))}", "durability": durability}
        query = f"sync={strategy}"
        if strategy == "batch":
            size = BATCH_SIZE if self.batch_size is None else self.batch_size
            interval = BATCH_INTERVAL_S if self.batch_interval is None else self.batch_interval
            query += f"&sync_every={size or 2**31}&sync_interval={interval or 3599}"
        return {"url": f"jsonl:{quote(str(folder))}?{query}"}


async def open_universe(config: Config) -> Universe:
    """Open the universe of a configuration."""
    place = config.place
    if config.backend != "memory":
        try:
            files.make_folder(str(Path(config.data_dir).expanduser()))
        except OSError as error:
            raise StorageError(f"the folder {config.data_dir} cannot be made: {error.strerror}") from None
    universe = universes.open(**place)
    await universe.open()
    return universe


class AttachMethod:
    """`Cupboard.attach(config)` makes a cupboard and attaches it; on a cupboard it attaches that one."""

    def __get__(
        self, cupboard: Cupboard | None, kind: type[Cupboard]
    ) -> Callable[[Config], Awaitable[Cupboard]]:
        async def attach(config: Config) -> Cupboard:
            """Open the store of a configuration and attach the cupboard to it."""
            if not isinstance(config, Config):
                raise InputError(f"expected a Config to attach, got {type(config).__name__}")
            return await (kind() if cupboard is None else cupboard)._attach(config)

        return attach
