"""How groups travel between slots while batches run."""
