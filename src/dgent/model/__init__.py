"""Plain values: records, schemas, queries and the order of values; no file, no clock, no loop."""
