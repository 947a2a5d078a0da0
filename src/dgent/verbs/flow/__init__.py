"""Verbs for agents that compose."""
