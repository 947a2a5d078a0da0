"""Verbs that import the stores of other frameworks."""
