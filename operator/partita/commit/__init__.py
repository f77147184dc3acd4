"""Carries decisions out: the ledger first, then Pods and statuses."""
