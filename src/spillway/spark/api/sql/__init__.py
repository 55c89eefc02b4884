"""Continuous queries written as SQL: their streams, what Spark reads in them, and their calls."""
