"""Inspection of checkpoints and queries."""
