"""Joins on equal keys: n-way joins and join trees."""
