"""Figures of PLANS."""
