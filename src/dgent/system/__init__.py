"""Helpers that know nothing of records: files, locks, threads, progress."""
