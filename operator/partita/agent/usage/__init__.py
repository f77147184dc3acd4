"""Which job each process belongs to, what it uses, and the profiles measured from that."""
