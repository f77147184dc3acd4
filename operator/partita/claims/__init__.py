"""Claims of Pods: the only way to a GPU, from the plan to ledger entry, allocation and gate."""
