"""Whole stores in and out: backups of a constellation, and records as lines of JSON."""
