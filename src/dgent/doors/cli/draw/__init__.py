"""How answers look: a function for each kind, from an answer to lines."""
