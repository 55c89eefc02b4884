"""A simulated cluster of slots and groups (FLUX, DCAPE)."""
