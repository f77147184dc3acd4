"""`make bench-scale`: thousands of jobs a minute, in the shape of Kueue's scheduler benchmark."""
