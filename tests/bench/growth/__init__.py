"""`make bench-growth`."""
