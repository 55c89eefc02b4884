"""One batch of one slot, free of Spark: what it is told, what it does, what it answers."""
