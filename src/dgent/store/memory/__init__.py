"""The memory engine: everything in this process, for tests and short work."""
