"""Carries out decisions: writes the ledger first, then Pods and statuses."""
