"""Operators: (state, the rows of a batch) -> (results, measurements)."""
