"""The ports of a storage provider beside the datum store: their protocols and their values."""
