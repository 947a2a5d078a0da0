"""Settings and places: where stores lie, and what a file or the environment says."""
