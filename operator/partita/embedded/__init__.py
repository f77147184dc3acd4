"""An API server for the demo and the tests: strict, in memory, in this process.

It is real enough for kubectl, kopf and the `kubernetes` client; `tests/conformance` holds it to
a real kube-apiserver. It has Namespaces, Nodes, Pods, Events, ConfigMaps, Secrets,
ServiceAccounts, Leases and CustomResourceDefinitions with what they define, and cleans up as
Kubernetes' controllers do: dependents, namespaces' contents, the objects of a removed CRD.

It does not have:

- authentication, authorization, TLS, admission webhooks and policies, quotas, API priority;
- persistence: it begins empty;
- other built-in kinds (``events.k8s.io`` included), the descriptions of built-in kinds' fields;
- conversion between versions of a CRD: one version is served;
- OpenAPI v2, CBOR, protobuf but for what `kubectl create` sends (Namespaces, ConfigMaps, Secrets,
  ServiceAccounts);
- logs, exec, attach, port-forward, eviction, ephemeral containers, tokens, `finalize`;
- canonical quantities (``1024Mi`` stays as it is written), detection of keys that a body repeats,
  server-side apply of a `Scale`;
- of CEL: cost limits, `optionalOldSelf`, fields whose names have ``.``, ``-`` or ``/``, the
  libraries for URLs, IP addresses, semantic versions, formats and list arithmetic.

There is no kubelet or scheduler here but `partita.embedded.nodes`; a bound Pod's deletion waits
for one, as in Kubernetes.
"""

__all__: list[str] = []
