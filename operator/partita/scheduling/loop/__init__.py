"""Carries out what the rest of `scheduling` decides: the only part of it that does I/O."""
