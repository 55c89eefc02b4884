"""Joins on predicates on a simulated ring of slots (PSP)."""
