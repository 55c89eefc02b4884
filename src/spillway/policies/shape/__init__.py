"""Which shape the join of a slot has (PLANS)."""
