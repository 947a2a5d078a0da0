"""One file for each revision. What is there never changes: a change is another revision."""
