"""Commands that run a simulated cluster."""
