"""The JSONL engine: text files for people and git, with a cache that answers reads."""
