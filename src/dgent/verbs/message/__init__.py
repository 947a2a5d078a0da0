"""Verbs of messages."""
