"""All reading and writing of a checkpoint directory: log, metadata, upkeep."""
