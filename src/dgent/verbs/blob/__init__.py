"""Verbs of blobs."""
