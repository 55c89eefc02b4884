"""Simulated windowed joins with plans (PLANS)."""
