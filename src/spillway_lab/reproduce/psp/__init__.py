"""Figures of PSP."""
