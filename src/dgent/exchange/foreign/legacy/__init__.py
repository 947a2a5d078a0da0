"""Import what the ancestor kept in `~/.kgents` and its other folders."""

from dgent.exchange.foreign.legacy.run import LegacyEntry, LegacyResult, import_legacy, legacy_path

__all__ = ["LegacyEntry", "LegacyResult", "import_legacy", "legacy_path"]
