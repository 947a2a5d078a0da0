"""The stores beside the records: `from dgent.storage import StorageProvider`."""

from dgent.store.port.blob import BlobInfo, IBlobStore
from dgent.store.port.relational import IRelationalStore
from dgent.store.port.telemetry import ITelemetryStore, TelemetryEvent
from dgent.store.port.vector import IVectorStore, SearchResult
from dgent.universe.storage import StorageProvider

__all__ = [
    "BlobInfo",
    "IBlobStore",
    "IRelationalStore",
    "ITelemetryStore",
    "IVectorStore",
    "SearchResult",
    "StorageProvider",
    "TelemetryEvent",
]
