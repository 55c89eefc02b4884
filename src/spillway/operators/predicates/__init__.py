"""Conditions over candidate pairs: columns, evaluation, measurement."""
