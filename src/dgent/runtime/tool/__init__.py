"""Tools that an agent may call."""
