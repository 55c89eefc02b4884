"""Bytes: run files, tiers, the store, merging."""
