"""Operators: (state, the rows of a batch) -> (output, what was learned)."""
