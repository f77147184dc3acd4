"""An API server for the demo and the tests: strict, in memory, in this process.

It is real enough for kubectl, kopf and the `kubernetes` client; `tests/conformance` holds it to
a real kube-apiserver. It has Namespaces, Nodes, Pods, Events, ConfigMaps, Secrets,
ServiceAccounts, Leases and CustomResourceDefinitions with what they define.

It does not have: authentication and authorization, TLS, admission webhooks and policies,
persistence, other built-in kinds, conversion between versions of a CRD (one version is served),
OpenAPI v2, protobuf and CBOR bodies, logs, exec and port-forward, eviction, quotas, API priority
and fairness, CEL cost limits, detection of duplicate keys in a body. A Pod's deletion waits for its
kubelet as in Kubernetes; there is no kubelet or scheduler here but `partita.embedded.nodes`.
"""

__all__: list[str] = []
