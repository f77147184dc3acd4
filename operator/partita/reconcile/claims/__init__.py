"""Claims of Pods: what they ask for, and what happens to them."""
