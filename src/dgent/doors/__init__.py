"""The doors: each parses, calls a verb and renders its answer, and nothing else."""
