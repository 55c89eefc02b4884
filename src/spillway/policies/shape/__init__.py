"""The join shape of a slot (PLANS)."""
