"""Verbs for telemetry."""
