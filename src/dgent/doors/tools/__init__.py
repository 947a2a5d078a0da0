"""Tools for models: named groups of verbs with one flat schema each, free of any framework."""
