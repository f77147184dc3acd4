"""The objects of the cluster: informers, one view a kind, indexes and work queues."""
