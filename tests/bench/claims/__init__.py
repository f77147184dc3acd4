"""`make bench-claims`: Pods with claims on a real control plane, gated and not."""
