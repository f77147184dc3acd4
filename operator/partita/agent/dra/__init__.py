"""The kubelet plugin of the DRA driver: prepares the ResourceClaims of Pods on one GPU."""
