"""Verbs of the membrane: sessions, running programs, proposals, and the catalog of a project."""
