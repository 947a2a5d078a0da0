"""Verbs of records and commits."""
