"""`make bench-policies`: every policy on the same workloads, beside the study and the bounds."""
