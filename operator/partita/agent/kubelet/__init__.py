"""Messages between the agent and kubelet, generated from kubelet.proto by `make protos`."""
