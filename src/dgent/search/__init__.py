"""Text search without a store: words of a text, a search as words, scores, snippets.

Everything here is a pure function of its arguments, so every engine counts, scores and marks alike.
"""
