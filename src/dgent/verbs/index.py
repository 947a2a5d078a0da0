"""Where each verb lives. Plain texts, so that a door can list them without loading any."""

from __future__ import annotations

MODULES: dict[str, str] = {
    "data.put": "dgent.verbs.data",
    "data.get": "dgent.verbs.data",
    "data.query": "dgent.verbs.data",
    "data.count": "dgent.verbs.data",
    "data.list": "dgent.verbs.data",
    "data.delete": "dgent.verbs.data",
    "data.schemas": "dgent.verbs.data",
    "data.upgrade": "dgent.verbs.data",
    "data.forget": "dgent.verbs.data",
    "data.stats": "dgent.verbs.data",
    "data.export": "dgent.verbs.exchange",
    "data.import": "dgent.verbs.exchange",
    "data.history": "dgent.verbs.history",
    "data.diff": "dgent.verbs.history",
    "data.log": "dgent.verbs.history",
    "data.show": "dgent.verbs.history",
    "data.changes": "dgent.verbs.history",
    "data.undo": "dgent.verbs.history",
    "data.watch": "dgent.verbs.history",
    "data.compact": "dgent.verbs.history",
    "data.associate": "dgent.verbs.link",
    "data.associated": "dgent.verbs.link",
    "data.chain": "dgent.verbs.link",
    "constellation.list": "dgent.verbs.constellation",
    "constellation.create": "dgent.verbs.constellation",
    "constellation.delete": "dgent.verbs.constellation",
    "constellation.copy": "dgent.verbs.constellation",
    "config.show": "dgent.verbs.config",
    "config.get": "dgent.verbs.config",
    "config.set": "dgent.verbs.config",
    "config.unset": "dgent.verbs.config",
    "store.status": "dgent.verbs.store",
    "store.doctor": "dgent.verbs.store",
    "store.backup": "dgent.verbs.store",
    "store.restore": "dgent.verbs.store",
    "store.copy": "dgent.verbs.store",
}

NOUNS: dict[str, str] = {
    "data": "records: put, find, look back, undo, forget",
    "constellation": "named stores on this machine",
    "store": "how the store is, backup, restore and copy",
    "config": "settings, and where each comes from",
}

SHORT: dict[str, tuple[str, str]] = {
    "remember": ("data.put", "Store a record."),
    "recall": ("data.query", "Find records."),
    "get": ("data.get", "Show a record."),
    "log": ("data.log", "Show the commits, newest first."),
    "show": ("data.show", "Show one commit with what it changed, or a record."),
    "history": ("data.history", "List the versions of a record, newest first."),
    "diff": ("data.diff", "Show how two versions of a record differ."),
    "undo": ("data.undo", "Put back what a commit changed, as a new commit."),
    "watch": ("data.watch", "Follow commits as they happen."),
    "forget": ("data.forget", "Erase records and all their versions for good."),
    "export": ("data.export", "Write records as lines of JSON."),
    "import": ("data.import", "Read records from lines that export wrote; a damaged file imports nothing."),
    "status": ("store.status", "Show the store at a glance."),
    "doctor": ("store.doctor", "Look for what is wrong with the store, and repair what is safe to repair."),
    "backup": (
        "store.backup",
        "Copy the whole constellation while it is in use, and prove that the copy opens.",
    ),
    "restore": ("store.restore", "Bring a backup back, beside what is there first, then in its place."),
}
"""The everyday ones by a word of their own. The help is here too, so that listing them loads nothing."""
