"""Commands for research on policies."""
