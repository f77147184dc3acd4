"""The web page with GPUs, slices and queues. It only reads the cluster."""
