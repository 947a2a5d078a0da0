"""Verbs of the graph."""
