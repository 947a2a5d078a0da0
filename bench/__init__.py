"""What dgent costs, next to the raw engine and to others: `python -m bench`."""
