"""Permission to act on blocks, sharing, agents and groups, and the log of refusals."""
