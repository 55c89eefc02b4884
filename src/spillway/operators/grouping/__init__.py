"""Group-by, windowed group-by, dedup."""
