"""Blocks as files in a folder, which are edited in an editor and merge back."""
