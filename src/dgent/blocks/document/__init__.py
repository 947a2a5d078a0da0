"""The document of a block: its shape, its template, its text, and what has changed in it."""
