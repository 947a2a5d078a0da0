"""Whole stores in and out: backup, restore, copy, fork, and import and export of files."""
