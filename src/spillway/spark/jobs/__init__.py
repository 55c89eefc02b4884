"""Starts the queries of job files."""
