"""Demonstrations on live synthetic streams."""
