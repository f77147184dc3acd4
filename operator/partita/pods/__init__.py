"""Building Pods and reading their status. The functions do no I/O."""
