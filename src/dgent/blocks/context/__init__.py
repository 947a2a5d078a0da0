"""Prompts made of blocks, and what is found, noticed and archived for an agent."""
