"""The feed: what the page shows, as values."""
