"""One batch between two commits: what is committed, the plan, the commit."""
