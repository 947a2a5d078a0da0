"""Contracts: compiled from a class, they turn data into values and back."""
