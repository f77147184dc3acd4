"""What is to be done for one job, from what the informer knows of it. Pure: no I/O."""
