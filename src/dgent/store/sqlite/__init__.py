"""The SQLite engine: one file, one writer thread, readers beside it."""
