"""The stores beside the records, blocking: `from dgent.sync.storage import StorageProvider`."""

from dgent.sync.universe import (
    BlobReader,
    BlobStore,
    BlobWriter,
    ITelemetryStore,
    RelationalStore,
    RelationalTransaction,
    StorageProvider,
    VectorStore,
)

__all__ = [
    "BlobReader",
    "BlobStore",
    "BlobWriter",
    "ITelemetryStore",
    "RelationalStore",
    "RelationalTransaction",
    "StorageProvider",
    "VectorStore",
]
