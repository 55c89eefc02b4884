"""A running query: the loop, its stages, slot tasks, and what runs between batches."""
