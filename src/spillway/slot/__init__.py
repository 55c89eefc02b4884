"""One batch of one slot, without Spark: its job, its work and its record."""
