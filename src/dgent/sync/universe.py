"""The blocking twins of the universe's classes, and functions to open and copy one."""

from __future__ import annotations

from typing import Any

from dgent.exchange import copy as copying
from dgent.store.port import blob as blob_port
from dgent.store.port import telemetry as telemetry_port
from dgent.sync.home import LoopHome
from dgent.sync.stream import Stream
from dgent.sync.twin import Twin, copy_signature, has_twin, make_twin, wrap
from dgent.universe import blob, collection, focus, relational, storage, transaction, universe, vectors

STORAGE = "dgent.sync.storage"


def _open(self: Twin) -> Any:
    self._home.begin().run(self._source.open)
    self._home.close_at_exit()
    return self


def _close(self: Twin) -> None:
    self._home.close()


def _enter(self: Any) -> Any:
    return self.open()


def _exit(self: Any, *_error: Any) -> None:
    self.close()


Transaction = make_twin(transaction.Transaction)
Collection = make_twin(collection.Collection, point_reads=("get",))
Vectors = make_twin(vectors.Vectors)
RelationalTransaction = make_twin(relational.RelationalTransaction, module=STORAGE)
RelationalStore = make_twin(relational.RelationalStore, module=STORAGE)
BlobStore = make_twin(blob.BlobStore, module=STORAGE)
BlobWriter = make_twin(blob_port.BlobWriter, module=STORAGE)
BlobReader = make_twin(blob_port.BlobReader, module=STORAGE)
ITelemetryStore = make_twin(telemetry_port.ITelemetryStore, module=STORAGE)
VectorStore = make_twin(storage.VectorStore, module=STORAGE)


Focus = make_twin(focus.Focus, point_reads=("get",))
Universe = make_twin(
    universe.Universe,
    point_reads=("get", "exists"),
    # A home must know when its universe opens and closes; everything else follows from the class.
    instead={"open": _open, "close": _close, "__aenter__": _enter, "__aexit__": _exit},
)


def _from_config(cls: Any, config: Any = None) -> Any:
    """Open the stores that the settings name; `config` is another file than the user's own."""
    return _provide(storage.find_universe(config))


def _create_minimal(cls: Any) -> Any:
    """Open stores in memory, and warn that nothing lasts: everything is gone when the program ends."""
    return _provide(storage.make_minimal(stacklevel=3))


def _provide(made: universe.Universe) -> Any:
    provider = Universe._around(made, LoopHome(made)).open().storage
    provider._source.adopt()
    return provider


def _stay(self: Twin) -> Any:
    return self


def _close_provider(self: Twin) -> None:
    if self._source.owns_universe:
        self._home.close()
    else:
        self._home.begin().run(self._source.close)


def _get_blob(self: Twin) -> Any:
    """Bytes under keys, each content kept once."""
    return _wrap_port(self._source.blob, self._home)


def _get_telemetry(self: Twin) -> Any:
    """Events of agents, kept apart from the records."""
    return _wrap_port(self._source.telemetry, self._home)


def _wrap_port(port: Any, home: LoopHome) -> Any:
    """Return a port in its blocking form, made when an engine that has it is first used."""
    if not has_twin(type(port)):
        make_twin(type(port), module=STORAGE)
    return wrap(port, home)


StorageProvider = make_twin(
    storage.StorageProvider,
    instead={
        "blob": property(_get_blob),
        "telemetry": property(_get_telemetry),
        "from_config": classmethod(_from_config),
        "create_minimal": classmethod(_create_minimal),
        "close": _close_provider,
        "__aenter__": _stay,
        "__aexit__": _exit,
    },
    module=STORAGE,
)


def _open_at(*args: Any, **kwargs: Any) -> Any:
    made = universe.open(*args, **kwargs)
    return Universe._around(made, LoopHome(made)).open()


open = copy_signature(_open_at, universe.open, "open")


def _copy(source: Twin, target: Twin, **rest: Any) -> Any:
    return source._home.begin().run(copying.copy, source._source, target._source, **rest)


def _mirror(source: Twin, target: Twin) -> Any:
    return Stream(source._home, copying.mirror(source._source, target._source))


copy = copy_signature(_copy, copying.copy, "copy")
mirror = copy_signature(_mirror, copying.mirror, "mirror")
