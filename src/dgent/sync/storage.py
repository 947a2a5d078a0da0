"""The stores beside the records, blocking: `from dgent.sync.storage import StorageProvider`."""

from dgent.sync.universe import RelationalStore, RelationalTransaction, StorageProvider, VectorStore

__all__ = ["RelationalStore", "RelationalTransaction", "StorageProvider", "VectorStore"]
