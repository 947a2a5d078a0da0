"""The engine written once: commits, reads, plans and indexes above any kernel."""
