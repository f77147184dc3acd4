"""`make bench-writes`: what each kind of write costs the API server, in two variants alternately."""
