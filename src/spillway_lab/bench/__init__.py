"""Benchmarks: side by side with Spark's own operators, ratios in one run."""
