"""Verbs for agents that run: consent, and the context of their next call."""
