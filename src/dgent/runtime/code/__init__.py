"""Tools of a coding agent, within the root of a workspace."""
