"""What the coordinator decides over all slots: how much moves or spills."""
