"""Revisions of the tables of Brain, Town and Gardener; `dgent.tables.migrate` runs them."""
