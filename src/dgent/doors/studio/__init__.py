"""The studio: pages in which people see what their agents know."""
