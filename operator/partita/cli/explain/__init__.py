"""`partita explain`: why a job or workload waits, or where it runs."""
