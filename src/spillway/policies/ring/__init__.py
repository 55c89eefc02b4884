"""Joins on predicates over a ring of slots: costs, length, slices, probe orders (PSP)."""
