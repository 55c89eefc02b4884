"""The coordinator: what it decides between two batches, and the log that makes it durable."""
