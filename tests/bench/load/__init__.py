"""`make bench-load`: long queues, invalid objects, crowds and hours, on a real API server."""
