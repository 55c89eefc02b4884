"""What runs mean: layers, generations, gaps, compaction, expiry."""
