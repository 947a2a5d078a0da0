"""Verbs of application tables."""
