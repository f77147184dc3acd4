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
- rules on CRDs beyond their schemas, label selectors with ``<`` and ``>``, lists of an exact
  resourceVersion, descriptions of columns;
- aggregated discovery, OpenAPI v2, CBOR, protobuf but for `kubectl create namespace`;
- exec, attach, port-forward, eviction, ephemeral containers, tokens, `finalize`;
- canonical quantities (``1024Mi`` stays as it is written), detection of keys that a body repeats,
  a Pod's QoS class, most of the rules on built-in kinds (of Leases all);
- server-side apply of a `Scale`, `managedFields` written by clients; of strategic merge patches
  the directives ``$patch: replace`` and ``$retainKeys``;
- of CEL: cost limits, `optionalOldSelf`, fields whose names must be escaped, rules on what did not
  change, the libraries for URLs, IP addresses, semantic versions, formats, list arithmetic,
  regular expressions, and of quantities all but comparisons.

There is no kubelet or scheduler here but `partita_testcluster.nodes`; a bound Pod's deletion waits
for one, as in Kubernetes, and a Pod's log is fetched from one.
"""

__all__: list[str] = []
