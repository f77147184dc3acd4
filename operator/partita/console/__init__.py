"""The page that shows GPUs, slices and queues in a browser; it reads, and never writes."""
