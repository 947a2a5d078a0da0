"""Verbs for embedders."""
