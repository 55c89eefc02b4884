"""Joins on equal keys: n-way and as a tree."""
