"""Frozen, self-checking descriptions of what a query does."""
