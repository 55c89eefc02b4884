"""Whole runs on a real Spark: the demonstration and the benchmark."""
