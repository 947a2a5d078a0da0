"""Blobs in files."""
