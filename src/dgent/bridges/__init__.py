"""Bridges to other frameworks; nothing of dgent imports them."""
