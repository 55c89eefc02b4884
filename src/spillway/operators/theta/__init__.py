"""The time-sliced join on any predicate (PSP)."""
