"""The server: verbs and what they keep, over HTTP."""
