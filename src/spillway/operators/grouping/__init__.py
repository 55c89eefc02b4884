"""Group-by, windowed group-by and dedup."""
