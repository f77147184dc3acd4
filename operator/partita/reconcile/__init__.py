"""Decides what to do for one job, from the state that the informer maintains. No I/O."""
