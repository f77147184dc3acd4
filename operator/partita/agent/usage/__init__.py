"""What the programs of each allocation use, and the profiles measured from that."""
