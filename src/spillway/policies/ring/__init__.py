"""Joins on predicates over a ring of slots: costs, length, slices and probe orders (PSP)."""
