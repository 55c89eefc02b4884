"""All I/O on a checkpoint directory: log, metadata and cleanup."""
