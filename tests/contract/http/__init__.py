"""CONTRACT section 5, row by row, on every store."""
