"""Commands about partitions and their GPUs: top, console and drain."""
