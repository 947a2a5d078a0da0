"""Tools that a model may call: their rules, and the consent that some of them need."""
