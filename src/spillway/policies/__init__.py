"""Policies: pure functions from statistics to decisions; no clock, no files, no Spark."""
