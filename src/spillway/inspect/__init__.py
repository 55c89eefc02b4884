"""What a checkpoint or a query can tell about itself."""
