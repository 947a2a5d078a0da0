"""Drawings of answers: one function for each kind, from an answer to lines."""
