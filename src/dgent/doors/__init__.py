"""The doors: each parses a request, calls a verb and renders its answer."""
