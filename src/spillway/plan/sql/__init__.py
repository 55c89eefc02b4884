"""SQL conditions as data: text, types, linear parts, bands."""
