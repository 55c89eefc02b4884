"""Synthetic streams: deterministic, replayable, and the same rows as a stream or as a batch."""
