"""The door for editors, over the Agent Client Protocol."""
