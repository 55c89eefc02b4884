"""Groups, slots, and the versioned routing between them."""
