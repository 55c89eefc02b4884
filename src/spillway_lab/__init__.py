"""The laboratory: simulator, workloads, benchmarks, demonstrations, reproduced figures.

It imports the product and is never imported by it.
"""
