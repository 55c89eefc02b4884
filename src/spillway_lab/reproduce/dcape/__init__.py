"""Figures of DCAPE and its long report."""
