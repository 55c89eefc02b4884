"""What is decided when a batch is committed: moves, slots, shapes, slices, the ring."""
