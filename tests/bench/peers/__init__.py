"""`make bench-peers`: Partita beside other schedulers, with equal work in one run."""
