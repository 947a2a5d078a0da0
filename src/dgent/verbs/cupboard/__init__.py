"""Verbs of the cupboard: crumbs, trails, links, properties, stashes, metadata."""
