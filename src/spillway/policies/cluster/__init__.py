"""What the coordinator decides over all slots: how much."""
