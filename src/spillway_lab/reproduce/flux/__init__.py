"""Figures of FLUX."""
