"""Rows in Arrow's layout: their exact bytes, and how they are joined and cut."""
