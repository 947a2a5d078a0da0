"""A store that may be away: reads from what is at hand, writes to an outbox."""
