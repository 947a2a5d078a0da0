"""Verbs of stores, constellations, forks and settings."""
