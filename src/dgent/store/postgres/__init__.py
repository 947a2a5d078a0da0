"""The Postgres engine: one schema of a database, any number of processes and machines."""
