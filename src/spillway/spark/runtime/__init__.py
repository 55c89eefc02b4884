"""A running query on Spark: the loop, its stages, slot tasks, and the work between batches."""
