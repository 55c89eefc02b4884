"""State: immutable sorted runs, the manifests that name them, and the tiers that hold them."""
