"""`partita doctor`: checks whether a cluster fits Partita, and one of its GPUs."""
