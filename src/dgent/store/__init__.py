"""Stores: the contract of a backend, the registry of engines, and the engines."""
