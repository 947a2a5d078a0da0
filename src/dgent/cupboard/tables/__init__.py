"""The entities of a cupboard, each with its table."""
