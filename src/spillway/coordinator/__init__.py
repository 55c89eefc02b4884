"""The coordinator: what is decided between two batches, and the log that makes it last."""
