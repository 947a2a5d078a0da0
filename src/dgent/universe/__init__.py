"""The universe: typed records on one store, with transactions, history and a feed."""
