"""The context of an agent for one call of a model: its parts, their budgets, and what did not fit."""
