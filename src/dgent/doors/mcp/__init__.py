"""The door for agent hosts: tools, resources and prompts over the Model Context Protocol."""
